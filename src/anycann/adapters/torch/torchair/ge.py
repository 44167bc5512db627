"""`torchair.ge`: what converters of a program's own build Ascend's graphs of. They are kept and not called, so nothing is built here."""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

_TYPES = {
    "FLOAT": 0, "FLOAT16": 1, "INT8": 2, "INT32": 3, "UINT8": 4, "INT16": 6, "UINT16": 7, "UINT32": 8, "INT64": 9, "UINT64": 10,
    "DOUBLE": 11, "BOOL": 12, "STRING": 13, "COMPLEX64": 16, "COMPLEX128": 17, "QINT8": 18, "QINT16": 19, "QINT32": 20,
    "QUINT8": 21, "QUINT16": 22, "BF16": 27, "UNDEFINED": 28, "INT4": 29, "UINT1": 30,
    "COMPLEX32": 33, "HIFLOAT8": 34, "FLOAT8_E5M2": 35, "FLOAT8_E4M3FN": 36, "FLOAT8_E8M0": 37, "FLOAT4_E2M1": 40, "FLOAT4_E1M2": 41,
}  # fmt: skip


class Tensor:
    """A value of Ascend's graph, in signatures of converters."""


class TensorSpec:
    """What is known of a result, in signatures of converters."""


DataType = type("DataType", (), {"__doc__": "Ascend's numbers of dtypes.", **{f"DT_{name}": number for name, number in _TYPES.items()}})


class Format(Enum):
    """Ascend's numbers of formats."""

    FORMAT_UNDEFINED = -1
    FORMAT_NCHW = 0
    FORMAT_NHWC = 1
    FORMAT_ND = 2
    FORMAT_NC1HWC0 = 3
    FORMAT_FRACTAL_Z = 4
    FORMAT_NC1HWC0_C04 = 12
    FORMAT_HWCN = 16
    FORMAT_NDHWC = 27
    FORMAT_FRACTAL_NZ = 29
    FORMAT_NCDHW = 30
    FORMAT_NDC1HWC0 = 32


def refuse(name: str) -> NoReturn:
    """Raises NotImplementedError: nodes of Ascend's graph are not built here."""
    raise NotImplementedError(
        f"torchair.ge.{name} builds a node of Ascend's graph; converters are kept and not called here: the operator's own PyTorch kernel "
        "computes it in a compiled graph"
    )


def custom_op(op_type: str, *args: Any, **options: Any) -> NoReturn:
    """A node of an operator of the program's own. Raises NotImplementedError."""
    refuse(f"custom_op({op_type!r})")


def Const(v: Any, dtype: Any = None, node_name: str | None = None, readable: bool = True) -> NoReturn:  # noqa: N802  # Ascend's name
    """A constant. Raises NotImplementedError."""
    refuse("Const")


def Cast(x: Any, *, dst_type: int, dependencies: Any = (), node_name: str | None = None) -> NoReturn:  # noqa: N802  # Ascend's name
    """A value in another dtype. Raises NotImplementedError."""
    refuse("Cast")


def Clone(x: Any, *, dependencies: Any = (), node_name: str | None = None) -> NoReturn:  # noqa: N802  # Ascend's name
    """A copy. Raises NotImplementedError."""
    refuse("Clone")


class _Attribute:
    """An attribute of a node."""

    def __init__(self, value: Any):
        self.value = value


class attr:  # noqa: N801  # Ascend's module
    """Attributes of nodes, by their types."""

    Bool = Int = Float = Str = DataType = ListBool = ListInt = ListFloat = ListStr = ListDataType = ListListInt = ListListFloat = _Attribute
