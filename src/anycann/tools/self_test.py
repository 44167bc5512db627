"""`python -m anycann.tools.self_test`: compile and run one small kernel. A process of its own, so that a crash is a finding, not an end."""

from __future__ import annotations

import ctypes
import json
import time

import llvmlite.binding as llvm
import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_object
from anycann.codegen.values import vector_type
from anycann.support.errors import InternalError
from anycann.target.target import Target, host

ELEMENTS = 1003  # no multiple of any vector width: the tail is tested too


def multiply_add_kernel(target: Target) -> tuple[str, str]:
    """(symbol, IR) of `y[i] = a[i] * b[i] + y[i]` over `begin..end`, in vectors and a scalar tail."""
    e = Emitter()
    a, b, y = (e.argument(number) for number in range(3))
    vector = vector_type("float", target.lanes)
    whole = e.add(e.begin, e.mul(e.udiv(e.sub(e.end, e.begin), target.lanes), target.lanes))
    for type_, start, stop, step in ((vector, e.begin, whole, target.lanes), ("float", whole, e.end, 1)):
        with e.loop(start, stop, step) as loop:
            pointers = [e.gep(base, loop.index, "float") for base in (a, b, y)]
            x0, x1, x2 = (e.load(pointer, type_, 4) for pointer in pointers)
            e.store(e.fma(x0, x1, x2), pointers[2], 4)
    return e.finish("self_test")


def run_self_test(target: Target | None = None) -> dict[str, object]:
    """Compile the kernel for this machine, run it, compare with numpy. Raises InternalError if the numbers differ."""
    target = target or host()
    started = time.perf_counter()
    symbol, text = multiply_add_kernel(target)
    data = emit_object(text, target)
    compiled = time.perf_counter()
    generator = np.random.default_rng(0)
    a, b, y = (generator.standard_normal(ELEMENTS).astype(np.float32) for _ in range(3))
    expected = a.astype(np.float64) * b + y
    _call(data, symbol, (a, b, y))
    error = float(np.max(np.abs(y - expected)))
    if not error < 1e-5:
        raise InternalError(f"the self-test kernel is wrong by {error:g} on {target.cpu}")
    return {"target": target.cpu, "lanes": target.lanes, "compile_seconds": compiled - started, "largest_error": error}


def _call(data: bytes, symbol: str, arrays: tuple[np.ndarray[tuple[int], np.dtype[np.float32]], ...]) -> None:
    """Load object code and call its kernel over all elements."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    scratch = ctypes.create_string_buffer(64)
    function(engine.get_function_address(symbol))(ctypes.addressof(pointers), 0, ELEMENTS, ctypes.addressof(scratch))


if __name__ == "__main__":
    print(json.dumps(run_self_test()))
