"""Memory of results is used again, and never while anybody can still see it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import gc

import ml_dtypes
import numpy as np
import onnx
import pytest

from anycann import InferenceSession
from anycann.runtime.recycling import MOST_IDLE, Recycler


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16])
def test_a_block_comes_back_when_its_last_array_is_gone(dtype: type) -> None:
    size = (1 << 20) // np.dtype(dtype).itemsize
    recycler = Recycler(1 << 20)
    array = recycler.empty((4, size // 4), np.dtype(dtype))
    where = array.ctypes.data
    assert (array.dtype, where % 64, array.flags.writeable) == (np.dtype(dtype), 0, True)
    part = array[1:, ::2].T
    del array
    gc.collect()
    other = recycler.empty((size,), np.dtype(dtype))
    assert not np.shares_memory(other, part)
    del part
    assert recycler.empty((size,), np.dtype(dtype)).ctypes.data == where


def test_no_more_blocks_are_kept_than_are_used_soon() -> None:
    recycler = Recycler(1 << 17)
    arrays = [recycler.empty((1 << 17,), np.dtype(np.uint8)) for _ in range(MOST_IDLE + 3)]
    arrays.clear()
    assert len(recycler._idle) == MOST_IDLE
    assert not recycler._watched


def test_results_that_are_kept_stay_as_they_are() -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20]> g (float[N] x) => (float[N] y) { y = Neg(x) }')
    session = InferenceSession(model)
    x = np.arange(1 << 16, dtype=np.float32)

    def runs(first: int) -> bool:
        kept: dict[int, np.ndarray] = {}
        for number in range(first, first + 40):
            (kept[number % 3],) = session.run(None, {"x": x + number})
            views = [array[1:] for array in kept.values()]
            kept[number % 3] = kept[number % 3].reshape(2, -1)
            if any((view.ravel()[-1] > -x[-1] - first) for view in views):
                return False
        return all((array.ravel() == -(x + number)).all() for number, array in ((n, kept[n % 3]) for n in range(first + 37, first + 40)))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(runs, [0, 100, 200, 300]))
