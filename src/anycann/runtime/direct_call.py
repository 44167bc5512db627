"""A whole program as one function of the interpreter: a dictionary of arrays in, a list of arrays out, with no line of Python between.

Checking feeds, filling in addresses and collecting results in Python cost a small network more than its kernels, the more so where the
interpreter has been doing something else: mnist, 13 us of kernels, took 22. The function is native code of `dispatch.py` that reads
dictionaries by the interpreter's C interface and arrays as numpy's C interface lays them out. What it does not know it leaves to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import ctypes
import enum
from functools import cache
import sys
import sysconfig
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.runtime import memory

Direct = Callable[[object], list[Any] | None]
PLAIN = 0x0101  # NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED of numpy's C interface: what kernels read as it lies


class Facts(enum.IntEnum):
    """What the function is told, int64 each, by number; from PORTS on `Port`s of the inputs, then what makes each output.

    WATCHED: the address of a count of observers. BUSY: a run is going on in another thread. CALLS: runs so far.
    """

    POOL = 0
    READY = 1
    BLOCK = 2
    ROWS = 3
    INPUTS = 4
    OUTPUTS = 5
    WATCHED = 6
    BUSY = 7
    CALLS = 8
    DICT_TYPE = 9
    ARRAY_TYPE = 10
    NONE = 11
    COUNT = 12
    ITEM = 13
    CLEAR = 14
    LIST = 15
    PUT = 16
    MAKE = 17
    HOLD = 18
    DROP = 19
    LEAVE = 20
    ENTER = 21
    PORTS = 22


class Port(enum.IntEnum):
    """Of one input: its name, numpy's object for its dtype, its rank and the address of its sizes."""

    NAME = 0
    DTYPE = 1
    RANK = 2
    SIZES = 3


class Array(enum.IntEnum):
    """Where numpy's C interface has the parts of an array, in bytes; of these RANK and FLAGS have 4."""

    TYPE = memory.POINTER_OFFSET - 8
    ELEMENTS = memory.POINTER_OFFSET
    RANK = memory.POINTER_OFFSET + 8
    SIZES = memory.POINTER_OFFSET + 16
    DTYPE = memory.POINTER_OFFSET + 40
    FLAGS = memory.POINTER_OFFSET + 48


class Description(enum.IntEnum):
    """Where numpy's C interface has what tells an array's dtype, in bytes: its class, and a letter for the order of bytes.

    There may be several objects for one dtype: arrays that come from another process, or out of a file of pickle's, have their own.
    """

    TYPE = Array.TYPE
    ORDER = Array.TYPE + 18


_FUNCTIONS = {
    Facts.COUNT: "PyDict_Size",
    Facts.ITEM: "PyDict_GetItemWithError",
    Facts.CLEAR: "PyErr_Clear",
    Facts.LIST: "PyList_New",
    Facts.PUT: "PyList_SetItem",
    Facts.MAKE: "PyObject_CallNoArgs",
    Facts.HOLD: "Py_IncRef",
    Facts.DROP: "Py_DecRef",
    Facts.LEAVE: "PyEval_SaveThread",
    Facts.ENTER: "PyEval_RestoreThread",
}


class _Method(ctypes.Structure):
    """PyMethodDef of the interpreter's C interface."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


_ONE_ARGUMENT = 0x0008  # METH_O


def direct_call(
    code: int,
    native: tuple[int, int, int, int],
    names: Sequence[str],
    feeds: Sequence[Any],
    makers: Sequence[Callable[[], object]],
    watched: NDArray[np.int64],
    keep: object,
) -> tuple[Direct, NDArray[np.int64]]:
    """The function and its facts, where `is_known`.

    code: the address of `anycann_direct`. native: addresses of the pool, of its READY and of a block that is this function's alone, and the
    number of rows of a whole run. feeds: arrays like those that it will take. It gives None, and has done nothing, for a call that is not
    of `names` and such arrays, while there are observers or another call is going on, and where the run stopped at a row of kind STOP.
    """
    sizes = [np.array(feed.shape or (0,), np.int64) for feed in feeds]
    dtypes = [memory.numpy_dtype(feed.dtype.name) for feed in feeds]  # not a copy, as arrays of another process have
    ports = [(id(n), id(d), f.ndim, s.ctypes.data) for n, d, f, s in zip(names, dtypes, feeds, sizes, strict=True)]
    facts = np.zeros(Facts.PORTS + len(ports) * len(Port) + len(makers), np.int64)
    facts[[Facts.POOL, Facts.READY, Facts.BLOCK, Facts.ROWS]] = native
    facts[[Facts.INPUTS, Facts.OUTPUTS, Facts.WATCHED]] = len(ports), len(makers), watched.ctypes.data
    facts[[Facts.DICT_TYPE, Facts.ARRAY_TYPE, Facts.NONE]] = id(dict), id(np.ndarray), id(None)
    for fact, name in _FUNCTIONS.items():
        facts[fact] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    facts[Facts.PORTS :] = [*(number for port in ports for number in port), *map(id, makers)]
    kept = (keep, tuple(names), dtypes, sizes, tuple(makers), watched)
    return _function(code, facts, kept), facts


def _function(code: int, facts: NDArray[np.int64], keep: object) -> Direct:
    """The function of the interpreter; it holds `facts`, which native code is given, and `keep` where others have their module."""
    function: Direct = _new_function()(ctypes.addressof(_method(code)), facts, keep)
    return function


@cache
def _new_function() -> Callable[[int, object, object], Direct]:
    """The interpreter's own, as a function of ours: the types of `ctypes.pythonapi`'s are whatever another thread says."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return new(("PyCFunction_NewEx", ctypes.pythonapi))


@cache
def _method(code: int) -> _Method:
    """Functions refer to it for as long as they live, so it stays."""
    return _Method(b"run", code, _ONE_ARGUMENT, None)


@cache
def is_known() -> bool:
    """Whether this interpreter has one lock, and numpy's arrays lie as `Array` says."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    probe = np.empty((3, 5), np.float32)
    words = {part: ctypes.c_size_t.from_address(id(probe) + part).value for part in Array}
    sizes = (ctypes.c_int64 * 2).from_address(words[Array.SIZES])
    found = (words[Array.TYPE], words[Array.ELEMENTS], words[Array.RANK] & 0xFFFFFFFF, tuple(sizes), words[Array.DTYPE])
    if found != (id(np.ndarray), probe.ctypes.data, 2, (3, 5), id(probe.dtype)) or words[Array.FLAGS] & 0xFFFF != probe.flags.num:
        return False
    return all(
        _description(dtype) == (id(type(dtype)), dtype.byteorder.encode()) for dtype in (probe.dtype, np.dtype(">i8"), np.dtype(bool))
    )


def _description(dtype: np.dtype[Any]) -> tuple[int, bytes]:
    at = id(dtype)
    return ctypes.c_size_t.from_address(at + Description.TYPE).value, ctypes.c_char.from_address(at + Description.ORDER).value
