"""Tests of sessions compile with one cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(folder))
    return folder
