"""What runs of a model take: the gear, the shapes and the settings of a dynamic AIPP that were chosen for it."""

from __future__ import annotations

import numpy as np

from anycann.acl.dynamic_aipp import DynamicAipp
from anycann.acl.input_aipp import check_pictures, made_shape
from anycann.acl.model_tensors import sizes_of
from anycann.acl.models import Model
from anycann.runtime.executor import CompiledProgram
from anycann.tools.ais_bench.aipp import read_aipp
from anycann.tools.ais_bench.tensors import CallError, TensorDescription, description, raises_call_error


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """ "data:1,600;info:1,2" as {"data": (1, 600), ...}. Raises CallError."""
    try:
        pairs = [part.rpartition(":") for part in text.split(";") if part.strip()]
        return {name.strip(): tuple(int(size) for size in sizes.split(",")) for name, _, sizes in pairs}
    except ValueError:
        raise CallError(f"shapes are {text!r}; accepted: 'name:1,3,224,224;other:1,10'") from None


class ShapedModel:
    """A model, and what was chosen for its next runs."""

    def __init__(self, model: Model):
        self.model = model
        self._gear: int | None = None
        self._shapes: list[tuple[int, ...]] | None = None
        self._aipp: dict[int, DynamicAipp] = {}

    # ---- what it takes and gives
    def get_inputs(self) -> list[TensorDescription]:
        """Its inputs, without the one that chooses a gear; with the shapes that are set."""
        own = self.model.own_inputs
        shapes = list(self._set_shapes() or [tensor.dims for tensor in own])
        for number in self.model.dynamic_aipp:
            shapes[number] = self._picture_shape(number) if number in self._aipp else own[number].dims
        return [description(t.name, t.dtype, t.format, list(shape)) for t, shape in zip(own, shapes, strict=True)]

    def get_outputs(self) -> list[TensorDescription]:
        """Its outputs."""
        shapes = [tensor.dims for tensor in self.model.outputs]
        if self._gear is not None:
            shapes = [sizes_of(spec.shape) for spec in self.model.gears[self._gear].outputs]
        return [description(t.name, t.dtype, t.format, list(shape)) for t, shape in zip(self.model.outputs, shapes, strict=True)]

    def _set_shapes(self) -> list[tuple[int, ...]] | None:
        if self._gear is not None:
            return [sizes_of(spec.shape) for spec in self.model.gears[self._gear].inputs]
        return self._shapes

    # ---- choosing shapes
    def set_staticbatch(self) -> None:
        """Shapes are those of the model. Raises CallError for a model that needs a choice; the run would fail otherwise."""
        if self.model.gears:
            raise CallError(f"{self.model.where} has gears; choose one: {self.model.gear_words}")
        self._shapes = None

    @raises_call_error
    def set_dynamic_batchsize(self, batch: int) -> None:
        """Choose the gear with that batch."""
        self._gear = self.model.find_gear("batch", (int(batch),))

    @raises_call_error
    def set_dynamic_hw(self, height: int, width: int) -> None:
        """Choose the gear with images of that size."""
        self._gear = self.model.find_gear("hw", (int(height), int(width)))

    @raises_call_error
    def set_dynamic_dims(self, shapes: str) -> None:
        """Choose the gear with these shapes of all inputs: "data:1,600;info:1,2"."""
        wanted = self._by_name(shapes)
        declared = [size for shape in self.model.declared for size in shape]
        sizes = [size for shape in wanted for size in shape]
        self._gear = self.model.find_gear("dims", tuple(size for size, fixed in zip(sizes, declared, strict=True) if fixed == -1))

    def set_dynamic_shape(self, shapes: str) -> None:
        """The inputs of the next runs have these shapes."""
        self._shapes = self._by_name(shapes)

    @raises_call_error
    def set_aipp(self, path: str) -> None:
        """The settings of the dynamic AIPP, from a file of --aipp-config, for the shapes that are set. Raises CallError."""
        if not self.model.dynamic_aipp:
            raise CallError(f"{self.model.where} has no dynamic AIPP; atc makes one of --insert_op_conf with aipp_mode: dynamic")
        given = {number: read_aipp(path, self._most_pictures(number)) for number in self.model.dynamic_aipp}
        for number, each in given.items():
            check_pictures(each, self.model, number)
        self._aipp = given

    def _most_pictures(self, number: int) -> int:
        """How many pictures input `number` takes, in the largest gear. Raises CallError where nothing says it."""
        most = self.model.most_pictures(number) or self._batch(number)
        if most < 0:
            raise CallError(f"the batch of input {self.model.own_inputs[number].name!r} is open; set_dynamic_shape (--dymShape) sets it")
        return most

    def _batch(self, number: int) -> int:
        """How many pictures input `number` takes with the shapes that are set; -1 where none are."""
        shapes = self._shapes or self.model.declared if self._gear is None else self.model.gears[self._gear].shapes
        return shapes[number][self.model.dynamic_aipp[number].axes[0]]

    def _picture_shape(self, number: int) -> tuple[int, int]:
        """Pictures, and bytes of each."""
        aipp, batch = self._aipp[number], self._batch(number)
        return aipp.batch if batch < 0 else batch, aipp.picture_bytes()

    def shape_behind(self, number: int, feed: np.ndarray) -> tuple[int, ...]:
        """What the model itself takes of a feed: that of what its settings make of pictures. Raises AclError as the settings do."""
        aipp = self._aipp.get(number)
        return feed.shape if aipp is None else made_shape(self.model, number, aipp, feed.nbytes // aipp.picture_bytes())

    def _program(self) -> CompiledProgram:
        """What runs with what is chosen."""
        return self.model.executable(self._gear, None if self._gear is not None else self._shapes)

    def _by_name(self, text: str) -> list[tuple[int, ...]]:
        given = parse_shapes(text)
        own = self.model.own_inputs
        names = [tensor.name for tensor in own]
        given |= {t.name: () for t in own if not t.dims and given.get(t.name) == (1,)}  # a shape in text has a size at least
        if sorted(given) != sorted(names) or any(len(given[t.name]) != len(t.dims) for t in own):
            raise CallError(f"shapes are {text!r}; accepted: one for each of {', '.join(f'{t.name} {list(t.dims)}' for t in own)}")
        return [given[name] for name in names]
