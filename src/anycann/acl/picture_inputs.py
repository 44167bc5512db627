"""acl.mdl: inputs whose pictures a dynamic AIPP converts inside the model, and what atc says of them in an offline model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.om.plan import TensorSpec
from anycann.support.errors import UsageError
from anycann.support.records import dataclass


@dataclass(frozen=True)
class PictureInput:
    """An input of pictures of at most `max_src_image_size` bytes, the inputs behind the model's own that it needs, and what is made of it.

    table: the input for the settings. frame: the one, without bytes, whose shape is [0, height, width] where gears or runs decide them,
    else "". channels, height, width, input_format: what the model itself takes; a height or width of -1 is the frame's.
    """

    max_src_image_size: int
    input_format: str
    table: str
    frame: str
    channels: int
    height: int
    width: int

    @property
    def axes(self) -> tuple[int, ...]:
        """Where N, C, H and W are."""
        return tuple(self.input_format.index(letter) for letter in "NCHW")

    def sizes(self, specs: Sequence[TensorSpec]) -> tuple[Any, Any, Any, Any]:
        """The batch, channels, height and width that are made where a program takes `specs`; what is open is no int."""
        shapes = {spec.name: spec.shape for spec in specs}
        height, width = shapes[self.frame][1:] if self.frame else (self.height, self.width)
        return shapes[self.table][0], self.channels, height, width

    def shape(self, specs: Sequence[TensorSpec]) -> tuple[int, ...]:
        """What the model itself takes then, in its own layout; open sizes are -1."""
        found = dict(zip(self.axes, self.sizes(specs), strict=True))
        return tuple(found[axis] if isinstance(found[axis], int) else -1 for axis in range(4))

    def further(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The first sizes of the further inputs for a model that itself takes `shape`. Raises AclError for other channels."""
        batch, channels, height, width = (shape[axis] for axis in self.axes)
        if channels != self.channels:
            raise AclError(Code.GE_SHAPE_INVALID, f"the shape {list(shape)} has {channels} channels; the model takes {self.channels}")
        return {self.table: (batch,), **({self.frame: (0, height, width)} if self.frame else {})}


def picture_inputs(metadata: Mapping[str, object], where: str) -> dict[str, PictureInput]:
    """Those of an offline model, by name. Raises UsageError for a file of an earlier AnyCANN, whose programs read other settings."""
    known = metadata.get("dynamic_aipp", {})
    found = known if isinstance(known, dict) else {}
    names = {field.name for field in fields(PictureInput)}
    if any(set(each) != names for each in found.values()):
        raise UsageError(f"{where} has a dynamic AIPP as earlier versions of AnyCANN made it; convert the model again with atc")
    return {name: PictureInput(**each) for name, each in found.items()}
