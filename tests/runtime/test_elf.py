"""Objects loaded without LLVM: relocations, library calls, several objects, damaged ones; and a process that never loads LLVM."""

from __future__ import annotations

import ctypes
from pathlib import Path
import subprocess
import sys

import onnx
import pytest

from anycann.codegen.object_form import EXCEPTIONS
from anycann.codegen.objects import emit_object
from anycann.compiler import compile_model
from anycann.om.writer import write_offline_model
from anycann.runtime.elf import ElfImage, defined_functions, is_supported
from anycann.runtime.loader import LoadedCode
from anycann.runtime.thread_pool import prepare
from anycann.support.errors import InternalError
from anycann.target.target import by_name, host

pytestmark = pytest.mark.skipif(not host().is_x86, reason="other processors are loaded by LLVM")

TABLE = """
@numbers = internal constant [4 x i64] [i64 3, i64 5, i64 7, i64 11]
define i64 @pick(i64 %i) {
  %at = getelementptr [4 x i64], ptr @numbers, i64 0, i64 %i
  %n = load i64, ptr %at
  ret i64 %n
}
"""
FILL = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @fill(ptr %p, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %p, i8 7, i64 %n, i1 false)
  ret void
}
"""


def image(*texts: str) -> ElfImage:
    objects = {str(number): emit_object(text, host()) for number, text in enumerate(texts)}
    assert is_supported(objects)
    memset = ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value
    return ElfImage(objects, lambda name: {"memset": memset or 0}[name])


def test_a_function_finds_its_constants() -> None:
    loaded = image(TABLE)
    pick = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.addresses["pick"])
    assert [pick(i) for i in range(4)] == [3, 5, 7, 11]


def test_several_objects_lie_side_by_side_and_call_the_library() -> None:
    loaded = image(TABLE, FILL)
    data = ctypes.create_string_buffer(100)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.addresses["fill"])(ctypes.addressof(data), 99)
    assert data.raw == b"\7" * 99 + b"\0"
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.addresses["pick"])(2) == 7


def test_defined_functions_are_listed() -> None:
    assert "pick" in defined_functions(emit_object(TABLE, host()))


def test_code_of_another_processor_is_left_to_llvm() -> None:
    assert not is_supported({"pick": emit_object(TABLE, by_name("neon"))})


def test_code_is_not_writable_once_it_is_loaded() -> None:
    loaded = image(TABLE)
    address = loaded.addresses["pick"]
    rights = next(
        line.split()[1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if int(line.split("-")[0], 16) <= address < int(line.split("-")[1].split()[0], 16)
    )
    assert rights.startswith("r-x")


@pytest.mark.parametrize("cut", [0, 10, 63, 64, 200, -1, -100])
def test_a_truncated_object_is_refused(cut: int) -> None:
    data = emit_object(TABLE, host())
    with pytest.raises(InternalError):
        ElfImage({"pick": data[:cut]}, lambda _: 0)


def test_the_loader_takes_code_for_less_than_this_processor(tmp_path: Path) -> None:
    code = LoadedCode({"pick": emit_object(TABLE, by_name("sse"))}, by_name("sse"))
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("pick"))(1) == 5


CHILD = """
import sys
import numpy as np
from anycann import InferenceSession
session = InferenceSession(sys.argv[1], num_threads=2)
print(session.run(None, {"x": np.ones((2, 8), np.float32)})[0].sum())
print(*[name for name in ("llvmlite.binding", "onnx", "onnx_ir", "anycann.assembly") if name in sys.modules])
"""


def test_a_trusted_offline_model_runs_without_llvm_and_onnx(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[2, 8] x) => (float[2, 8] y) { a = Exp(x)  y = Softmax(a) }'
    write_offline_model(tmp_path / "m.om", compile_model(onnx.parser.parse_model(text)))
    prepare()  # as atc does
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / "m.om")], capture_output=True, text=True, check=True)
    total, imported = done.stdout.split("\n")[:2]
    assert float(total) == pytest.approx(2.0)
    assert imported == ""


_kept: list[LoadedCode] = []  # the C++ runtime reads the frames of registered code as long as the process lives
CATCHING = """
declare i32 @__gxx_personality_v0(...)
declare ptr @__cxa_begin_catch(ptr)
declare void @__cxa_end_catch()

define i32 @survives(ptr %function, ptr %argument) uwtable personality ptr @__gxx_personality_v0 {
entry:
  invoke void %function(ptr %argument) to label %well unwind label %caught

well:
  ret i32 0

caught:
  %pad = landingpad {ptr, i32} catch ptr null
  %thrown = extractvalue {ptr, i32} %pad, 0
  %error = call ptr @__cxa_begin_catch(ptr %thrown)
  call void @__cxa_end_catch()
  ret i32 1
}
"""


def test_code_that_catches_exceptions_has_tables_of_frames_that_end_in_zeros() -> None:
    runtime = ctypes.CDLL("libstdc++.so.6")
    functions = {name: ctypes.cast(getattr(runtime, name), ctypes.c_void_p).value or 0 for name in EXCEPTIONS}
    target = by_name("sse")
    code = LoadedCode({"survives": emit_object(CATCHING, target), "pick": emit_object(TABLE, target)}, target, functions)
    (frames,) = code.frames
    ctypes.CDLL("libgcc_s.so.1").__register_frame(ctypes.c_void_p(frames))
    _kept.append(code)
    survives = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(code.address("survives"))
    throws = ctypes.cast(runtime._ZSt20__throw_length_errorPKc, ctypes.c_void_p)
    assert [survives(throws, b"too long") for _ in range(3)] == [1, 1, 1]
    assert survives(ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p), None) == 0
    at, entries = frames, 0
    while length := ctypes.c_uint32.from_address(at).value:
        at, entries = at + 4 + length, entries + 1
    assert entries >= 2  # what they have in common, and one function or more
