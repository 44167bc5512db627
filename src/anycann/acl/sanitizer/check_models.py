"""Models: datasets that do not fit them, memory they cannot reach, and use of one that is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anycann.acl.data_buffers import DataBuffer, Dataset
from anycann.acl.model_loading import MODELS
from anycann.acl.model_tensors import Tensor, bytes_of
from anycann.acl.models import Model
from anycann.acl.process import PROCESS
from anycann.acl.sanitizer.access import check_access, side, wrote
from anycann.acl.sanitizer.pending import Work
from anycann.acl.sanitizer.ranges import Range
from anycann.acl.sanitizer.state import Call, Made, Sanitizer, after, before
from anycann.acl.tensor_descs import TensorDesc
from anycann.support.records import dataclass

_EXECUTE = ("acl.mdl.execute", "acl.mdl.execute_async", "acl.mdl.execute_v2")
_LOADS = tuple(f"acl.mdl.load_{how}" for how in ("from_file", "from_mem", "from_file_with_mem", "from_mem_with_mem", "with_config"))
_AFTER_UNLOAD = ("acl.mdl.destroy_desc", "acl.mdl.get_desc", "acl.mdl.get_desc_from_file", "acl.mdl.get_desc_from_mem")


# ---- data buffers
@before("acl.create_data_buffer", "acl.update_data_buffer")
def _check_buffer(state: Sanitizer, call: Call) -> None:
    place = Range(call.number("data"), call.number("size"))
    block, freed = state.blocks.find(place.address), state.blocks.find_freed(place.address)
    if block is None and freed is not None:
        state.found(
            call, "use-after-free", f"{place.address:#x} lies in {freed.words}, which was freed", freed.lines, address=place.address
        )
    elif block is not None and place.end > block.range.end:
        text = f"{place.nbytes} bytes at {place.address:#x} reach {place.end - block.range.end} bytes behind the end of {block.words}"
        state.found(call, "out-of-bounds", text, block.lines, address=place.address, nbytes=place.nbytes)


# ---- loading and letting go
@after(*_LOADS)
def _loaded(state: Sanitizer, call: Call) -> None:
    assert isinstance(call.result, tuple)
    state.models[call.result[0]] = Made("model", call.where)


@before("acl.mdl.unload")
def _check_unload(state: Sanitizer, call: Call) -> None:
    number = call.number("model_id")
    for work in state.pending.everything():
        if work.model == number:
            text = f"model {number} goes while {work.name} in a stream may still run it; call acl.rt.synchronize_stream before"
            state.found(call, "unloaded-while-pending", text, {**state.models[number].lines, "launched": work.where})
            return


@after("acl.mdl.unload")
def _unloaded(state: Sanitizer, call: Call) -> None:
    made = state.models.get(call.number("model_id"))
    if made is not None:
        made.live, made.ended = False, call.where


@after("acl.mdl.get_desc")
def _described(state: Sanitizer, call: Call) -> None:
    state.described[call.number("desc")] = call.number("model_id")


def check_model_use(state: Sanitizer, call: Call) -> None:
    """For every function: the model it names, or that its description is of, was unloaded."""
    if not call.name.startswith("acl.mdl."):
        return
    made = state.models.get(call.number("model_id"))
    if made is not None and not made.live:
        lines = {"loaded": made.made, "unloaded": made.ended}
        kind = "double-unload" if call.name == "acl.mdl.unload" else "use-after-unload"
        state.found(call, kind, f"model {call.number('model_id')} was unloaded", lines)
    of = state.models.get(state.described.get(call.number("desc"), 0))
    if of is not None and not of.live and call.name not in _AFTER_UNLOAD:
        lines = {"loaded": of.made, "unloaded": of.ended}
        state.found(call, "use-after-unload", f"model {state.described[call.number('desc')]} of this description was unloaded", lines)


# ---- runs
@dataclass(frozen=True)
class _Slot:
    """An input or output of a run, its data buffer and the bytes that the model reads or writes (0: not known before)."""

    role: str
    tensor: Tensor
    buffer: DataBuffer
    needed: int

    @property
    def range(self) -> Range:
        return Range(self.buffer.address, min(self.needed or self.buffer.size, self.buffer.size))


@before(*_EXECUTE)
def _check_run(state: Sanitizer, call: Call) -> None:
    model = MODELS.live().get(call.number("model_id"))
    inputs, outputs = _dataset(call, "inputs"), _dataset(call, "outputs")
    if model is None or inputs is None or outputs is None:
        return
    if model.gears and inputs.gear is None:
        text = f"{model.where} was compiled for {len(model.gears)} sets of shapes and none was chosen; {model.gear_words}"
        state.found(call, "gear-not-set", text, _lines(state, call.number("inputs")))
    for role, dataset, tensors in (("input", inputs, model.inputs), ("output", outputs, model.outputs)):
        _check_count(state, call, role, dataset, tensors)
        for slot in _slots(model, role, dataset, tensors, inputs.gear, inputs.descs if role == "input" else {}):
            _check_slot(state, call, slot)


def _check_count(state: Sanitizer, call: Call, role: str, dataset: Dataset, tensors: Sequence[Tensor]) -> None:
    if len(dataset.buffers) != len(tensors):
        text = f"the {role} dataset has {len(dataset.buffers)} data buffers, and the model has {len(tensors)} {role}s"
        state.found(call, "wrong-buffer-count", text, _lines(state, call.number(f"{role}s")))
    for handle in dataset.buffers:
        made = state.handles.get(handle)
        if made is not None and not made.live:
            state.found(call, "use-after-destroy", f"the {role} dataset has a data buffer that was destroyed", made.lines)


def _check_slot(state: Sanitizer, call: Call, slot: _Slot) -> None:
    name, buffer = f"{slot.role} {slot.tensor.name!r}", slot.buffer
    if buffer.address and buffer.size < slot.needed:
        text = f"the data buffer of {name} has {buffer.size} bytes, and the model needs {slot.needed}"
        state.found(call, "buffer-too-small", text, _memory_lines(state, buffer), address=buffer.address, nbytes=buffer.size)
    if side(state, buffer.address) == "host":
        text = f"{name} lies on the host at {buffer.address:#x}; a model reads and writes memory of its device"
        state.found(call, "host-memory-for-model", text, _memory_lines(state, buffer), address=buffer.address)
    reads = slot.role == "input" and bool(slot.needed)
    samples = slot.tensor.dims[0] if slot.tensor.dims else 1
    check_access(state, call, name, slot.range, slot.role == "output", _stream(state, call), reads, samples)


@after(*_EXECUTE)
def _ran(state: Sanitizer, call: Call) -> None:
    model = MODELS.live().get(call.number("model_id"))
    inputs, outputs = _dataset(call, "inputs"), _dataset(call, "outputs")
    if model is None or inputs is None or outputs is None:
        return
    stream = _stream(state, call)
    made = outputs.descs if stream is None and call.error is None else {}
    reads = tuple(slot.range for slot in _slots(model, "input", inputs, model.inputs, inputs.gear, inputs.descs))
    writes = tuple(slot.range for slot in _slots(model, "output", outputs, model.outputs, inputs.gear, made))
    for place in writes:
        wrote(state, place)
    if stream is not None:
        state.pending.add(Work(call.name, stream, call.where, reads, writes, call.number("model_id")))


@after("acl.mdl.set_dynamic_batch_size", "acl.mdl.set_dynamic_hw_size", "acl.mdl.set_input_dynamic_dims")
def _gear_chosen(state: Sanitizer, call: Call) -> None:
    found = _dataset(call, "dataset")
    if found is not None:
        for buffer in _buffers(found)[call.number("index") : call.number("index") + 1]:
            wrote(state, Range(buffer.address, buffer.size))


def _slots(
    model: Model, role: str, dataset: Dataset, tensors: Sequence[Tensor], gear: int | None, described: Mapping[int, TensorDesc]
) -> Iterator[_Slot]:
    """described: what is said of tensors whose shapes are open."""
    chosen = model.gears[gear] if model.gears and gear is not None else None
    specs = (chosen.inputs if role == "input" else chosen.outputs) if chosen is not None else ()
    for number, (tensor, buffer) in enumerate(zip(tensors, _buffers(dataset), strict=False)):
        needed = bytes_of(specs[number]) if number < len(specs) else tensor.most_bytes
        yield _Slot(role, tensor, buffer, needed or (described[number].nbytes if number in described else 0))


def _buffers(dataset: Dataset) -> list[DataBuffer]:
    live = PROCESS.handles.live(DataBuffer)
    return [live[handle] for handle in dataset.buffers if handle in live]


def _dataset(call: Call, parameter: str) -> Dataset | None:
    return PROCESS.handles.live(Dataset).get(call.number(parameter))


def _stream(state: Sanitizer, call: Call) -> int | None:
    return state.stream_key(call.number("stream")) if call.name.endswith("_async") else None


def _lines(state: Sanitizer, handle: int):  # type: ignore[no-untyped-def]
    return state.handles[handle].lines if handle in state.handles else {}


def _memory_lines(state: Sanitizer, buffer: DataBuffer):  # type: ignore[no-untyped-def]
    block = state.blocks.find(buffer.address)
    return block.lines if block is not None else {}
