"""Random numbers, on the host: one generator for the process, where the reference seeds a new one for every node and run.

What has a seed of its own is left to the reference, which gives the same numbers in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
import os

import numpy as np
import onnx

from anycann.graph.registry import declare


@lru_cache(maxsize=1)
def _generator() -> np.random.Generator:
    """Its methods may be called in any thread. Made when it is asked for: numpy imports its random numbers then."""
    return np.random.Generator(np.random.SFC64())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_generator.cache_clear)  # a forked process would draw what its parent draws


def _normal(shape: Sequence[int], dtype: np.dtype, mean: float | None, scale: float | None, seed: float | None) -> tuple[np.ndarray]:
    _without(seed)
    made = _generator().standard_normal(tuple(shape), np.float64 if dtype == np.float64 else np.float32)
    made *= 1.0 if scale is None else scale
    made += mean or 0.0
    return (made.astype(dtype, copy=False),)


def _uniform(shape: Sequence[int], dtype: np.dtype, low: float | None, high: float | None, seed: float | None) -> tuple[np.ndarray]:
    _without(seed)
    low, high = low or 0.0, 1.0 if high is None else high
    made = _generator().random(tuple(shape), np.float64 if dtype == np.float64 else np.float32)
    made *= high - low
    made += low
    return (made.astype(dtype, copy=False),)


def _without(seed: float | None) -> None:
    """Raises ValueError for a seed; then the reference is asked."""
    if seed is not None and not np.isnan(seed):
        raise ValueError("numbers that are the same in every run")


def _type(dtype: int | None, like: np.ndarray | None = None) -> np.dtype:
    if like is not None and not dtype:
        return like.dtype
    return np.dtype(np.float32) if not dtype else onnx.helper.tensor_dtype_to_np_dtype(dtype)


def _normal_like(x: np.ndarray, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None) -> object:
    return _normal(x.shape, _type(dtype, x), mean, scale, seed)


def _uniform_like(x: np.ndarray, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None) -> object:
    return _uniform(x.shape, _type(dtype, x), low, high, seed)


def _normal_of(
    *, shape: Sequence[int], dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> object:
    return _normal(shape, _type(dtype), mean, scale, seed)


def _uniform_of(
    *, shape: Sequence[int], dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> object:
    return _uniform(shape, _type(dtype), low, high, seed)


declare("RandomNormalLike", host=_normal_like)
declare("RandomUniformLike", host=_uniform_like)
declare("RandomNormal", host=_normal_of)
declare("RandomUniform", host=_uniform_of)
