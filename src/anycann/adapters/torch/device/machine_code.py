"""Generated code in this process: loaded for good, and called by Python as a builtin function."""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from functools import cache
from typing import Any

NO_KEYWORDS, KEYWORDS, ONE_ARGUMENT = 0x0080, 0x0082, 0x0008  # METH_FASTCALL, METH_FASTCALL | METH_KEYWORDS, METH_O


def load(name: str, ir: str) -> Any:
    """The code of a module of LLVM IR, compiled once per machine. Raises what the compiler or the loader raise where neither can run."""
    from anycann.codegen.kernel_cache import compile_kernels
    from anycann.codegen.object_form import EXCEPTIONS
    from anycann.runtime.loader import LoadedCode
    from anycann.target.target import host

    runtime = ctypes.CDLL("libstdc++.so.6")
    functions = {function: address_of(getattr(runtime, function)) for function in EXCEPTIONS}
    code = LoadedCode(compile_kernels({name: ir}, host(), 1), host(), functions)
    for frames in code.frames:
        ctypes.CDLL("libgcc_s.so.1").__register_frame(ctypes.c_void_p(frames))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))  # what it made may be freed after everything else, when the process ends
    return code


def address_of(function: Any) -> int:
    """Where a function of a C library is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@cache
def _definition(name: str, address: int, flags: int) -> _MethodDef:
    """One for all functions of the same code: they point to it, so it is kept."""
    return _MethodDef(name.encode(), address, flags, None)


def python_function(name: str, address: int, own: bytes, flags: int) -> Callable[..., Any]:
    """A builtin function of Python that calls the code at `address`, as `flags` say, with the object `own` as its self."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.byref(_definition(name, address, flags)), own, None)
