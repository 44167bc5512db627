"""IR text to object code: every target compiles, faults are reported with the text, code that cannot be loaded is refused."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_assembly, emit_object, undefined_symbols
from anycann.support.errors import InternalError
from anycann.target.target import by_name, host


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
