"""--aipp-config: the settings of a dynamic AIPP in a file of ais_bench, and pictures that become what a model takes."""

from __future__ import annotations

from collections.abc import Sequence
from configparser import ConfigParser, Error
from dataclasses import fields
import os

import numpy as np

from anycann.acl.dynamic_aipp import DynamicAipp
from anycann.om.plan import TensorSpec
from anycann.picture_input import Aipp
from anycann.tools.ais_bench.tensors import CallError

_SECTION = "aipp_op"
_SIZES = ("src_image_size_w", "src_image_size_h")
_NEEDED = ("input_format", *_SIZES)


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
    settings = {name: _value(path, name, text, defaults[name]) for name, text in given.items() if name != "aipp_mode"}
    empty = [name for name in _SIZES if not settings[name]]
    if empty:
        raise CallError(f"{path}: {empty[0]} is 0; accepted: the size of the pictures")
    return DynamicAipp(batch, settings, [{} for _ in range(batch)])


def _value(path: object, name: str, text: str, default: object) -> object:
    kind = type(default)
    try:
        return bool(int(text)) if kind is bool else kind(text) if kind in (int, float) else text
    except ValueError:
        raise CallError(f"{path}: {name} is {text!r}; accepted: {'0 or 1' if kind is bool else 'a number'}") from None


def as_fed(data: np.ndarray, wanted: Sequence[int], spec: TensorSpec) -> np.ndarray:
    """The pictures in `data`, of the bytes that are wanted, as a program takes them, which has room for more. Raises CallError."""
    flat, nbytes = np.ascontiguousarray(data).reshape(-1).view(np.uint8), wanted[0] * wanted[1]
    if flat.nbytes < nbytes:
        raise CallError(f"input {spec.name!r} has {flat.nbytes} bytes; {wanted[0]} pictures of {wanted[1]} bytes have {nbytes}")
    pictures = np.zeros(int(spec.shape[0] or 0), np.uint8)
    pictures[:nbytes] = flat[:nbytes]
    return pictures
