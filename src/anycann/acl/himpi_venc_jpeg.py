"""acl.himpi: the tables of JPEG files as programs see them, dicts of lists, and as the encoder takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict
from anycann.media.jpeg_encoder import COEFFICIENTS, Huffman, Tables, tables_of

OWN_TABLES = 0xFFFFFFFF  # qfactor where the program gives quantisation tables
QUALITIES = range(1, 101)
JpegCodes: TypeAlias = tuple[tuple[Huffman, Huffman], tuple[Huffman, Huffman]]  # of differences and of coefficients: Y, the others
_MOST_STEP, _LENGTHS = 255, 16
_QUANTISATION = ("y_qt", "cb_qt", "cr_qt")


def tables_from(parameters: Dict, codes: JpegCodes | None, compact: bool) -> Tables | None:
    """What the encoder is told: None where libjpeg-turbo's own ways do. Raises AclError for tables that are none."""
    quality = parameters["qfactor"]
    own = quality == OWN_TABLES
    if not (own or codes or compact):
        return None
    usual = tables_of(QUALITIES[-1] if own else quality)
    steps = tuple(_steps(parameters, name) for name in _QUANTISATION) if own else usual.quantisation
    differences, coefficients = codes or (usual.differences, usual.coefficients)
    return Tables(steps, differences, coefficients, compact)  # type: ignore[arg-type]


def _steps(parameters: Dict, name: str) -> bytes:
    given = parameters.get(name)
    if (
        not isinstance(given, list)
        or len(given) != COEFFICIENTS
        or not all(isinstance(step, int) and 0 < step <= _MOST_STEP for step in given)
    ):
        raise AclError(Code.INVALID_PARAM, f"{name} is {given!r:.60}; accepted: {COEFFICIENTS} ints of 1 to {_MOST_STEP}, row by row")
    return bytes(given)


def codes_from(parameters: Dict) -> JpegCodes:
    """The Huffman tables of a hi_venc_jpeg_huffman_param. Raises AclError for tables that are none, and for Cb and Cr that differ."""
    found = []
    for kind in ("dc", "ac"):
        listed = parameters.get(f"{kind}_tables")
        if not isinstance(listed, list) or len(listed) != len(_QUANTISATION):
            raise AclError(Code.INVALID_PARAM, f"{kind}_tables are {listed!r:.60}; accepted: three, of Y, Cb and Cr")
        luma, *chroma = (_table(each, kind) for each in listed)
        if chroma[0] != chroma[1]:
            raise AclError(Code.INVALID_PARAM, f"the {kind}_tables of Cb and Cr differ; accepted: the same")
        found.append((luma, chroma[0]))
    return found[0], found[1]


def _table(given: Any, kind: str) -> Huffman:
    lists: list[Any] = [given.get(f"{kind}_{part}") for part in ("bits", "value")] if isinstance(given, dict) else [None]
    if not all(isinstance(each, list) and all(isinstance(number, int) and 0 <= number <= _MOST_STEP for number in each) for each in lists):
        raise AclError(
            Code.INVALID_PARAM, f"a table of {kind}_tables is {given!r:.60}; accepted: {{{kind}_bits: 16 ints, {kind}_value: ints}}"
        )
    lengths, symbols = (bytes(each) for each in lists)
    made = Huffman(lengths[:_LENGTHS], symbols[: sum(lengths[:_LENGTHS])])
    made.check(kind == "dc")
    return made


def shown(codes: JpegCodes | None) -> dict[str, Any]:
    """Huffman tables as programs read them: those of annex K of ITU-T T.81 where the program gave none."""
    usual = tables_of(QUALITIES[-1])
    differences, coefficients = codes or (usual.differences, usual.coefficients)
    return {"dc_tables": _listed("dc", differences), "ac_tables": _listed("ac", coefficients), "reserved": [0, 0]}


def _listed(kind: str, pair: Sequence[Huffman]) -> list[dict[str, list[int]]]:
    luma, chroma = pair
    return [{f"{kind}_bits": list(each.lengths), f"{kind}_value": list(each.symbols)} for each in (luma, chroma, chroma)]
