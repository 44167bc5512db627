"""Quantisation operators of QONNX and Brevitas: real values rounded to a grid of any number of bits.

Source: github.com/fastmachinelearning/qonnx, docs/qonnx-custom-ops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx.reference.op_run import OpRun

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")


def _half_up(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sign(x) * np.floor(np.abs(x) + 0.5))


ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ROUND_TO_ZERO": np.trunc,
    "DOWN": np.trunc,
    "UP": lambda x: np.asarray(np.sign(x) * np.ceil(np.abs(x))),
    "HALF_UP": _half_up,
}


class _Quant(OpRun):
    """Quant(x, scale, zero point, bits): x rounded to the grid, as a real number again."""

    op_schema = None

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        zero: np.ndarray,
        bits: np.ndarray,
        signed: int = 1,
        narrow: int = 0,
        rounding_mode: str = "ROUND",
    ) -> tuple[np.ndarray]:
        levels = 2.0 ** np.asarray(bits, np.float64)
        low = -levels / 2 + (1 if narrow else 0) if signed else np.zeros_like(levels)
        high = levels / 2 - 1 if signed else levels - 1 - (1 if narrow else 0)
        grid = np.clip(x / scale + zero, low, high)
        return (((ROUNDINGS[rounding_mode.upper()](grid) - zero) * scale).astype(x.dtype),)


class _BipolarQuant(OpRun):
    """BipolarQuant(x, scale): scale where x >= 0, -scale elsewhere."""

    op_schema = None

    def _run(self, x: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray]:
        return (np.where(x >= 0, scale, -scale).astype(x.dtype),)


class _Trunc(OpRun):
    """Trunc(x, scale, zero point, bits in, bits out): the low bits of the integer behind x are dropped."""

    op_schema = None

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        zero: np.ndarray,
        bits_in: np.ndarray,
        bits_out: np.ndarray,
        rounding_mode: str = "FLOOR",
        **_: object,
    ) -> tuple[np.ndarray]:
        step = 2.0 ** (bits_in - bits_out)
        kept = ROUNDINGS[rounding_mode.upper()](np.rint(x / scale + zero) / step)
        return (((kept - zero) * scale).astype(x.dtype),)


def _in_domain(operator: type[OpRun], domain: str) -> type[OpRun]:
    return type(operator.__name__.removeprefix("_"), (operator,), {"op_domain": domain, "__module__": __name__})


OPERATORS = tuple(_in_domain(operator, domain) for operator in (_Quant, _BipolarQuant, _Trunc) for domain in DOMAINS)
