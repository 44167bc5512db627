"""Processors that this machine is not: what the emulator computes, and that kernels for them are right."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
import os
from pathlib import Path
import re
import subprocess
import sys

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from anycann.codegen.objects import emit_object
from anycann.runtime.loader import LoadedCode
from anycann.target.target import by_name, processor
from tests.codegen.kernels.jit import ENTRY, Guarded, assert_passes_in_child
from tests.emulation.plugin import EMULATED, emulator, lacks
from tests.emulation.processor import EmulationError

pytestmark = pytest.mark.skipif(
    find_spec("bochscpu") is None, reason="needs bochscpu-python, for Linux on x86-64: pip install -e '.[test]'"
)
ROOT = Path(__file__).resolve().parents[2]
BFLOAT16 = ml_dtypes.bfloat16


def assemble(*instructions: str) -> tuple[Callable[[np.ndarray], None], object]:
    """What runs `instructions` on the address of an array, in `$0`; and what keeps it in memory."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    text = "\\0A".join(instructions)
    module = llvm.parse_assembly(f'define void @f(ptr %p) {{ call void asm sideeffect "{text}", "r,~{{memory}}"(ptr %p) ret void }}')
    machine = llvm.Target.from_default_triple().create_target_machine(cpu="sapphirerapids", jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    address = engine.get_function_address("f")
    return lambda array: emulator().call(address, (array.ctypes.data,)), engine


def self_checks() -> None:
    """Each instruction that is mended or computed here, beside numpy. It runs in a process of its own: there is one emulator in each."""
    rng = np.random.default_rng(5)
    memory = np.zeros(6144, np.uint8)
    floats, pairs = rng.standard_normal(32).astype(np.float32), rng.standard_normal((3, 32)).astype(BFLOAT16)

    memory[:128] = floats.view(np.uint8)
    convert, kept = assemble("vmovups ($0), %zmm1", "vmovups 64($0), %zmm2", "vcvtne2ps2bf16 %zmm1, %zmm2, %zmm3", "vmovups %zmm3, 128($0)")
    convert(memory)
    np.testing.assert_array_equal(memory[128:192].view(BFLOAT16), floats.astype(BFLOAT16))

    memory[:192] = pairs.view(np.uint8).ravel()
    dot, kept_too = assemble(
        "vmovups ($0), %zmm1", "vpxord %zmm2, %zmm2, %zmm2", "vdpbf16ps 128($0), %zmm1, %zmm2", "vmovups %zmm2, 192($0)"
    )
    dot(memory)
    wanted = (pairs[0].astype(np.float32) * pairs[2].astype(np.float32)).reshape(16, 2).sum(axis=1)
    np.testing.assert_allclose(memory[192:256].view(np.float32), wanted, rtol=1e-6, atol=1e-6)

    memory[:64].view(np.uint64)[:] = 8 * np.array([3, 1, 2, 7, 0, 6, 5, 4])
    memory[64:128].view(np.uint64)[:] = rng.integers(0, 2**63, 8)
    gather, kept_last = assemble(
        "vmovups ($0), %zmm20", "kxnorw %k2, %k2, %k2", "vgatherqpd 64($0,%zmm20), %zmm29{%k2}", "vmovups %zmm29, 192($0)"
    )
    gather(memory)
    np.testing.assert_array_equal(memory[192:256].view(np.uint64), memory[64:128].view(np.uint64)[[3, 1, 2, 7, 0, 6, 5, 4]])

    for multiply, first, second, result in (
        ("tdpbf16ps", BFLOAT16, BFLOAT16, np.float32),
        ("tdpbssd", np.int8, np.int8, np.int32),
        ("tdpbsud", np.int8, np.uint8, np.int32),
        ("tdpbusd", np.uint8, np.int8, np.int32),
        ("tdpbuud", np.uint8, np.uint8, np.int32),
    ):
        check_tiles(multiply, first, second, result)
    check_refusals()
    assert len({id(kept), id(kept_too), id(kept_last)}) == 3


def check_tiles(multiply: str, first: type, second: type, result: type) -> None:
    """5 x 12 groups times 12 x 9 columns, added to what is there; the rest of the tiles stays untouched in memory."""
    rng = np.random.default_rng(6)
    rows, depth, columns, group = 5, 12, 9, 4 // np.dtype(first).itemsize
    random = [rng.integers(-128, 128, size) for size in ((rows, depth, group), (depth, columns, group), (rows, columns))]
    a, b, c = (values.astype(kind) for values, kind in zip(random, (first, second, result), strict=True))
    memory = np.full(6144, 0xAA, np.uint8)
    memory[:64] = 0
    memory[0] = 1
    memory[16:32].view(np.uint16)[1:4] = 4 * depth, 4 * columns, 4 * columns
    memory[49:52] = rows, depth, rows
    for number, operand in enumerate((a, b, c)):
        place = memory[1024 * (1 + number) :][:1024].reshape(16, 64)
        place[: len(operand), : operand[0].nbytes] = operand.view(np.uint8).reshape(len(operand), -1)
    before = memory.copy()
    run, _kept = assemble(
        "ldtilecfg ($0)",
        "movl $$64, %eax",
        "leaq 3072($0), %r9",
        "tileloadd 1024($0,%rax,1), %tmm1",
        "tileloadd 2048($0,%rax), %tmm2",
        "tileloadd (%r9,%rax), %tmm3",
        f"{multiply} %tmm2, %tmm1, %tmm3",
        "tilestored %tmm3, 2048(%r9,%rax,1)",
        "tilezero %tmm3",
        "tilestored %tmm3, 1024(%r9,%rax,1)",
        "tilerelease",
    )
    run(memory)
    wide = np.float64 if result is np.float32 else np.int64
    product = np.einsum("mkg,kng->mn", a.astype(wide), b.astype(wide)) + c
    place = memory[5120:6144].reshape(16, 64)
    np.testing.assert_allclose(place[:rows, : 4 * columns].copy().view(result), product, rtol=1e-5)
    assert (place[rows:] == 0xAA).all()
    assert (place[:, 4 * columns :] == 0xAA).all()
    assert not memory[4096:5120].reshape(16, 64)[:rows, : 4 * columns].any()
    assert (memory[:4096] == before[:4096]).all()


def check_refusals() -> None:
    """They are told with the code before them, which may be the first in its memory."""
    for code, address, told in (
        (b"\x48\x89\x37\xc3", 1 << 40, "exception 14 at the end of 488937, CR2 0x10000000000"),  # mov [rdi], rsi; ret
        (b"\x0f\x0b\xc3", 0, "exception 6 at the end of 0f0b, "),  # ud2; ret
    ):
        kept = Guarded(np.frombuffer(code, np.uint8), front=True)
        with pytest.raises(EmulationError, match=told):
            emulator().call(kept.address, (address,))


def test_instructions_that_are_mended_or_computed_here_are_right() -> None:
    script = "from tests.emulation.test_emulation import self_checks; self_checks()"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


def refused() -> None:
    """A kernel that the processor refuses to go on with."""
    text = "declare void @llvm.trap() define void @k() { call void @llvm.trap() ret void }"
    code = LoadedCode({"k": emit_object(text, by_name("avx512"))}, by_name("avx512"))
    ENTRY(code.address("k"))(None, 0, 0, None)


def test_what_the_processor_refuses_in_a_child_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCANN_TEST_EMULATE", "avx512")
    with pytest.raises(AssertionError, match="the child ended with"):
        assert_passes_in_child("tests.emulation.test_emulation", "refused")


# Some of each kind of instruction, 25 s of a processor's time; `scripts/test --emulate NAME tests/codegen` runs all.
CHOSEN = {
    "dot products of bytes and of bfloat16": ("sapphirerapids", "test_matmul_types.py", "", 171),
    "attention by matrix tiles": (
        "sapphirerapids",
        "test_attention_tiles.py",
        "side_by_side or several_masks or rounding_of_weights and 300",
        15,
    ),
    "convolutions of bytes by matrix tiles": ("sapphirerapids", "test_dot_convolution.py", "padding_too and (odd or volumes)", 200),
    "byte products": ("znver4", "test_byte_product.py", "", 10),
    "Winograd": ("avx512", "test_winograd.py", "avx512 and millionths and (smaller or wide or alone)", 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CHOSEN)
def test_kernels_are_right_on_processors_that_this_is_not(what: str) -> None:
    name, file, chosen, least = CHOSEN[what]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--emulate", name]
    done = subprocess.run(
        [*command, f"tests/codegen/kernels/{file}", "-k", chosen], cwd=ROOT, capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stdout
    calls = re.search(r"emulated: (\d+) calls", done.stdout)
    assert calls is not None
    assert int(calls[1]) >= (least if lacks(EMULATED[name], processor()) else 0)


def environment() -> dict[str, str]:
    """This process's, where modules of the project are found."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path[1:]])}
