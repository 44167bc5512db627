"""The logger, by the name programs import it from."""

from anycann.support.logging import get_logger

logger = get_logger("torchair")

__all__ = ["logger"]
