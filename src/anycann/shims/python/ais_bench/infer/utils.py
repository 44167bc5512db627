"""`from ais_bench.infer.utils import logger`."""

from anycann.tools.ais_bench.summary import logger, set_up_logging

__all__ = ["logger"]

set_up_logging(debug=False)
