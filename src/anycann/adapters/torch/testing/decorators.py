"""Decorators of tests written for torch_npu: one test for each dtype and format, or only on some chips, versions, numbers of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partialmethod, wraps
import inspect
from itertools import product
from typing import Any, TypeVar
import unittest

import torch

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


class Dtypes:
    """The test is instantiated for each of these dtypes. Raises RuntimeError without any, or for something else."""

    def __init__(self, *args: torch.dtype):
        if not args or any(not isinstance(arg, torch.dtype) for arg in args):
            raise RuntimeError(f"Dtypes{args}; accepted: one torch.dtype or more")
        self.args = args

    def __call__(self, fn: Function) -> Function:
        fn.dtypes = self.args  # type: ignore[attr-defined]
        return fn


class Formats:
    """The test is instantiated for each of these npu formats. Raises RuntimeError without any."""

    def __init__(self, *args: int):
        if not args:
            raise RuntimeError("Formats(); accepted: one format or more")
        self.args = args

    def __call__(self, fn: Function) -> Function:
        fn.formats = self.args  # type: ignore[attr-defined]
        return fn


def instantiate_tests(arg: type[T]) -> type[T]:
    """A class whose tests with `Dtypes` and `Formats` stand once for each combination, named after it."""
    for name, function in list(vars(arg).items()):
        choices = {key: getattr(function, f"{key}s") for key in ("dtype", "format") if hasattr(function, f"{key}s")}
        if not choices:
            continue
        parameters = inspect.getfullargspec(function).args
        for values in product(*choices.values()):
            given: dict[str, Any] = {"device": "npu"} if "device" in parameters else {}
            for key, value in zip(choices, values, strict=True):
                given[_parameter(parameters, key)] = value
            suffix = "_".join(str(value).removeprefix("torch.") for value in values)
            setattr(arg, f"{name}_{suffix}", _with(function, given))
        delattr(arg, name)
    return arg


def _parameter(parameters: Sequence[str], key: str) -> str:
    """The parameter that takes a dtype or a format. Raises RuntimeError if there is not just one."""
    found = [name for name in parameters if key in name]
    if len(found) != 1:
        raise RuntimeError(f"parameters {', '.join(parameters)}; wanted: one whose name has {key!r} in it")
    return found[0]


def _with(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    return partialmethod(function, **given)


class SupportedDevices:
    """The test is skipped unless the first device's chip begins with one of these names."""

    def __init__(self, supported_devices: Sequence[str]):
        self.supported_devices = supported_devices

    def __call__(self, fn: Function) -> Function:
        @wraps(fn)
        def only_there(*args: Any, **kwargs: Any) -> Any:
            name = torch.npu.get_device_name(0)
            if not any(name.startswith(chip) for chip in self.supported_devices):
                raise unittest.SkipTest(f"Only run on {self.supported_devices}, current device is {name}.")
            return fn(*args, **kwargs)

        return only_there  # type: ignore[return-value]


class SkipIfNotGteCANNVersion:
    """The test is skipped where CANN is older than this version."""

    def __init__(self, base_version: str, module: str = "CANN"):
        self.base_version, self.module = base_version, module

    def __call__(self, fn: Function) -> Function:
        @wraps(fn)
        def only_there(*args: Any, **kwargs: Any) -> Any:
            current = torch.npu.utils.get_cann_version(self.module)
            if _parts(current) < _parts(self.base_version):
                raise unittest.SkipTest(f"Only run on {self.base_version} or greater, current cann version is {current}.")
            return fn(*args, **kwargs)

        return only_there  # type: ignore[return-value]


def skipIfUnsupportMultiNPU(npu_number_needed: int) -> Callable[[Function], Function]:
    """A decorator: the test is skipped with fewer devices."""

    def decorate(fn: Function) -> Function:
        @wraps(fn)
        def only_there(*args: Any, **kwargs: Any) -> Any:
            if torch.npu.device_count() < npu_number_needed:
                raise unittest.SkipTest(f"Multi-NPU condition not satisfied: {npu_number_needed} wanted, {torch.npu.device_count()} there.")
            return fn(*args, **kwargs)

        return only_there  # type: ignore[return-value]

    return decorate


class SkipIfNoLapack:
    """The test is skipped where torch was built without LAPACK."""

    def __call__(self, fn: Function) -> Function:
        return unittest.skipUnless(torch._C.has_lapack, "PyTorch compiled without Lapack")(fn)


def _parts(version: str) -> tuple[int, ...]:
    """The numbers of a version, as far as they are numbers."""
    return tuple(int(part) for part in version.replace("RC", ".").split(".") if part.isdecimal())
