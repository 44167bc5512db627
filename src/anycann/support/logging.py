"""Messages of AnyCANN: the "anycann" logger of Python's `logging`, as talkative as ANYCANN_LOG says."""

from __future__ import annotations

import logging
import sys

from anycann.support import options

_ROOT = "anycann"


class _StandardError(logging.Handler):
    """Prints to standard error, but only in programs that have not set up logging of their own."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        try:
            sys.stderr.write(f"{record.name}: {record.levelname.lower()}: {record.getMessage()}\n")
        except (OSError, ValueError, TypeError, AttributeError):  # a closed stream, or none, or arguments that don't fit the format
            self.handleError(record)


def get_logger(part: str = "") -> logging.Logger:
    """The logger of `part` ("om" is anycann.om). Its level is ANYCANN_LOG if set, else what the program chose, else "warning"."""
    root = logging.getLogger(_ROOT)
    if not any(isinstance(handler, _StandardError) for handler in root.handlers):
        root.addHandler(_StandardError())
    if options.LOG.is_set() or root.level == logging.NOTSET:
        level = options.LOG.get() or "warning"
        root.setLevel(level.upper())
    return root.getChild(part) if part else root
