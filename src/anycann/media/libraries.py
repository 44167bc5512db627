"""The libraries that decode and encode, which come with the extra `media`."""

from __future__ import annotations

import importlib
from types import ModuleType

from anycann.support.errors import UsageError


def jpeg_library() -> ModuleType:
    """simplejpeg, which brings libjpeg-turbo. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module("simplejpeg")
    except ImportError as error:
        raise _missing("JPEG pictures", "simplejpeg", error) from error


def video_library() -> ModuleType:
    """PyAV, which brings FFmpeg. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise _missing("video and PNG pictures", "av", error) from error


def _missing(what: str, package: str, error: ImportError) -> UsageError:
    return UsageError(f'{what} need the package {package} ({error}); install it with: pip install "anycann[media]"')
