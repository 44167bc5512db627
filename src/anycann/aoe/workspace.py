"""The folder of one tuning, in Ascend's layout: `aoe_workspace/<model>_<timestamp>/tunespace/result/<model>_<timestamp>_tune.om`."""

from __future__ import annotations

from datetime import datetime, timezone
import os
from pathlib import Path
import platform
import re

from anycann.support import options
from anycann.support.errors import UsageError
from anycann.support.files import file_error
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Workspace:
    """Where one tuning writes. `stamp` is when it began."""

    root: Path
    model: str
    stamp: str

    @property
    def folder(self) -> Path:
        return self.root / "aoe_workspace" / f"{self.model}_{self.stamp}"

    @property
    def journal(self) -> Path:
        return self.folder / "tunespace" / "journal.jsonl"

    @property
    def kernels(self) -> Path:
        """The cache of candidates."""
        return self.folder / "tunespace" / "kernels"

    def tuned_model(self, is_dynamic: bool = False) -> Path:
        """The offline model that is the result."""
        system = f"_linux_{platform.machine()}" if is_dynamic else ""
        return self.folder / "tunespace" / "result" / f"{self.model}_{self.stamp}_tune{system}.om"

    def report(self, kind: str) -> Path:
        """The result file; `kind` is "opat" for operator and "sgat" for subgraph tuning."""
        return self.root / f"aoe_result_{kind}_{self.stamp}_pid{os.getpid()}.json"


def open_workspace(model: str, reload: bool) -> Workspace:
    """A new workspace, or with `reload` the newest one of this model. Raises UsageError if there is none, DeviceError for a full disk."""
    root = Path(options.ASCEND_WORK_PATH.get() or ".").absolute()
    name = re.sub(r"[^\w.-]", "_", model)
    if reload:
        found = _latest(root, name)
        if found is None:
            raise UsageError(f"--reload: {root / 'aoe_workspace'} holds no tuning of {name!r} that could go on")
        return found
    workspace = Workspace(root, name, datetime.now(timezone.utc).astimezone().strftime("%Y%m%d%H%M%S%f")[:-3])
    for folder in (workspace.tuned_model().parent, workspace.kernels):
        try:
            folder.mkdir(parents=True, mode=0o700 if folder == workspace.kernels else 0o777, exist_ok=True)
        except OSError as error:
            raise file_error(folder, "make", error) from error
    return workspace


def _latest(root: Path, name: str) -> Workspace | None:
    stamps = [path.name.removeprefix(f"{name}_") for path in root.glob(f"aoe_workspace/{name}_*") if (path / "tunespace").is_dir()]
    stamps = [stamp for stamp in stamps if stamp.isdigit()]
    return Workspace(root, name, max(stamps)) if stamps else None
