"""A loaded offline model as AscendCL sees it: its inputs and outputs, the extra input that chooses a gear, and one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
import math
from typing import Any, ClassVar

import numpy as np

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.acl.media_memory import device_bytes
from anycann.acl.model_tensors import Gear, Tensor, bytes_of, dtype_of, sizes_of
from anycann.acl.picture_inputs import PictureInput, picture_inputs
from anycann.model_programs import ModelPrograms, SessionOptions
from anycann.om.model import OfflineModel
from anycann.om.plan import NativeStep, TensorSpec
from anycann.om.reader import read_offline_model
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.memory import address
from anycann.support.errors import UsageError

GEAR_INPUT = "ascend_mbatch_shape_data"  # the input that says which gear a run takes
AIPP_CHANNELS = {"YUV420SP_U8": 3, "RGB888_U8": 3, "XRGB8888_U8": 4, "YUV400_U8": 1}
AIPP_INPUT = "ascend_dynamic_aipp_data"  # the input that takes the settings of a dynamic AIPP
_AIPP_HEAD, _AIPP_PICTURE = 64, 96  # bytes of the settings, of those for each picture
_GEAR_OPTIONS = {"dynamic_batch_size": "batch", "dynamic_image_size": "hw", "dynamic_dims": "dims"}


class Model:
    """An offline model, ready to run. `where` is its file, for messages."""

    acl_word: ClassVar[str] = "model"

    def __init__(self, source: str | bytes, num_threads: int = 0):
        self.source = source if isinstance(source, str) else None
        self.where = self.source or "the model in memory"
        self.offline: OfflineModel = read_offline_model(source)
        self._picture_inputs = picture_inputs(self.offline.metadata, self.where)
        self._programs = ModelPrograms(source, SessionOptions(), num_threads)
        self._brought: tuple[tuple[str, np.ndarray], ...] = ()
        self._executables: dict[int | None, CompiledProgram] = {}
        self.last_gear: int | None = None  # the one chosen last, for acl.mdl.get_cur_output_dims

    def use_memory(self, work: np.ndarray | None, weights: np.ndarray | None) -> None:
        """Run in memory of the caller's, and take the weights there; before the first run."""
        self._programs.use_memory(work, weights)
        self._brought = tuple((role, own) for role, own in (("the work memory", work), ("the weight memory", weights)) if own is not None)

    def check_memory(self) -> None:
        """Raises AclError where memory of the caller's is gone."""
        for role, own in self._brought:
            device_bytes(address(own), own.nbytes, role)

    # ---- what it is
    @property
    def soc_version(self) -> str:
        """The chip it was compiled for; "host" for none."""
        return str(self.offline.metadata["soc_version"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.offline.metadata["name"])

    @property
    def arguments(self) -> dict[str, str]:
        """The options it was compiled with."""
        given = self.offline.metadata["atc_arguments"]
        return {str(key): str(value) for key, value in given.items()} if isinstance(given, dict) else {}

    @cached_property
    def gear_kind(self) -> str:
        """ "batch", "hw" or "dims" for a model with gears, else ""."""
        if not self.gears:
            return ""
        return next((kind for option, kind in _GEAR_OPTIONS.items() if self.arguments.get(option)), "dims")

    @cached_property
    def gears(self) -> tuple[Gear, ...]:
        """The sets of shapes it was compiled for, in the order they were asked for; empty for a model with one shape, or open shapes."""
        listed = self.offline.metadata["gears"]
        keys = [str(gear["key"]) for gear in listed] if isinstance(listed, list) else []
        return tuple(self._gear(key) for key in keys)

    def _gear(self, key: str) -> Gear:
        program = self.offline.programs[key]
        shapes = self._shapes_behind(program.inputs)
        declared = zip(self.declared, shapes, strict=True)
        open_sizes = [size for before, after in declared for fixed, size in zip(before, after, strict=True) if fixed < 0]
        option = next((kind for name, kind in _GEAR_OPTIONS.items() if self.arguments.get(name)), "dims")
        count, own = {"batch": 1, "hw": 2}.get(option, len(open_sizes)), len(self._own_specs)
        return Gear(tuple(open_sizes[:count]), program.inputs[:own], program.outputs, program.inputs[own:], shapes)

    @cached_property
    def declared(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of its own inputs, behind a dynamic AIPP; open sizes are -1."""
        return self._shapes_behind(self._programs.inputs)

    def _shapes_behind(self, specs: Sequence[TensorSpec]) -> tuple[tuple[int, ...], ...]:
        own = enumerate(specs[: len(self._own_specs)])
        return tuple(self.dynamic_aipp[n].shape(specs) if n in self.dynamic_aipp else sizes_of(spec.shape) for n, spec in own)

    @cached_property
    def ranges(self) -> dict[str, list[list[int]]]:
        """[least, most] of each size, -1 for no bound, of inputs for which atc was given ranges ("x:1~10,3")."""
        found = self.offline.metadata.get("input_ranges", {})
        return (
            {str(name): [[int(low), int(high)] for low, high in sizes] for name, sizes in found.items()} if isinstance(found, dict) else {}
        )

    def most_bytes_in_range(self, tensor: Tensor) -> int:
        """Bytes of an input of open shape with the largest sizes it may have; 0 if a size has no bound."""
        most = [high for _, high in self.ranges.get(tensor.name, [[1, -1]])]
        return 0 if -1 in most else math.prod(most) * dtype_of(tensor).itemsize

    @cached_property
    def largest_gear(self) -> int:
        """The number of the gear whose inputs have the most elements."""
        return max(range(len(self.gears)), key=lambda number: sum(math.prod(shape) for shape in self.gears[number].shapes))

    @cached_property
    def is_static(self) -> bool:
        """True if the size of every output is known before a run."""
        return all(tensor.most_bytes for tensor in self.outputs)

    @cached_property
    def work_bytes(self) -> int:
        """Memory that a run needs beside inputs and outputs."""
        return max((program.arena_bytes for program in self.offline.programs.values()), default=0)

    @cached_property
    def fused(self) -> dict[str, tuple[str, ...]]:
        """The nodes of each kernel that computes several, by its name: theirs, one behind the other."""
        steps = (step for program in self.offline.programs.values() for step in program.steps if isinstance(step, NativeStep))
        return {"".join(task.nodes): task.nodes for step in steps for task in step.tasks if len(task.nodes) > 1}

    @cached_property
    def weight_bytes(self) -> int:
        """Its constants."""
        return int(self.offline.constants.nbytes)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """Its inputs; behind them those for the settings of a dynamic AIPP, and the one that chooses a gear."""
        own = tuple(self._tensor(n, spec, [gear.inputs for gear in self.gears]) for n, spec in enumerate(self._own_specs))
        settings = tuple(self._aipp_settings(index) for index in self.dynamic_aipp)
        if not self.gears:
            return (*own, *settings)
        count = len(self.gears[0].sizes)
        return (*own, *settings, Tensor(GEAR_INPUT, "int32", (count,), 4 * count, types.ND))

    @property
    def own_inputs(self) -> tuple[Tensor, ...]:
        """Those that a program of AscendCL gives tensors for."""
        return self.inputs[: len(self._own_specs)]

    @cached_property
    def _own_specs(self) -> tuple[TensorSpec, ...]:
        """The inputs without those for settings of dynamic AIPPs, which are the last ones."""
        further = {name for each in self._picture_inputs.values() for name in (each.table, each.frame)}
        return tuple(spec for spec in self._programs.inputs if spec.name not in further)

    @cached_property
    def dynamic_aipp(self) -> Mapping[int, PictureInput]:
        """The inputs with a dynamic AIPP, by number."""
        known = self._picture_inputs
        return {number: known[spec.name] for number, spec in enumerate(self._own_specs) if spec.name in known}

    def aipp_index(self, index: int) -> int:
        """The number of the input with the settings for input `index`."""
        return len(self._own_specs) + list(self.dynamic_aipp).index(index)

    def most_pictures(self, index: int) -> int | None:
        """The batch of input `index`, which has a dynamic AIPP, in the largest gear; None if it is open."""
        programs = [(*gear.inputs, *gear.further) for gear in self.gears] or [self._programs.inputs]
        batch = max(self.dynamic_aipp[index].sizes(specs)[0] for specs in programs)
        return batch if isinstance(batch, int) else None

    def _aipp_settings(self, index: int) -> Tensor:
        in_range = self.ranges.get(self.dynamic_aipp[index].table, [[1, 1]])[0][1]
        nbytes = _AIPP_HEAD + _AIPP_PICTURE * (self.most_pictures(index) or max(in_range, 1))
        return Tensor(AIPP_INPUT, "uint8", (nbytes,), nbytes, types.ND)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """Its outputs."""
        return tuple(self._tensor(n, spec, [gear.outputs for gear in self.gears]) for n, spec in enumerate(self._static_outputs))

    @cached_property
    def _static_outputs(self) -> tuple[TensorSpec, ...]:
        """The declared outputs, with the shapes of the program where there is only one and it knows them."""
        programs, declared = list(self.offline.programs.values()), self._programs.outputs
        if len(programs) != 1 or self.gears:
            return declared
        return tuple(told if spec.dtype == "object" else spec for spec, told in zip(programs[0].outputs, declared, strict=True))

    @cached_property
    def aipp(self) -> Mapping[str, Mapping[str, Any]]:
        """The AIPP block of each input that has one, by name: its fields, and the picture's batch, rows and columns."""
        found = self.offline.metadata.get("aipp", {})
        return found if isinstance(found, dict) else {}

    def _tensor(self, number: int, spec: TensorSpec, gears: Sequence[Sequence[TensorSpec]]) -> Tensor:
        if spec in self._own_specs and number in self.dynamic_aipp:
            pictures = self.dynamic_aipp[number]
            sizes = (self.declared[number][pictures.axes[0]], -1, -1, -1)
            return Tensor(spec.name, "uint8", sizes, pictures.max_src_image_size, types.NHWC)
        block = self.aipp.get(spec.name)
        if block is not None and spec.dtype == "uint8":  # told as pixels, as Ascend does; the bytes are those of the source format
            sizes = (block["batch"], block["rows"], block["columns"], AIPP_CHANNELS[block["input_format"]])
            most = max((bytes_of(gear[number]) for gear in gears), default=bytes_of(spec))
            return Tensor(spec.name, spec.dtype, sizes, most, types.NHWC)
        dims = sizes_of(spec.shape)
        most = max((bytes_of(gear[number]) for gear in gears), default=bytes_of(spec))
        return Tensor(spec.name, spec.dtype, dims, most, self._format(spec.name, dims))

    def _format(self, name: str, dims: tuple[int, ...]) -> int:
        """What --input_format says of images (NHWC for TensorFlow if nothing), NC1HWC0 where it was asked for, ND of everything else."""
        adjusted = self.offline.metadata.get("hw_layout", [])
        if isinstance(adjusted, list) and name in adjusted:
            return types.NC1HWC0
        usual = "NHWC" if self.arguments.get("framework") == "3" else "NCHW"
        return types.format_number(self.arguments.get("input_format", usual)) if len(dims) == 4 else types.ND

    def shapes_of(self, index: int) -> Sequence[TensorSpec]:
        """Input `index` in each gear; as it is declared where there are none."""
        return [gear.inputs[index] for gear in self.gears] or [self._own_specs[index]]

    # ---- runs
    @cached_property
    def is_open(self) -> bool:
        """True if runs decide its shapes, not gears."""
        return not self.gears and any(-1 in shape for shape in self.declared)

    def specs(self, shapes: Sequence[tuple[int, ...]]) -> tuple[TensorSpec, ...]:
        """What its program takes where its own inputs have these shapes, behind a dynamic AIPP. Raises AclError for other channels."""
        chosen = dict(zip((spec.name for spec in self._own_specs), shapes, strict=True))
        for number, pictures in self.dynamic_aipp.items():
            del chosen[self._own_specs[number].name]
            chosen |= pictures.further(shapes[number])
        declared = ((spec, chosen.get(spec.name, ())) for spec in self._programs.inputs)
        return tuple(TensorSpec(spec.name, spec.dtype, (*sizes, *spec.shape[len(sizes) :])) for spec, sizes in declared)

    def check_ranges(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Raises AclError for a shape outside the range that atc was given for the input."""
        try:
            self._programs.check_ranges(self.specs(shapes))
        except UsageError as error:
            raise AclError(Code.GE_SHAPE_INVALID, str(error)) from error

    def executable(self, gear: int | None, shapes: Sequence[tuple[int, ...]] | None = None) -> CompiledProgram:
        """What runs a gear (None: the only program), or its own inputs of these shapes. Raises AclError where a choice is missing."""
        if shapes is None and gear in self._executables:
            return self._executables[gear]
        if shapes is not None:
            return self._programs.find(self.specs(shapes)).executable
        if self.gears:
            if gear is None:
                raise AclError(Code.GE_DYNAMIC_BATCH_SIZE_INVALID, f"{self.where} has gears and none was chosen; {self.gear_words}")
            specs = (*self.gears[gear].inputs, *self.gears[gear].further)
        else:
            specs = self._programs.inputs
            if any(not isinstance(size, int) for spec in specs for size in spec.shape):
                raise AclError(
                    Code.GE_PARAM_INVALID, f"{self.where} has open shapes; give them with acl.mdl.set_dataset_tensor_desc for every input"
                )
        self._executables[gear] = self._programs.find(specs).executable
        return self._executables[gear]

    @property
    def gear_words(self) -> str:
        """How a program chooses a gear."""
        call = {"batch": "set_dynamic_batch_size", "hw": "set_dynamic_hw_size", "dims": "set_input_dynamic_dims"}[self.gear_kind]
        return f"acl.mdl.{call} accepts {', '.join('x'.join(map(str, gear.sizes)) for gear in self.gears)}"

    def find_gear(self, kind: str, sizes: tuple[int, ...]) -> int:
        """The number of a gear. Raises AclError for a model without gears of that kind, and sizes that are no gear."""
        if self.gear_kind != kind:
            raise AclError(
                Code.MODEL_NOT_DYNAMIC, f"{self.where} was not compiled with gears of that kind ({self.gear_kind or 'it has none'})"
            )
        for number, gear in enumerate(self.gears):
            if gear.sizes == sizes:
                return number
        raise AclError(Code.GE_DYNAMIC_BATCH_SIZE_INVALID, f"{'x'.join(map(str, sizes))} is no gear of {self.where}; {self.gear_words}")
