"""Lists of tensors (TensorList of TensorFlow 2, TensorArray of TensorFlow 1), which loops read and fill: the stack of their items.

A list that nothing was written to has no items yet. A loop that writes one item in each turn, at the place that it counts, makes the stack
(while_loops.py); other writes need the shape of an item.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.builder import Builder, known_array
from anycann.frontends.tensorflow.definition import Call, Result, operator
from anycann.frontends.tensorflow.layout import NotStacked, Reserved, Tensor, Written
from anycann.frontends.tensorflow.values import Shape


# ---- making one
@operator("TensorListReserve")
def _reserve(call: Call) -> Result:
    """Operands: the shape of an item, how many there are."""
    known = call.known_or_none(0)
    element = None if known is None or known.ndim == 0 else tuple(int(size) if size >= 0 else None for size in known)
    return Tensor(reserved=Reserved(call.value(1), call.dtype_of("element_dtype", np.float32), element))


@operator("TensorArrayV3")
def _array(call: Call) -> Result:
    """Results: the handle, and the flow, which is the list from then on."""
    reserved = Reserved(call.value(0), call.dtype_of("dtype", np.float32), cast("Shape | None", call.attribute("element_shape", None)))
    return [Tensor(reserved=reserved), Tensor(reserved=reserved)]


@operator("TensorListFromTensor")
def _from_tensor(call: Call) -> Result:
    return call.value(0)


@operator("TensorArrayScatterV3")
def _scatter(call: Call) -> Result:
    """Operands: handle, places, items, flow."""
    if not _is_counted(call.value(1)):
        raise call.fail("its places are not 0, 1, 2, ...")
    return call.value(2)


# ---- writing and reading
@operator("TensorListSetItem")
def _set_item(call: Call) -> Result:
    return _with_item(call, 0, 1, 2)


@operator("TensorArrayWriteV3")
def _write(call: Call) -> Result:
    """Operands: handle, place, item, flow."""
    return _with_item(call, 3, 1, 2)


def _with_item(call: Call, at_list: int, at_index: int, at_item: int) -> Tensor:
    """The list with an item in one place."""
    tensor = call.tensor(at_list)
    if tensor.reserved is not None:
        return Tensor(written=Written(tensor.reserved, call.value(at_index), call.value(at_item)))
    place = call.reshaped(call.integers(at_index), [1, 1])
    item = call.op("Unsqueeze", call.value(at_item), call.constant([0], np.int64))
    return Tensor(last=call.op("ScatterND", call.value(at_list), place, item))


@operator("TensorListGetItem")
def _get_item(call: Call) -> Result:
    return call.op("Gather", call.value(0), call.value(1), axis=0)


@operator("TensorArrayReadV3")
def _read(call: Call) -> Result:
    """Operands: handle, place, flow."""
    return call.op("Gather", call.value(2), call.value(1), axis=0)


# ---- all of it
@operator("TensorListStack")
def _stack(call: Call) -> Result:
    return call.value(0)


@operator("TensorArrayGatherV3")
def _gather(call: Call) -> Result:
    """Operands: handle, places, flow. All of them are read where they are counted: a list has as many as were reserved."""
    stack, places = call.value(2), call.value(1)
    return stack if _is_counted(places) else call.op("Gather", stack, places, axis=0)


@operator("TensorListLength")
def _length(call: Call) -> Result:
    return _count(call, 0)


@operator("TensorArraySizeV3")
def _size(call: Call) -> Result:
    """Operands: handle, flow."""
    return _count(call, 1)


def _count(call: Call, at_list: int) -> ir.Value:
    reserved = call.tensor(at_list).reserved or call.tensor(0).reserved
    if reserved is not None:
        return call.cast(reserved.size, np.int32)
    first = call.op("Gather", call.sizes(call.value(at_list)), call.constant(0, np.int64), axis=0)
    return call.cast(first, np.int32)


def _is_counted(places: ir.Value) -> bool:
    """Whether these are 0, 1, 2, ..."""
    known = known_array(places)
    if known is not None:
        return bool((known == np.arange(known.size)).all())
    node = places.producer()
    if node is None or node.op_type != "Range":
        return False
    start, _, step = (known_array(value) if value is not None else None for value in node.inputs)
    return start is not None and step is not None and int(start) == 0 and int(step) == 1


def zeros(builder: Builder, list_: Reserved) -> ir.Value:
    """The stack of a list whose items have a known shape, before anything is written. Raises NotStacked."""
    if list_.element is None or None in list_.element:
        raise NotStacked(f"a list of tensors of shape {list_.element} is read or written in no order; the shape of an item must be known")
    count = builder.op("Reshape", _int64(builder, list_.size), builder.constant([1], np.int64))
    sizes = builder.op("Concat", count, builder.constant(np.array(list_.element, np.int64)), axis=0)
    return builder.op("Expand", builder.constant(0, list_.dtype), sizes)


def filled_up(builder: Builder, items: ir.Value, list_: Reserved) -> ir.Value:
    """The items that a loop wrote, and zeros for those that it did not come to. Raises NotStacked."""
    size = known_array(list_.size)
    if items.shape is None:
        raise NotStacked("the number of axes of the items of a list is not known")
    if size is not None and items.shape[0] == int(size):
        return items
    zero, one = builder.constant([0], np.int64), builder.constant([1], np.int64)
    count = builder.op("Slice", builder.op("Shape", items), zero, one)
    missing = builder.op("Sub", builder.op("Reshape", _int64(builder, list_.size), one), count)
    rest = builder.constant(np.zeros(len(items.shape) - 1, np.int64))
    pads = builder.op("Concat", builder.constant(np.zeros(len(items.shape), np.int64)), missing, rest, axis=0)
    made = builder.op("Pad", items, pads)
    made.shape = ir.Shape([None if size is None else int(size), *list(items.shape)[1:]])
    return made


def _int64(builder: Builder, value: ir.Value) -> ir.Value:
    return value if value.dtype == ir.DataType.INT64 else builder.op("Cast", value, to=int(ir.DataType.INT64))
