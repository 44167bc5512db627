"""The names Ascend gives its chips (`--soc_version`) and what each name implies when a model is compiled here."""

from __future__ import annotations

import difflib

from anycann.support.errors import UsageError
from anycann.support.records import dataclass


@dataclass(frozen=True)
class SocVersion:
    """One value of `--soc_version`. `precision_mode` is what ATC uses for it when no precision option is given.

    `max_gears` bounds the dynamic gears of one model. `bfloat16` says whether the chip computes in bfloat16, and so whether the
    bfloat16 precision modes are meaningful for it.
    """

    name: str
    series: str
    precision_mode: str = "force_fp16"
    bfloat16: bool = False
    max_gears: int = 100


HOST = SocVersion("host", "host", precision_mode="must_keep_origin_dtype", bfloat16=True)

# The platform_config names of CANN 8.1 (and `Ascend910`, `Ascend310P`, `Ascend710`, which older scripts still use), by series.
_SERIES: dict[str, tuple[str, ...]] = {
    "310": ("Ascend310",),
    "310B": ("Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4"),
    "310P": ("Ascend310P", "Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7", "Ascend710"),
    "610": ("Ascend610", "Ascend610Lite"),
    "910": ("Ascend910", "Ascend910A", "Ascend910B", "Ascend910ProA", "Ascend910ProB", "Ascend910PremiumA"),
    "910B": ("Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4", "Ascend910B4-1"),
    "910_93": ("Ascend910_9362", "Ascend910_9372", "Ascend910_9381", "Ascend910_9382", "Ascend910_9391", "Ascend910_9392"),
    "910_95": ("Ascend910_9579", "Ascend910_9581", "Ascend910_9589", "Ascend910_9599"),
    "BS9SX1A": ("BS9SX1AA", "BS9SX1AB", "BS9SX1AC"),
    "Hi3796": ("Hi3796CV300CS", "Hi3796CV300ES"),
    "SD3403": ("SD3403",),
}
_BFLOAT16_SERIES = ("910B", "910_93", "910_95")
_MANY_GEARS_SERIES = ("910_95",)


def _table() -> dict[str, SocVersion]:
    rows = {HOST.name: HOST}
    for series, names in _SERIES.items():
        for name in names:
            gears = 256 if series in _MANY_GEARS_SERIES else 100
            rows[name] = SocVersion(name, series, bfloat16=series in _BFLOAT16_SERIES, max_gears=gears)
    return rows


SOC_VERSIONS = _table()


def soc_version(name: str) -> SocVersion:
    """The chip called `name`; "" and "host" are this machine with the model's own dtypes.

    Raises UsageError for another name and says the nearest that exists.
    """
    if not name:
        return HOST
    if name in SOC_VERSIONS:
        return SOC_VERSIONS[name]
    near = nearest(name)
    hint = f"did you mean {near}?" if near else f"accepted: {', '.join(SOC_VERSIONS)}"
    raise UsageError(f"soc_version {name!r} is unknown; {hint}")


def nearest(name: str) -> str | None:
    """The known chip whose name looks most like `name` (`ascend310p3` and `310P3` find `Ascend310P3`), or None."""
    folded = {known.lower(): known for known in SOC_VERSIONS}
    for guess in (name.lower(), f"ascend{name.lower()}"):
        close = difflib.get_close_matches(guess, folded, n=1, cutoff=0.75)
        if close:
            return folded[close[0]]
    return None
