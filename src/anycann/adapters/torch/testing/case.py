"""The test case of torch_npu.testing: unittest's with comparisons of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from numbers import Number
import os
import random
import sys
from typing import Any
import unittest
import warnings

import numpy as np
import torch

from anycann.adapters.torch.testing.comparing import rtol_difference
from anycann.adapters.torch.testing.tensors import is_iterable, set_npu_device

try:  # what upstream's test case is made of; tests of expected texts need it
    from expecttest import TestCase as Base
except ImportError:
    Base = unittest.TestCase


def run_tests() -> None:
    """Run the tests of the program that calls it."""
    unittest.main(argv=sys.argv)


class TestCase(Base):  # type: ignore[misc,unused-ignore]
    """A test on the npu: seeds are set before each test, numbers and tensors compare with a tolerance (`precision`)."""

    __test__ = False  # pytest takes subclasses, which set it
    maxDiff = None
    precision = 1e-5
    exact_dtype = False
    npu_device = "npu:0"

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.__test__ = True

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.npu_device = set_npu_device()

    def setUp(self) -> None:
        super().setUp()
        seed = int(os.environ.get("SEED", "666"))
        torch.manual_seed(seed)
        random.seed(seed)

    def assertRtolEqual(
        self,
        x: Any,
        y: Any,
        prec: float = 1e-4,
        prec16: float = 1e-3,
        auto_trans_dtype: bool = False,
        message: str | None = None,
    ) -> None:
        """Fail if shapes or dtypes differ, or more than a share `prec` of the elements, absolutely and relatively, by more than `prec`."""
        difference = rtol_difference(x, y, prec, prec16, auto_trans_dtype)
        if difference:
            self.fail(f"{message}: {difference}" if message else difference)

    def assertEqual(
        self, x: Any, y: Any, prec: Any = None, message: str = "", allow_inf: bool = False, exact_dtype: bool | None = None, **more: Any
    ) -> None:
        """Numbers and tensors to within `prec` (that of the case by default), also inside sequences and dictionaries; else as unittest."""
        if isinstance(prec, str) and not message:
            prec, message = None, prec
        message = message or str(more.get("msg") or "")
        tolerance = more.get("atol") if prec is None else prec
        self._compare(
            x,
            y,
            self.precision if tolerance is None else tolerance,
            message,
            bool(self.exact_dtype if exact_dtype is None else exact_dtype),
        )

    def assertNotEqual(self, x: Any, y: Any, prec: Any = None, message: str = "", **more: Any) -> None:
        """Fail if `assertEqual` would not."""
        try:
            self.assertEqual(x, y, prec, message, **more)
        except (AssertionError, TypeError, ValueError):
            return
        self.fail(message or f"{x!r} and {y!r} are equal")

    def assertObjectIn(self, obj: object, iterable: Iterable[object]) -> None:
        """Fail if no element is `obj` itself."""
        if not any(element is obj for element in iterable):
            self.fail("object not found in iterable")

    def assertExpectedRaises(self, exc_type: type[BaseException], call_fn: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Fail if the call does not raise."""
        with self.assertRaises(exc_type):
            call_fn(*args, **kwargs)

    def assertNotWarn(self, call_fn: Callable[[], object], msg: str = "") -> None:
        """Fail if the call warns."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call_fn()
        self.assertTrue(not seen, msg)

    @contextmanager
    def maybeWarnsRegex(self, category: type[Warning], regex: str = "") -> Any:
        """Warnings inside are let pass."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category)
            yield

    def _compare(self, x: Any, y: Any, tolerance: float, message: str, exact: bool) -> None:
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            self._compare_tensors(x, y, tolerance, message, exact)
        elif isinstance(x, torch.Tensor) and isinstance(y, Number | np.bool_):
            self._compare(x.item(), y, tolerance, message, exact)
        elif isinstance(y, torch.Tensor) and isinstance(x, Number | np.bool_):
            self._compare(x, y.item(), tolerance, message, exact)
        elif isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and (x.dtype == np.bool_) != (y.dtype == np.bool_):
            self._compare(np.asarray(x, float), np.asarray(y, float), tolerance, message, exact)
        elif isinstance(x, torch.Tensor | np.ndarray) and isinstance(y, np.ndarray | list | tuple):
            self._compare(torch.as_tensor(x), torch.as_tensor(y), tolerance, message, exact)
        elif isinstance(x, bool | str | bytes | type) or isinstance(y, bool | str | bytes | type):
            super().assertEqual(x, y, message or None)
        elif isinstance(x, Number) and isinstance(y, Number):
            self._compare_numbers(x, y, tolerance, message)
        elif isinstance(x, dict) and isinstance(y, dict):
            super().assertEqual(x.keys(), y.keys(), message or None)
            for key in x:
                self._compare(x[key], y[key], tolerance, message, exact)
        elif is_iterable(x) and is_iterable(y) and not isinstance(x, set):
            left, right = list(x), list(y)
            super().assertEqual(len(left), len(right), message or None)
            for a, b in zip(left, right, strict=True):
                self._compare(a, b, tolerance, message, exact)
        else:
            super().assertEqual(x, y, message or None)

    def _compare_tensors(self, x: torch.Tensor, y: torch.Tensor, tolerance: float, message: str, exact: bool) -> None:
        super().assertEqual(x.is_sparse, y.is_sparse, message or None)
        super().assertEqual(x.shape, y.shape, message or None)
        if (x.dtype == torch.bool) != (y.dtype == torch.bool):
            raise TypeError(f"{x.dtype} and {y.dtype}: accepted: both of torch.bool, or none")
        plain = [v.detach().to_dense() if v.is_sparse else v.detach().dequantize() if v.is_quantized else v.detach() for v in (x, y)]
        torch.testing.assert_close(
            *(v.cpu() for v in plain),
            rtol=0.0,
            atol=float(tolerance),
            equal_nan=True,
            check_dtype=exact,
            check_device=False,
            check_stride=False,
            msg=(lambda text: f"{message}: {text}") if message else None,
        )

    def _compare_numbers(self, x: Any, y: Any, tolerance: float, message: str) -> None:
        same = x == y or (x != x and y != y)  # NaN is the only number that differs from itself
        if not same and not abs(x - y) <= tolerance:
            self.fail(message or f"{x!r} and {y!r} differ by more than {tolerance:g}")
