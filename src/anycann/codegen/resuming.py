"""Kernels that leave, in the scratch memory of a thread or elsewhere, what its next call in the same launch can use if it goes on there.

A thread takes its tasks in several calls (`runtime/row_units.py`). For a row of a kernel that `resumes`, the lowest bit of the address of
the scratch memory says that the tasks before `begin` were this thread's last call. Who calls a kernel once need not know of it.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value


def resumed(e: Emitter) -> Value:
    """Whether this call goes on behind the thread's last one, i1; from here on `e.scratch` is the address without that bit."""
    bit = e.binary("and", e.cast("ptrtoint", e.scratch, "i64"), e.const(1))
    e.scratch = e.gep(e.scratch, e.sub(e.const(0), bit), "i8")
    return e.compare("ne", bit, e.const(0))
