"""Files on the command line -> the arrays a model is fed with; and random arrays where there are no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import difflib
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from anycann.om.plan import TensorSpec
from anycann.support.errors import UsageError
from anycann.te.dtypes import BY_NAME
from anycann.tools.atc_shapes import Shape
from anycann.tools.images import SUFFIXES, ImageOptions, load_image

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def load_feeds(
    words: Sequence[str], specs: Sequence[TensorSpec], options: ImageOptions, shapes: Mapping[str, Shape], dtype: str
) -> dict[str, Array]:
    """The values of `--input`: `path` for the next input in order, `name=path` for one of that name, `.npz` for several by name.

    `shapes` and `dtype` say how a raw `.bin` is read, where they differ from the model's. Raises UsageError for an unknown name, an input
    without a value or with two, and files that do not fit.
    """
    by_name = {spec.name: spec for spec in specs}
    feeds: dict[str, Array] = {}
    for word in words:
        for name, array in _arrays_of(word, by_name, feeds, options, shapes, dtype).items():
            if name in feeds:
                raise UsageError(f"input {name} is given twice")
            feeds[name] = array
    missing = [name for name in by_name if name not in feeds]
    if missing:
        raise UsageError(f"inputs without a value: {', '.join(missing)}; give each with --input name=path")
    return feeds


def _arrays_of(
    word: str,
    by_name: Mapping[str, TensorSpec],
    feeds: Mapping[str, Array],
    options: ImageOptions,
    shapes: Mapping[str, Shape],
    dtype: str,
) -> dict[str, Array]:
    """What one `--input` adds."""
    name, equals, path = word.rpartition("=")
    if Path(word).exists() or not equals:
        name, path = "", word
    if path.endswith(".npz") and not name:
        return {key: array for key, array in _load_npz(path).items() if _checked(key, by_name)}
    if not name:
        free = [known for known in by_name if known not in feeds]
        if not free:
            raise UsageError(f"--input {path}: the model has only {len(by_name)} inputs")
        name = free[0]
    return {name: _load(path, _with_shape(_checked(name, by_name), shapes, dtype), options)}


def _checked(name: str, by_name: Mapping[str, TensorSpec]) -> TensorSpec:
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=1)
        hint = f"did you mean {near[0]}?" if near else f"its inputs: {', '.join(by_name)}"
        raise UsageError(f"the model has no input {name}; {hint}")
    return by_name[name]


def _with_shape(spec: TensorSpec, shapes: Mapping[str, Shape], dtype: str) -> TensorSpec:
    shape = tuple(size for size in shapes[spec.name] if isinstance(size, int)) if spec.name in shapes else spec.shape
    return TensorSpec(spec.name, dtype or spec.dtype, tuple(None if size == -1 else size for size in shape))


def _load(path: str, spec: TensorSpec, options: ImageOptions) -> Array:
    suffix = Path(path).suffix.lower()
    if suffix in SUFFIXES:
        return load_image(path, spec, options)
    try:
        if suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        if suffix == ".txt":
            return _shaped(np.loadtxt(path, dtype=np.dtype(spec.dtype), ndmin=1).reshape(-1), spec, path)
        if suffix == ".bin":
            return _shaped(np.fromfile(path, dtype=np.dtype(spec.dtype)), spec, path)
    except (OSError, ValueError) as error:
        raise UsageError(f"input {spec.name}: {path} can not be read: {error}") from None
    raise UsageError(f"input {spec.name}: {path} is of no known kind; accepted: .npy, .npz, .bin, .txt and images ({', '.join(SUFFIXES)})")


def _load_npz(path: str) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can not be read: {error}") from None


def _shaped(flat: Array, spec: TensorSpec, path: str) -> Array:
    """Raw elements in the shape of the input, of which one size may be open."""
    sizes = [size if isinstance(size, int) else -1 for size in spec.shape]
    known = int(np.prod([size for size in sizes if size >= 0], dtype=np.int64))
    if sizes.count(-1) > 1:
        raise UsageError(f"input {spec.name} has shape {list(spec.shape)}: say with --shape what {path} holds")
    fits = flat.size % known == 0 if sizes.count(-1) and known else flat.size == known
    if not fits:
        raise UsageError(
            f"input {spec.name}: {path} holds {flat.size} elements of {spec.dtype}, the shape {list(spec.shape)} needs {known}"
        )
    return flat.reshape(sizes)


def random_feeds(specs: Sequence[TensorSpec], shapes: Mapping[str, Shape], seed: int = 0) -> dict[str, Array]:
    """An array for each input: floats uniform in [0, 1), integers and booleans 0 or 1 (valid as an index of most tables).

    An open leading size is one; any other open size must be in `shapes`. Raises UsageError otherwise.
    """
    generator = np.random.default_rng(seed)
    for name in shapes:
        _checked(name, {spec.name: spec for spec in specs})
    return {spec.name: _random(_with_shape(spec, shapes, ""), generator) for spec in specs}


def _random(spec: TensorSpec, generator: np.random.Generator) -> Array:
    sizes = [1 if axis == 0 and not isinstance(size, int) else size for axis, size in enumerate(spec.shape)]
    if not all(isinstance(size, int) for size in sizes):
        raise UsageError(f'input {spec.name} has open sizes {list(spec.shape)}: give them with --shape "{spec.name}:1,..."')
    if spec.dtype not in BY_NAME:
        raise UsageError(f"input {spec.name} is of type {spec.dtype}: give its value with --input")
    dtype = BY_NAME[spec.dtype]
    shape = [int(size) for size in sizes if size is not None]
    values = generator.random(shape) if dtype.is_float else generator.integers(0, 2, shape)
    return values.astype(dtype.numpy)
