"""acl.himpi: which RGB the YUV of a channel is."""

from __future__ import annotations

from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, dict_in, errors_of
from anycann.acl.himpi_vdec_channel import CHANNELS as DECODERS
from anycann.acl.himpi_vdec_channel import VdecChannel
from anycann.acl.himpi_vpc_channel import CHANNELS as PROCESSORS
from anycann.acl.himpi_vpc_channel import VpcChannel
from anycann.media.convert import Matrix, Numbers, OwnMatrix, numbers_of

_VDEC, _VPC, _OWN = 5, 7, 100
_NAMES = (*(f"csc_matrix_r{row}_c{column}" for row in range(3) for column in range(3)), *(f"csc_bias_r{row}" for row in range(3)))
_PARTS = ("yuv_to_rgb_coefficient", "rgb_to_yuv_coefficient")
_MOST_WEIGHT, _MOST_BIAS = 64, 256


@status("acl.himpi.sys_set_chn_csc_matrix")
def sys_set_chn_csc_matrix(module: int, channel: int, matrix: int, coefficients: dict[str, Any]) -> None:
    """Of a channel of VDEC (module 5) or VPC (7): 0 BT.601 wide, 1 narrow, 2 and 3 BT.709, 4 and 5 BT.2020, 100 one's own.

    coefficients: {yuv_to_rgb_coefficient: {csc_matrix_r0_c0, ..., csc_bias_r0, ...}, rgb_to_yuv_coefficient: {...}}; the biases of the
    first are subtracted before its product, those of the second added to it.
    """
    with errors_of("VPC"):
        found = _channel(module, channel)
        if matrix == _OWN:
            found.matrix = OwnMatrix(*(_numbers(coefficients, part) for part in _PARTS))
        elif matrix in tuple(Matrix):
            found.matrix = Matrix(matrix)
        else:
            known = ", ".join(f"{each.value} ({each.name})" for each in Matrix)
            raise AclError(Code.INVALID_PARAM, f"colour matrix {matrix}; accepted: {known}, {_OWN} (one's own)")


@value_and_status("acl.himpi.sys_get_chn_csc_matrix", failed=(0, {}), returns="(matrix, dict, ret)")
def sys_get_chn_csc_matrix(module: int, channel: int) -> tuple[int, dict[str, object]]:
    """What was set, and its coefficients."""
    with errors_of("VPC"):
        matrix = _channel(module, channel).matrix
        numbers = numbers_of(matrix) if isinstance(matrix, Matrix) else matrix
        told = (dict(zip(_NAMES, each, strict=True)) for each in (numbers.to_rgb, numbers.to_yuv))
        return int(matrix) if isinstance(matrix, Matrix) else _OWN, dict(zip(_PARTS, told, strict=True))


def _channel(module: int, channel: int) -> VdecChannel | VpcChannel:
    if module == _VPC:
        return PROCESSORS.get(channel)
    if module == _VDEC:
        return DECODERS.get(channel)
    raise AclError(Code.INVALID_PARAM, f"module {module} has no colour matrix; accepted: {_VDEC} (VDEC), {_VPC} (VPC)")


def _numbers(given: Dict, part: str) -> Numbers:
    """Nine weights and three biases."""
    found = dict_in(given, part, "hi_csc_coefficient")
    for name in _NAMES:
        number, most = found.get(name), _MOST_BIAS if "bias" in name else _MOST_WEIGHT
        if not isinstance(number, int | float) or not -most <= number <= most:
            raise AclError(Code.INVALID_PARAM, f"{part}[{name!r}] is {number!r:.60}; accepted: -{most} to {most}")
    return tuple(float(found[name]) for name in _NAMES)
