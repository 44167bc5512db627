"""acl.mdl: descriptions of models: what they take and give, their sizes, names, formats and gears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.data_buffers import check_index
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.model_loading import MODELS, read_model
from anycann.acl.model_tensors import Gear, Tensor
from anycann.acl.models import AIPP_INPUT, GEAR_INPUT, Model
from anycann.acl.process import PROCESS
from anycann.acl.util import ptr_to_bytes
from anycann.support.records import dataclass

MOST_NAME = 127  # longer names of tensors are cut, and get_tensor_real_name tells the whole
_PARTS = "_datadump_original_op_names"


@dataclass
class ModelDesc:
    """A description, empty until acl.mdl.get_desc fills it."""

    acl_word: ClassVar[str] = "model description"
    model: Model | None = None
    model_id: int = 0


def described(desc: int) -> Model:
    """The model that a description was filled from. Raises AclError for an empty one."""
    found = PROCESS.handles.get(desc, ModelDesc)
    if found.model is None:
        raise AclError(Code.INVALID_PARAM, f"model description {desc:#x} is empty; acl.mdl.get_desc fills it")
    return found.model


@value("acl.mdl.create_desc", returns="desc")
def create_desc() -> int:
    """An empty description."""
    return PROCESS.handles.add(ModelDesc())


@status("acl.mdl.destroy_desc")
def destroy_desc(desc: int) -> None:
    """Forget a description."""
    PROCESS.handles.remove(desc, ModelDesc)


@status("acl.mdl.get_desc")
def get_desc(desc: int, model_id: int) -> None:
    """Fill a description from a loaded model."""
    found = PROCESS.handles.get(desc, ModelDesc)
    found.model, found.model_id = MODELS.get(model_id), model_id


@status("acl.mdl.get_desc_from_file")
def get_desc_from_file(desc: int, path: str) -> None:
    """Fill a description from a file."""
    PROCESS.handles.get(desc, ModelDesc).model = read_model(path)


@status("acl.mdl.get_desc_from_mem")
def get_desc_from_mem(desc: int, ptr: int, size: int) -> None:
    """Fill a description from a model in memory."""
    PROCESS.handles.get(desc, ModelDesc).model = read_model(ptr_to_bytes(ptr, size) or b"")


# ---- counts, names, sizes
@value("acl.mdl.get_num_inputs", returns="count")
def get_num_inputs(desc: int) -> int:
    """Number of inputs; a model with gears has one more, which chooses the gear."""
    return len(described(desc).inputs)


@value("acl.mdl.get_num_outputs", returns="count")
def get_num_outputs(desc: int) -> int:
    """Number of outputs."""
    return len(described(desc).outputs)


@value("acl.mdl.get_input_size_by_index", returns="bytes")
def get_input_size_by_index(desc: int, index: int) -> int:
    """Bytes of an input, of its largest gear, or with the largest sizes of its ranges; 0 where a size has no bound."""
    model, tensor = described(desc), _input(desc, index)
    return tensor.most_bytes or model.most_bytes_in_range(tensor)


@value("acl.mdl.get_output_size_by_index", returns="bytes")
def get_output_size_by_index(desc: int, index: int) -> int:
    """Bytes of an output, of its largest gear; 0 where its shape is open."""
    return _output(desc, index).most_bytes


@value("acl.mdl.get_input_name_by_index", failed="", returns="str")
def get_input_name_by_index(desc: int, index: int) -> str:
    """Name of an input."""
    return _input(desc, index).name


@value("acl.mdl.get_output_name_by_index", failed="", returns="str")
def get_output_name_by_index(desc: int, index: int) -> str:
    """Name of an output."""
    return _output(desc, index).name


@value_and_status("acl.mdl.get_input_index_by_name", returns="(index, ret)")
def get_input_index_by_name(desc: int, name: str) -> int:
    """Number of the input called `name`."""
    return _by_name(described(desc).inputs, name, "input")


@value_and_status("acl.mdl.get_output_index_by_name", returns="(index, ret)")
def get_output_index_by_name(desc: int, name: str) -> int:
    """Number of the output called `name`."""
    return _by_name(described(desc).outputs, name, "output")


@value("acl.mdl.get_tensor_real_name", failed="", returns="str")
def get_tensor_real_name(desc: int, name: str) -> str:
    """The whole name of an input or output whose name was cut."""
    model = described(desc)
    for tensor in (*model.inputs, *model.outputs):
        if name in (tensor.name, tensor.name[:MOST_NAME]):
            return tensor.name
    raise AclError(Code.INVALID_PARAM, f"{name!r} is neither an input nor an output of {model.where}")


@value("acl.mdl.get_input_format", failed=types.UNDEFINED, returns="format")
def get_input_format(desc: int, index: int) -> int:
    """aclFormat of an input."""
    return _input(desc, index).format


@value("acl.mdl.get_output_format", failed=types.UNDEFINED, returns="format")
def get_output_format(desc: int, index: int) -> int:
    """aclFormat of an output."""
    return _output(desc, index).format


@value("acl.mdl.get_input_data_type", failed=types.UNDEFINED, returns="dtype")
def get_input_data_type(desc: int, index: int) -> int:
    """aclDataType of an input."""
    return _input(desc, index).data_type


@value("acl.mdl.get_output_data_type", failed=types.UNDEFINED, returns="dtype")
def get_output_data_type(desc: int, index: int) -> int:
    """aclDataType of an output."""
    return _output(desc, index).data_type


@value("acl.mdl.get_op_attr", failed=None, returns="str")
def get_op_attr(desc: int, op: str, attribute: str) -> str:
    """What a fused operator is made of, "[4]conv[4]relu": attribute _datadump_original_op_names; "" for an operator that is not fused.

    A fused operator is called as its parts are, one behind the other.
    """
    if attribute != _PARTS:
        raise AclError(Code.INVALID_PARAM, f"attribute is {attribute!r:.60}; accepted: {_PARTS}")
    return "".join(f"[{len(name)}]{name}" for name in described(desc).fused.get(op, ()))


# ---- shapes
@value_and_status("acl.mdl.get_input_dims", failed=(None,), returns="(dict, ret)")
def get_input_dims(desc: int, index: int) -> dict[str, object]:
    """{name, dimCount, dims} of an input; sizes that gears or runs decide are -1."""
    return dims_of(_input(desc, index))


@value_and_status("acl.mdl.get_input_dims_v2", failed=(None,), returns="(dict, ret)")
def get_input_dims_v2(desc: int, index: int) -> dict[str, object]:
    """As get_input_dims."""
    return dims_of(_input(desc, index))


@value_and_status("acl.mdl.get_output_dims", failed=(None,), returns="(dict, ret)")
def get_output_dims(desc: int, index: int) -> dict[str, object]:
    """{name, dimCount, dims} of an output, in the largest gear; sizes that runs decide are -1."""
    model, tensor = described(desc), _output(desc, index)
    return _dims_in(model.gears[model.largest_gear], tensor, index) if model.gears else dims_of(tensor)


@value_and_status("acl.mdl.get_cur_output_dims", failed=(None,), returns="(dict, ret)")
def get_cur_output_dims(desc: int, index: int) -> dict[str, object]:
    """{name, dimCount, dims} of an output in the gear that was chosen last; in the largest before one was chosen."""
    model, tensor = described(desc), _output(desc, index)
    if not model.gears:
        return dims_of(tensor)
    return _dims_in(model.gears[model.largest_gear if model.last_gear is None else model.last_gear], tensor, index)


@value_and_status("acl.mdl.get_input_dims_range", failed=(None,), returns="(dict, ret)")
def get_input_dims_range(desc: int, index: int) -> dict[str, object]:
    """{rangeCount, range} of an input: [least, most] of each size; -1 stands for no bound."""
    model, tensor = described(desc), _input(desc, index)
    if index >= len(model.own_inputs) or not model.gears:
        ranges = model.ranges.get(tensor.name) or [[1, -1] if size < 0 else [size, size] for size in tensor.dims]
    else:
        columns = zip(*(gear.shapes[index] for gear in model.gears), strict=True)
        ranges = [[min(column), max(column)] for column in columns]
    return {"rangeCount": len(ranges), "range": ranges}


# ---- gears
@value_and_status("acl.mdl.get_dynamic_batch", failed=(None,), returns="(dict, ret)")
def get_dynamic_batch(desc: int) -> dict[str, object]:
    """{batchCount, batch}: the batches a model was compiled for; none for a model without them."""
    batches = [gear.sizes[0] for gear in _gears(described(desc), "batch")]
    return {"batchCount": len(batches), "batch": batches}


@value_and_status("acl.mdl.get_dynamic_hw", failed=(None,), returns="(dict, ret)")
def get_dynamic_hw(desc: int, index: int) -> dict[str, object]:
    """{hwCount, hw}: the heights and widths a model was compiled for. `index` is -1."""
    sizes = [list(gear.sizes) for gear in _gears(described(desc), "hw")]
    return {"hwCount": len(sizes), "hw": sizes}


@value_and_status("acl.mdl.get_input_dynamic_gear_count", returns="(count, ret)")
def get_input_dynamic_gear_count(desc: int, index: int) -> int:
    """Number of the gears of --dynamic_dims. `index` is -1."""
    return len(_gears(described(desc), "dims"))


@value_and_status("acl.mdl.get_input_dynamic_dims", failed=(None,), returns="(list of dict, ret)")
def get_input_dynamic_dims(desc: int, index: int, count: int) -> list[dict[str, object]]:
    """{name, dimCount, dims} of each gear of --dynamic_dims: the sizes of all inputs, one after another."""
    gears = _gears(described(desc), "dims")
    if count < len(gears):
        raise AclError(Code.INVALID_PARAM, f"room for {count} gears; accepted: {len(gears)}, as get_input_dynamic_gear_count says")
    return [_dims("", [size for shape in gear.shapes for size in shape]) for gear in gears]


def dims_of(tensor: Tensor) -> dict[str, object]:
    """A tensor's shape as pyACL gives it."""
    return _dims(tensor.name[:MOST_NAME], list(tensor.dims))


def _dims_in(gear: Gear, tensor: Tensor, index: int) -> dict[str, object]:
    """The shape of output `index` in a gear."""
    return _dims(tensor.name[:MOST_NAME], [int(size or 0) for size in gear.outputs[index].shape])


def _dims(name: str, dims: list[int]) -> dict[str, object]:
    return {"name": name, "dimCount": len(dims), "dims": dims}


def _gears(model: Model, kind: str) -> Sequence[Gear]:
    return model.gears if model.gear_kind == kind else ()


def _input(desc: int, index: int) -> Tensor:
    tensors = described(desc).inputs
    check_index(index, len(tensors), "input")
    return tensors[index]


def _output(desc: int, index: int) -> Tensor:
    tensors = described(desc).outputs
    check_index(index, len(tensors), "output")
    return tensors[index]


def _by_name(tensors: Sequence[Tensor], name: str, role: str) -> int:
    for number, tensor in enumerate(tensors):
        if name in (tensor.name, tensor.name[:MOST_NAME]):
            return number
    is_asked = name in (GEAR_INPUT, AIPP_INPUT)  # whether the model has them
    accepted = ", ".join(tensor.name for tensor in tensors)
    raise AclError(Code.INVALID_PARAM, f"{role} {name!r} is not there; accepted: {accepted}", usual=is_asked)
