"""The package `torch_npu` among the installed ones: libraries ask for its version before they use the npu."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
import sys
from types import ModuleType
from typing import Any

NAME = "torch_npu"


class _Distribution(Distribution):
    """The metadata of one version, for `importlib.metadata`."""

    def __init__(self, version: str):
        self._texts = {"METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n", "top_level.txt": f"{NAME}\n"}

    def read_text(self, filename: str) -> str | None:
        """One file of the metadata; None for those that it has not."""
        return self._texts.get(filename)

    def locate_file(self, path: Any) -> Path:
        """Where a file of the package lies."""
        return Path(sys.modules[NAME].__file__ or "").parents[1] / path


class _Finder(DistributionFinder):
    """Finds the distribution, and no modules."""

    def __init__(self, version: str):
        self._distribution = _Distribution(version)

    def find_spec(self, *asked: Any) -> None:
        """No module comes from here."""

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> Iterator[Distribution]:  # noqa: B008
        """The one, if it or all are asked for."""
        if context.name is None or context.name.replace("-", "_").lower() == NAME:
            yield self._distribution


def install(torch_npu: ModuleType) -> None:
    """Make the version of `torch_npu` known."""
    sys.meta_path.append(_Finder(torch_npu.__version__))
