"""Every test of this folder has a cache folder, and so a key, of its own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache", numbered=True)
    folder.chmod(0o700)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(folder))
    monkeypatch.delenv("ANYCANN_TRUSTED_KEYS", raising=False)
    return folder
