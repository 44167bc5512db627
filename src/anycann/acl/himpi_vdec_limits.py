"""acl.himpi: how much a coded frame has of what a program may limit: parts of a picture, and numbers of parameter sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import re

_STARTS = re.compile(b"\0\0\x01(?=.)", re.DOTALL)
_HEAD_BYTES = 96  # of a unit; no number of a parameter set lies behind
_PROFILE_BITS, _LEVEL_BITS = 88, 8


class _Bits:
    """Reads numbers from the beginning of a unit of a stream, as in clause 9 of H.264 and H.265."""

    def __init__(self, data: bytes):
        plain = data[:_HEAD_BYTES].replace(b"\0\0\3", b"\0\0")
        self._bits = "".join(f"{byte:08b}" for byte in plain) + "1" * _HEAD_BYTES
        self._at = 0

    def take(self, count: int) -> int:
        self._at += count
        return int(self._bits[self._at - count : self._at] or "0", 2)

    def exponential(self) -> int:
        """A number of Exp-Golomb code."""
        zeros = self._bits.find("1", self._at) - self._at
        return self.take(2 * zeros + 1) - 1 if zeros >= 0 else 0


def _set_of_h265(bits: _Bits) -> int:
    """The number of a sequence parameter set of H.265, behind profiles and levels."""
    bits.take(4)
    layers = bits.take(3)
    bits.take(1 + _PROFILE_BITS + _LEVEL_BITS)
    given = [(bits.take(1), bits.take(1)) for _ in range(8 if layers else 0)][:layers]
    for profile, level in given:
        bits.take(_PROFILE_BITS * profile + _LEVEL_BITS * level)
    return bits.exponential()


def _set_of_h264(bits: _Bits) -> int:
    bits.take(24)
    return bits.exponential()


# by the name of a limit: the types of units, and what reads the number of a parameter set (None: units are counted)
_H264: Mapping[str, tuple[frozenset[int], Callable[[_Bits], int] | None]] = {
    "max_slice_num": (frozenset((1, 2, 5)), None), "max_sps_num": (frozenset((7,)), _set_of_h264),
    "max_pps_num": (frozenset((8,)), _Bits.exponential),
}  # fmt: skip
_H265: Mapping[str, tuple[frozenset[int], Callable[[_Bits], int] | None]] = {
    "max_slice_segment_num": (frozenset(range(32)), None), "max_vps_num": (frozenset((32,)), lambda bits: bits.take(4)),
    "max_sps_num": (frozenset((33,)), _set_of_h265), "max_pps_num": (frozenset((34,)), _Bits.exponential),
}  # fmt: skip


def is_beyond(limits: Mapping[str, int], data: bytes) -> bool:
    """Whether a frame has more parts than the limits, by their names, allow, or a parameter set whose number they do not."""
    h265 = "max_vps_num" in limits
    kinds, head = (_H265, 2) if h265 else (_H264, 1)
    found = [data[match.end() :][: _HEAD_BYTES + head] for match in _STARTS.finditer(data)]
    typed = [(unit[0] >> 1 & 63 if h265 else unit[0] & 31, unit[head:]) for unit in found]
    for name, most in limits.items():
        types, number_of = kinds[name]
        own = [body for kind, body in typed if kind in types]
        if (len(own) if number_of is None else max((number_of(_Bits(body)) + 1 for body in own), default=0)) > most:
            return True
    return False
