"""`from ais_bench.infer.common.utils import logger, logger_print`."""

from anycann.tools.ais_bench.summary import logger, set_up_logging

set_up_logging(debug=False)
logger_print = logger.info

__all__ = ["logger", "logger_print"]
