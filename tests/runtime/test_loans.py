"""Runs in memory that a caller lends: one at a time, of all programs that share it, and in the thread it is for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import threading

import numpy as np
from programs import Kernels, ProgramBuilder, spec
import pytest

from anycann.runtime import memory
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.launches import Loan
from anycann.runtime.thread_pool import ThreadPool

SHAPE = (3, 5)
A = np.arange(15, dtype=np.float32).reshape(SHAPE)


@pytest.fixture
def program(kernels: Kernels, two_threads: ThreadPool) -> CompiledProgram:
    """y = (a + a) * a, by way of the arena."""
    builder = ProgramBuilder([spec("a", SHAPE)], [spec("y", SHAPE)])
    builder.native(("fadd", "a", "a", spec("s", SHAPE)), ("fmul", "s", "a", spec("y", SHAPE)), kernels=kernels)
    return builder.compiled(kernels, two_threads)


def works_in(program: CompiledProgram, arena: memory.Bytes) -> bool:
    """Run it, and look whether that changed the memory."""
    arena[:] = 0xA5
    assert (program.run([A])[0] == 2 * A * A).all()
    return bool((arena != 0xA5).any())


def test_runs_work_in_what_was_lent_until_that_ends(program: CompiledProgram) -> None:
    arena = memory.allocate(program.program.arena_bytes)
    assert not works_in(program, arena)
    end = program.lend(Loan(arena))
    assert [works_in(program, arena) for _ in range(2)] == [True, True]
    end()
    assert not works_in(program, arena)


def test_a_run_that_begins_while_another_works_there_has_memory_of_its_own(program: CompiledProgram) -> None:
    arena = memory.allocate(program.program.arena_bytes)
    loan = Loan(arena)
    program.lend(loan)
    assert loan.take()  # as the run of another program does
    assert not works_in(program, arena)
    loan.give_back()
    assert works_in(program, arena)


def test_what_is_lent_to_one_thread_is_not_used_in_another(program: CompiledProgram) -> None:
    """Who lends it for a run may give it back right after that: no other may be there."""
    arena = memory.allocate(program.program.arena_bytes)
    end = program.lend(Loan(arena, threading.get_ident()))
    with ThreadPoolExecutor(1) as other:
        assert not other.submit(works_in, program, arena).result()
    assert works_in(program, arena)
    end()
