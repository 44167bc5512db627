"""IR text to object code: every target compiles, faults are reported with the text, code that cannot be loaded is refused."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_products import add_word_pairs
from anycann.codegen.objects import SHORT_CHARACTERS, emit_assembly, emit_object, undefined_symbols
from anycann.codegen.values import vector_type
from anycann.support.errors import InternalError
from anycann.target.target import Target, by_name, host


def square_kernel(lanes: int, addend: float = 1.5) -> tuple[str, str]:
    """(symbol, IR) of y = x * x + addend, a task being `lanes` floats."""
    e = Emitter()
    x, y = e.argument(0), e.argument(1)
    with e.loop(e.begin, e.end) as loop:
        offset = e.mul(loop.index, lanes)
        value = e.load(e.gep(x, offset, "float"), f"<{lanes} x float>", 4)
        e.store(e.fma(value, value, e.const(addend, value.type)), e.gep(y, offset, "float"), 4)
    return e.finish("square")


@pytest.mark.parametrize(("name", "machine"), [("sse", 62), ("avx2", 62), ("avx512", 62), ("neon", 183), ("sve", 183), ("host", None)])
def test_every_target_gives_an_elf_object_of_its_machine(name: str, machine: int | None) -> None:
    target = by_name(name)
    data = emit_object(square_kernel(target.lanes)[1], target)
    assert data[:4] == b"\x7fELF"
    assert machine is None or int.from_bytes(data[18:20], "little") == machine


@pytest.mark.parametrize(("name", "register"), [("avx2", "ymm"), ("avx512", "zmm"), ("neon", "fmla")])
def test_the_full_vector_width_is_used(name: str, register: str) -> None:
    target = by_name(name)
    assert register in emit_assembly(square_kernel(target.lanes)[1], target)


def as_long(text: str) -> str:
    """The same module with as much text as a kernel has whose functions are simplified one at a time."""
    return text + "; more\n" * (SHORT_CHARACTERS // 7 + 1)


def instructions(text: str, target: Target) -> list[str]:
    return [line for line in emit_assembly(text, target).splitlines() if line.startswith("\t") and not line.startswith("\t.")]


@pytest.mark.parametrize("name", ["sse", "avx2", "avx512", "neon"])
def test_a_long_kernel_is_the_code_of_a_short_one(name: str) -> None:
    target = by_name(name)
    text = square_kernel(target.lanes)[1]
    assert instructions(as_long(text), target) == instructions(text, target)


@pytest.mark.parametrize("form", [str, as_long], ids=["short", "long"])
def test_products_and_sums_are_neither_fused_nor_put_in_another_order(form: Callable[[str], str]) -> None:
    text = (
        "define float @f(float %a, float %b, float %c) {\n  %p = fmul float %a, %b\n  %s = fadd float %p, %c\n"
        "  %t = fadd float %s, %a\n  %u = fsub float %t, %c\n  ret float %u\n}\n"
    )
    names = [line.split()[0] for line in instructions(form(text), by_name("avx2"))]
    assert names == ["vmulss", "vaddss", "vaddss", "vsubss", "retq"]


def test_functions_of_a_long_module_call_each_other() -> None:
    e = Emitter()
    with e.loop(e.begin, e.end) as loop:
        e.store(e.const(1.0, "float"), e.gep(e.argument(0), loop.index, "float"), 4)
    symbol, text = e.finish("ones")
    inner = text.replace("define void", "define internal void").replace(") #0 {", ") noinline #0 {")
    caller = (
        "define void @twice(ptr %args, i64 %begin, i64 %end, ptr %scratch) {\n"
        f"  call void @{symbol}(ptr %args, i64 0, i64 %begin, ptr null)\n"
        f"  call void @{symbol}(ptr %args, i64 %begin, i64 %end, ptr null)\n  ret void\n}}\n"
    )
    assert undefined_symbols(emit_object(as_long(inner + caller), host())) == []


def test_a_short_loop_of_two_rounds_in_a_short_kernel_becomes_none() -> None:
    e = Emitter()
    x, y = e.argument(0), e.argument(1)
    with e.loop(e.begin, e.end) as row, e.loop(0, 12) as block, e.loop(0, 32, 16) as byte:
        source = e.add(e.add(e.mul(row.index, 32), e.mul(block.index, 1024)), byte.index)
        to = e.add(e.add(e.mul(row.index, 384), e.mul(block.index, 32)), byte.index)
        e.store(e.load(e.gep(x, source, "i8"), "<16 x i8>", 1), e.gep(y, to, "i8"), 1)
    jumps = [line for line in instructions(e.finish("rows")[1], by_name("avx2")) if line.startswith("\tj")]
    assert len(jumps) == 3  # around all, and back in two loops


def test_text_that_does_not_parse_is_an_internal_error_that_shows_it() -> None:
    with pytest.raises(InternalError, match=r"(?s)result type 'void'.*ret i32 1"):
        emit_object("define void @f() { ret i32 1 }", host())


def test_text_that_does_not_verify_is_an_internal_error() -> None:
    text = "define i32 @f() {\nentry:\n  br label %b\nb:\n  %x = add i32 %y, 1\n  %y = add i32 %x, 1\n  ret i32 %y\n}"
    with pytest.raises(InternalError, match="dominate"):
        emit_object(text, host())


def test_a_call_that_the_loader_could_not_resolve_is_refused_by_name() -> None:
    with pytest.raises(InternalError, match="calls launch_missiles"):
        emit_object("declare void @launch_missiles()\ndefine void @f() { call void @launch_missiles()\nret void }", host())


def test_a_copy_that_llvm_recognises_may_call_memcpy() -> None:
    text = (
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
        "define void @f(ptr %a, ptr %b, i64 %n) { call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 %n, i1 false)\nret void }"
    )
    assert undefined_symbols(emit_object(text, host())) == ["memcpy"]


def test_threads_may_compile_at_the_same_time_and_get_what_one_thread_gets() -> None:
    texts = [square_kernel(4, float(i))[1] for i in range(12)]
    alone = [emit_object(text, host()) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda text: emit_object(text, host()), texts))
    assert together == alone


@pytest.mark.parametrize("name", ["avx512,+avx512vnni", "znver4", "avx2,+avxvnni"])
def test_products_of_words_stay_one_instruction_in_a_chain(name: str) -> None:
    target, e = by_name(name), Emitter()
    type_ = vector_type("i32", target.lanes)
    total = e.load(e.argument(0), type_, 4)
    for number in range(8):
        at = number * target.lanes
        a, b = (e.load(e.gep(e.argument(side), at, "i32"), type_, 4) for side in (1, 2))
        total = add_word_pairs(e, target, total, a, b)
    e.store(total, e.argument(0), 4)
    assembly = emit_assembly(e.finish("words")[1], target)
    assert (assembly.count("vpdpwssd"), assembly.count("vpmaddwd")) == (8, 0)
