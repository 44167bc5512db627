"""acl.mdl: running a model on datasets, at once or in a stream, and choosing its gear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.data_buffers import DataBuffer, Dataset, check_index
from anycann.acl.entries import status, value
from anycann.acl.errors import AclError, as_acl_error
from anycann.acl.input_aipp import made_shape, settings_feeds, settings_of
from anycann.acl.memory import take_device_memory
from anycann.acl.model_loading import MODELS
from anycann.acl.model_tensors import Tensor, dtype_of
from anycann.acl.models import Model
from anycann.acl.process import PROCESS, Context
from anycann.acl.runs import TENSOR_WATCHERS, WATCHERS, failure, run_program
from anycann.acl.tensor_descs import TensorDesc
from anycann.om.plan import TensorSpec
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.feeds import usable_directly
from anycann.runtime.memory import address
from anycann.support.errors import AnyCANNError, describe
from anycann.support.records import dataclass


@status("acl.mdl.execute")
def execute(model_id: int, inputs: int, outputs: int) -> None:
    """Run a model: reads the inputs where they lie, writes the outputs where they shall be."""
    _kept_run(model_id, inputs, outputs).again()


@status("acl.mdl.execute_async")
def execute_async(model_id: int, inputs: int, outputs: int, stream: int) -> None:
    """As execute, in order with the tasks of `stream`. The datasets must live until then; the gear is the one chosen now."""
    found = PROCESS.stream(stream)
    found.submit(prepare_run(MODELS.get(model_id), inputs, outputs))


_STREAM_TIME, _FOREVER = 0, -1
_TIMES, _WORK_MEMORY, _RESERVED = (_STREAM_TIME, 1), (2, 3), (4, 5, 6, 7)


@dataclass
class ExecConfig:
    """What acl.mdl.set_exec_config_opt collects."""

    acl_word: ClassVar[str] = "execution config handle"
    settings: dict[int, int] = field(default_factory=dict)


@value("acl.mdl.create_exec_config_handle", returns="handle")
def create_exec_config_handle() -> int:
    """An empty list of settings."""
    return PROCESS.handles.add(ExecConfig())


@status("acl.mdl.destroy_exec_config_handle")
def destroy_exec_config_handle(handle: int) -> None:
    """Forget the settings."""
    PROCESS.handles.remove(handle, ExecConfig)


@status("acl.mdl.set_exec_config_opt")
def set_exec_config_opt(handle: int, attribute: int, setting: int) -> None:
    """attribute: 0 and 1 how many milliseconds a run may wait for its stream, and for events, of which it has none; -1: for ever.

    2 and 3, work memory, are not supported, as Ascend documents; 4 to 7 are reserved.
    """
    found = PROCESS.handles.get(handle, ExecConfig)
    if attribute in _WORK_MEMORY:
        raise AclError(
            Code.FEATURE_UNSUPPORTED, f"attribute {attribute}: work memory of a run; bring it with acl.mdl.load_from_file_with_mem"
        )
    if attribute not in (*_TIMES, *_RESERVED):
        raise AclError(Code.INVALID_PARAM, f"attribute {attribute}; accepted: 0 (stream), 1 (events), 4 to 7 (reserved)")
    if attribute in _TIMES and setting <= 0 and setting != _FOREVER:
        raise AclError(Code.INVALID_PARAM, f"{setting} ms; accepted: -1 (for ever), or more than 0")
    found.settings[attribute] = setting


@status("acl.mdl.execute_v2")
def execute_v2(model_id: int, inputs: int, outputs: int, stream: int, handle: int) -> None:
    """As execute, after the tasks of `stream`, for as long as acl.mdl.set_exec_config_opt says: a run that takes longer goes on there."""
    config = PROCESS.handles.get(handle, ExecConfig) if handle else ExecConfig()
    found, run = PROCESS.stream(stream), prepare_run(MODELS.get(model_id), inputs, outputs)
    milliseconds = config.settings.get(_STREAM_TIME, _FOREVER)
    if milliseconds == _FOREVER:
        found.synchronize()
        run()
        return
    found.submit(run)
    if not found.synchronize(milliseconds / 1000):
        raise AclError(Code.RT_WAIT_TIMEOUT, f"the run was not done after {milliseconds} ms")
    error = found.take_error()
    if error is not None:
        raise as_acl_error(error)


# ---- one run
def prepare_run(model: Model, inputs: int, outputs: int) -> _Run:
    """Look at everything a run needs, and answer with what does it. Raises AclError."""
    model.check_memory()
    given, wanted = PROCESS.handles.get(inputs, Dataset), PROCESS.handles.get(outputs, Dataset)
    feeds, results = _buffers(given, model.inputs, "input", model), _buffers(wanted, model.outputs, "output", model)
    own = feeds[: len(model.own_inputs)]
    shapes = _shapes(model, given)
    try:
        program = model.executable(given.gear, shapes)
    except AclError:
        raise
    except AnyCANNError as error:
        raise AclError(Code.RT_MODEL_EXECUTE, describe(error)) from error
    run = _Run(program, model, own, results, wanted, PROCESS.context(), dict(given.settings))
    run.places = run.arrays()
    run.addresses = run.plain_addresses()
    return run


@dataclass
class _Run:
    """One run with everything looked up. Memory is looked at again when it comes to it, for it may be gone by then."""

    program: CompiledProgram
    model: Model
    feeds: Sequence[DataBuffer]
    results: Sequence[DataBuffer]
    outputs: Dataset
    context: Context
    settings: dict[int, object] = field(default_factory=dict)  # of dynamic AIPP, by input
    places: tuple[list[np.ndarray], list[np.ndarray | None]] = ([], [])
    addresses: tuple[list[int], list[int]] | None = None  # of the same, where kernels do all that there is to do

    def plain_addresses(self) -> tuple[list[int], list[int]] | None:
        """Where kernels read the inputs and write the outputs; None if anything has to be converted, copied or described."""
        feeds, places = self.places
        written = [place for place in places if place is not None]
        if not (self.model.is_static and self.program.takes_addresses) or len(written) < len(places):
            return None
        alone = all(usable_directly(place, [*feeds, *written[:n], *written[n + 1 :]]) for n, place in enumerate(written))
        if not alone or not all(feed.flags.c_contiguous and feed.flags.aligned for feed in feeds):
            return None
        return [address(feed) for feed in feeds], [address(place) for place in written]

    def again(self) -> None:
        """Run, neither memory nor settings having changed."""
        if self.addresses is None or WATCHERS or TENSOR_WATCHERS:
            return self.compute(*self.places)
        try:
            self.program.run_at(*self.addresses)
        except AnyCANNError as error:
            raise self._failure(error) from error

    def arrays(self) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """The inputs, and where the outputs go. Raises AclError for a data buffer that is too small, and for memory that is gone."""
        self.model.check_memory()
        plan = self.program.program
        own = zip(self.feeds, self.model.own_inputs, plan.inputs, strict=False)
        feeds = [buffer.array(dtype_of(tensor), spec.shape) for buffer, tensor, spec in own]  # type: ignore[arg-type]
        feeds += settings_feeds(self.model, self.settings, plan.inputs)
        triples = zip(self.results, self.model.outputs, plan.outputs, strict=True)
        return feeds, [_place(buffer, tensor, spec) for buffer, tensor, spec in triples]

    def _failure(self, error: AnyCANNError) -> AclError:
        return failure(error, self.model.where)

    def __call__(self) -> None:
        self.compute(*self.arrays())

    def compute(self, feeds: list[np.ndarray], places: list[np.ndarray | None]) -> None:
        """Run on arrays that were looked at."""
        try:
            values = run_program(self.program, feeds, places, self.model, self.model.name)
        except AnyCANNError as error:
            raise self._failure(error) from error
        if self.model.is_static and not any(place is None for place in places):
            return
        for number, (result, place) in enumerate(zip(values, places, strict=True)):
            tensor = self.model.outputs[number]
            if place is None:
                _hand_over(result, self.results[number], tensor, self.context)
            if not tensor.most_bytes and isinstance(result, np.ndarray):
                self.outputs.describe(number, TensorDesc(tensor.data_type, list(result.shape), tensor.format, tensor.name))


_RUNS: dict[tuple[int, int, int], tuple[object, _Run]] = {}  # looked up once for a loop that changes nothing but the data
_MOST_RUNS = 16
PROCESS.allocations.released.append(lambda gone: _RUNS.clear())  # their arrays keep memory


def _kept_run(model_id: int, inputs: int, outputs: int) -> _Run:
    """The run that was prepared for these, if no handle and no allocation has changed since; else it is prepared."""
    key, state = (model_id, inputs, outputs), (PROCESS.handles.version, PROCESS.allocations.version, PROCESS.thread.context)
    kept = _RUNS.get(key)
    if kept is not None and kept[0] == state:
        return kept[1]
    run = prepare_run(MODELS.get(model_id), inputs, outputs)
    if len(_RUNS) >= _MOST_RUNS:
        _RUNS.clear()
    _RUNS[key] = state, run
    return run


def _place(buffer: DataBuffer, tensor: Tensor, spec: TensorSpec) -> np.ndarray | None:
    """Where an output is written; None if its shape is known after the run only, or nobody said where it shall be."""
    if not buffer.address or spec.dtype == "object" or not all(isinstance(size, int) for size in spec.shape):
        return None
    return buffer.array(dtype_of(tensor), tuple(spec.shape))  # type: ignore[arg-type]


def _hand_over(result: object, buffer: DataBuffer, tensor: Tensor, context: Context) -> None:
    """Write an output whose shape the run told: into the caller's memory, or into new memory of the device, which the caller frees."""
    if not isinstance(result, np.ndarray) or result.dtype.hasobject:
        raise AclError(Code.UNSUPPORTED_DATA_TYPE, f"output {tensor.name!r} is a {type(result).__name__}; accepted: a tensor of numbers")
    if not buffer.address and result.nbytes:
        buffer.place(take_device_memory(result.nbytes, 0, "device", context.device, filled=True), result.nbytes)
    if result.nbytes > buffer.size:
        raise AclError(
            Code.GE_PARAM_INVALID, f"output {tensor.name!r} came to {result.dtype.name}{list(result.shape)}, {result.nbytes} bytes; "
            f"its data buffer has {buffer.size}"
        )  # fmt: skip
    buffer.array(result.dtype, result.shape)[...] = result


def _buffers(dataset: Dataset, tensors: Sequence[Tensor], role: str, model: Model) -> list[DataBuffer]:
    if len(dataset.buffers) != len(tensors):
        names = ", ".join(tensor.name for tensor in tensors)
        raise AclError(
            Code.GE_PARAM_INVALID,
            f"the {role} dataset has {len(dataset.buffers)} data buffers; {model.where} has {len(tensors)} {role}s: {names}",
        )
    return dataset.data()


def _shapes(model: Model, given: Dataset) -> list[tuple[int, ...]] | None:
    """The input shapes that tensor descriptions and settings of dynamic AIPPs give, for a model of open shapes; None where nothing does."""
    if not model.is_open or not (given.descs or model.dynamic_aipp):
        return None
    shapes = [_shape(model, number, given) for number in range(len(model.own_inputs))]
    if model.ranges:
        model.check_ranges(shapes)
    return shapes


def _shape(model: Model, number: int, given: Dataset) -> tuple[int, ...]:
    tensor, desc, accepted = model.own_inputs[number], given.descs.get(number), model.own_inputs[number].dims
    if number in model.dynamic_aipp:
        settings = settings_of(model, number, given.settings)
        shape, accepted = made_shape(model, number, settings, settings.batch), model.declared[number]
    else:
        shape = tuple(desc.dims) if desc is not None else accepted
    if len(shape) != len(accepted) or not all(d in (-1, s) and s >= 0 for d, s in zip(accepted, shape, strict=True)):
        raise AclError(Code.GE_SHAPE_INVALID, f"input {tensor.name!r} is given shape {list(shape)}; accepted: {list(accepted)}, -1 open")
    return shape


# ---- gears
@status("acl.mdl.set_dynamic_batch_size")
def set_dynamic_batch_size(model_id: int, dataset: int, index: int, batch: int) -> None:
    """The next runs of this dataset take that batch."""
    _choose(model_id, dataset, index, "batch", (batch,))


@status("acl.mdl.set_dynamic_hw_size")
def set_dynamic_hw_size(model_id: int, dataset: int, index: int, height: int, width: int) -> None:
    """The next runs of this dataset take images of that size."""
    _choose(model_id, dataset, index, "hw", (height, width))


@status("acl.mdl.set_input_dynamic_dims")
def set_input_dynamic_dims(model_id: int, dataset: int, index: int, dims: dict) -> None:  # type: ignore[type-arg]
    """The next runs of this dataset take these sizes: {"dimCount": n, "dims": [...]}, those of all inputs or only the open ones."""
    sizes = dims.get("dims")
    if not isinstance(sizes, list | tuple) or dims.get("dimCount", len(sizes)) > len(sizes):
        raise AclError(Code.INVALID_PARAM, f"dims are {dims!r:.120}; accepted: {{'dimCount': n, 'dims': [n sizes]}}")
    chosen = [int(size) for size in sizes[: dims.get("dimCount", len(sizes))]]
    declared = [size for shape in MODELS.get(model_id).declared for size in shape]
    if len(chosen) == len(declared):
        wrong = [size for size, fixed in zip(chosen, declared, strict=True) if fixed not in (-1, size)]
        if wrong:
            raise AclError(Code.GE_SHAPE_INVALID, f"dims are {chosen}; accepted: {declared}, -1 open")
        chosen = [size for size, fixed in zip(chosen, declared, strict=True) if fixed == -1]
    _choose(model_id, dataset, index, "dims", tuple(chosen))


def _choose(model_id: int, dataset: int, index: int, kind: str, sizes: tuple[int, ...]) -> None:
    model, found = MODELS.get(model_id), PROCESS.handles.get(dataset, Dataset)
    gear = model.find_gear(kind, sizes)
    check_index(index, len(found.buffers), "input")
    if index != len(model.inputs) - 1:
        raise AclError(
            Code.GE_PARAM_INVALID, f"input {index} chooses no gear; accepted: {len(model.inputs) - 1}, by get_input_index_by_name"
        )
    buffer = PROCESS.handles.get(found.buffers[index], DataBuffer)
    buffer.array(np.dtype(np.int32), (len(sizes),))[:] = sizes
    found.gear = model.last_gear = gear
    PROCESS.handles.changed()
