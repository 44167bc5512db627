from __future__ import annotations

import sys

import pytest

from anycann.media.libraries import jpeg_library, video_library
from anycann.support.errors import UsageError


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UsageError, match=r'JPEG pictures need the package simplejpeg .* pip install "anycann\[media\]"'):
        jpeg_library()
    with pytest.raises(UsageError, match=r'video and PNG pictures need the package av .* pip install "anycann\[media\]"'):
        video_library()
