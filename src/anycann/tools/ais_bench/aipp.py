"""--aipp-config: the settings of a dynamic AIPP in a file of ais_bench, and pictures that become what a model takes."""

from __future__ import annotations

from configparser import ConfigParser, Error
from dataclasses import fields
import os

import numpy as np

from anycann.acl.data_buffers import DataBuffer
from anycann.acl.dynamic_aipp import DynamicAipp
from anycann.acl.input_aipp import convert_in_front, picture_sizes
from anycann.acl.models import Model
from anycann.om.plan import TensorSpec
from anycann.picture_input import Aipp
from anycann.runtime import memory
from anycann.tools.ais_bench.tensors import CallError

_SECTION = "aipp_op"
_NEEDED = ("input_format", "src_image_size_w", "src_image_size_h")


def read_aipp(path: str | os.PathLike[str], batch: int) -> DynamicAipp:
    """The settings in `path`, the same for each picture of the batch. Raises CallError.

    A section [aipp_op] with lines `name : value`, by the names of atc's --insert_op_conf; switches are 0 or 1.
    """
    parser = ConfigParser(strict=False, interpolation=None)
    try:
        found = parser.read(path, "utf-8")
    except (Error, UnicodeDecodeError) as error:
        raise CallError(f"{path}: {error}") from error
    if not found or parser.sections() != [_SECTION]:
        raise CallError(f"{path} has the sections {parser.sections()}; accepted: a file with one section [{_SECTION}]")
    defaults = {field.name: field.default for field in fields(Aipp)}
    given = dict(parser[_SECTION])
    missing, unknown = [name for name in _NEEDED if name not in given], [name for name in given if name not in defaults]
    if missing or unknown:
        raise CallError(f"{path} lacks {', '.join(missing) or 'nothing'} and has unknown fields: {', '.join(unknown) or 'none'}")
    return DynamicAipp(batch, {name: _value(path, name, text, defaults[name]) for name, text in given.items()}, [{} for _ in range(batch)])


def _value(path: object, name: str, text: str, default: object) -> object:
    kind = type(default)
    try:
        return bool(int(text)) if kind is bool else kind(text) if kind in (int, float) else text
    except ValueError:
        raise CallError(f"{path}: {name} is {text!r}; accepted: {'0 or 1' if kind is bool else 'a number'}") from None


def shape_of_pictures(model: Model, number: int, spec: TensorSpec, settings: DynamicAipp) -> tuple[int, int]:
    """How many pictures input `number` then takes, and bytes of each. Raises as the settings do."""
    sizes = picture_sizes(model, number, spec.shape)
    return settings.batch, settings.table(sizes)[1] // settings.batch


def converted(model: Model, number: int, spec: TensorSpec, settings: DynamicAipp | None, data: np.ndarray) -> np.ndarray:
    """What the program of the model takes for the pictures in `data`, which may be fewer than there is room for. Raises AclError."""
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    buffer = DataBuffer(memory.address(flat), flat.nbytes)
    if number not in model.converting:
        return convert_in_front(model, number, settings, buffer, tuple(int(size or 0) for size in spec.shape), spec.dtype)
    nbytes = 0 if settings is None else settings.table(picture_sizes(model, number, spec.shape))[1]
    pictures = np.zeros(int(spec.shape[0] or 0), np.uint8)
    pictures[:nbytes] = buffer.array(np.dtype(np.uint8), (nbytes,))
    return pictures
