"""Attention between the parts of an open program: one kernel for any number of rows and keys, and the nodes it stands for elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anycann.codegen.kernels.open_attention import ROWS_AT_ONCE, SIZES, OpenAttention, Size, length
from anycann.runtime.dispatch import Row, split
from anycann.runtime.fork_join import LETS_SLEEP_BIT
from anycann.runtime.kernel_call import KernelCall
from anycann.runtime.open_program import HostNode
from anycann.runtime.thread_pool import ThreadPool

if TYPE_CHECKING:
    from typing import TypeGuard

PART_ROWS = 32  # of a task at most
UNIT_FLOPS, WAKE_FLOPS = 200_000, 4_000_000  # of what is worth sharing with another thread, and with one that sleeps: some 5 and 100 us
FLOAT = np.dtype(np.float32)

Array: TypeAlias = NDArray[Any]


class AttentionNodes:
    """A kernel, where it fits, and else the nodes it stands for, the last of which gives the result. Safe in any thread.

    inputs: what the operands are called: those of the kernel, then what else the nodes read.
    """

    def __init__(self, kernel: AttentionKernel, nodes: Sequence[HostNode], inputs: Sequence[str]):
        self.kernel, self._nodes, self._inputs = kernel, nodes, inputs

    def __call__(self, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]:
        """The result. Raises AnyCANNError where a node refuses its operands."""
        found = self.kernel.run(inputs)
        if found is not None:
            return (found,)
        values: dict[str, object] = {"": None, **dict(zip(self._inputs, inputs, strict=True))}
        for node in self._nodes:
            values.update(zip(node.outputs, node.evaluate([values[name] for name in node.inputs]), strict=True))
        return (values[self._nodes[-1].outputs[0]],)


class AttentionKernel:
    """softmax(scale * query @ key + mask) @ value by the kernel at `address`. Safe in any thread. keep: whose code it is.

    Operands are float32: query [.., rows, depth], key [.., depth, keys], value [.., keys, width], and a mask that is stretched to the
    scores, but for keys; up to two axes lead, also stretched. turned: the key comes as [.., keys, depth].
    """

    def __init__(self, what: OpenAttention, turned: bool, address: int, lanes: int, pool: ThreadPool, keep: object):
        self.what, self.turned, self.lanes, self.pool = what, turned, lanes, pool
        self._address, self._keep = address, keep
        self._idle: list[KernelCall] = []  # append and pop are atomic

    def new_call(self) -> KernelCall:
        """A call of the kernel, to be prepared with its arrays in the order of `Argument`, from QUERY on, and all SIZES."""
        return KernelCall(self._address, 5 if self.what.masked else 4, SIZES)

    def run(self, operands: Sequence[object]) -> Array | None:
        """[.., rows, width], of which the heads lie side by side; None for operands that the kernel does not take."""
        what = self.what
        arrays = [array for array in operands[: 4 if what.masked else 3] if _is_taken(array)]
        if len(arrays) != (4 if what.masked else 3):
            return None
        if not self.turned:
            arrays[1] = arrays[1].swapaxes(-1, -2)
        rank = max(array.ndim for array in arrays[:3])
        arrays = [_side_by_side(array) for array in arrays]
        (q_batches, q_heads, rows, depth), (k_batches, k_heads, keys, key_depth), (v_batches, v_heads, values, width) = shapes = [
            _padded(array.shape) for array in arrays[:3]
        ]
        if (depth, key_depth, width, values) != (what.depth, what.depth, what.width, keys):
            return None
        batches, heads = max(q_batches, k_batches, v_batches), max(q_heads, k_heads, v_heads)
        if not (batches and heads and rows and keys):
            return None
        counts = [(batches, heads, rows), (batches, heads, keys), (batches, heads, keys)]
        if what.masked:
            shapes.append(_padded(arrays[3].shape))
            counts.append((batches, heads, rows))
            if shapes[3][3] != keys or arrays[3].ndim > max(arrays[0].ndim, arrays[1].ndim):
                return None
        steps = [_steps(array.strides, shape, count) for array, shape, count in zip(arrays, shapes, counts, strict=True)]
        if None in steps:
            return None
        result = np.empty((batches, rows, heads, width), FLOAT).transpose(0, 2, 1, 3)
        arrays.insert(3, result)
        steps.insert(3, result.strides[:3])
        parts = -(-rows // PART_ROWS)
        part_rows = -(-rows // (parts * ROWS_AT_ONCE)) * ROWS_AT_ONCE
        numbers = [rows, keys, length(keys, self.lanes), heads, parts, part_rows]
        for each in steps:
            numbers += each or ()
        numbers += [0] * (SIZES - len(numbers))
        try:
            call = self._idle.pop()
        except IndexError:
            call = self.new_call()
        call.reserve(scratch_bytes(numbers[Size.LENGTH]), self.pool.threads)
        call.prepare(arrays, numbers, batches * heads * parts, kind_of(2 * batches * heads * rows * keys * (depth + width)))
        self.pool.call(call.block_address)
        self._idle.append(call)
        return result if rank == 4 else result[0] if rank == 3 else result[0, 0]


def scratch_bytes(length: int) -> int:
    """Of each thread, for rows of so many scores."""
    return FLOAT.itemsize * ROWS_AT_ONCE * length


def kind_of(flops: int) -> int:
    """Of the row of the dispatch table."""
    units = flops // UNIT_FLOPS
    return split(units) | (flops < WAKE_FLOPS) << LETS_SLEEP_BIT if units > 1 else Row.INLINE


def _is_taken(value: object) -> TypeGuard[Array]:
    """Whether an operand may be one of the kernel's."""
    return type(value) is np.ndarray and value.dtype == FLOAT and 2 <= value.ndim <= 4 and value.flags.aligned


def _side_by_side(array: Array) -> Array:
    """As it is or copied, so that numbers in a row lie side by side."""
    return array if array.strides[-1] == FLOAT.itemsize else np.ascontiguousarray(array)


def _padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of four axes."""
    return shape if len(shape) == 4 else (1, 1, *shape)[-4:]


def _steps(strides: tuple[int, ...], shape: tuple[int, ...], counts: tuple[int, int, int]) -> tuple[int, ...] | None:
    """Bytes along the axes in front of the last, 0 where there is one for all; None where they are not so many as `counts`, nor one."""
    found = strides[:3] if len(strides) == 4 else (0, 0, *strides[:-1])[-3:]
    if shape[:3] == counts:
        return found
    if any(size not in (1, count) for size, count in zip(shape, counts, strict=False)):
        return None
    return tuple(0 if size == 1 else step for size, step in zip(shape, found, strict=False))
