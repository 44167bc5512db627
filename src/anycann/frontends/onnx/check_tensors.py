"""Is every tensor of a model what it says: element type, dimensions, and as many elements as those ask for. Nothing is allocated."""

from __future__ import annotations

import onnx

from anycann.frontends.onnx.storage import expected_bytes
from anycann.support.errors import ModelError, UnsupportedError

MAX_ELEMENTS = 1 << 48  # more than any machine holds: a damaged or hostile file
MAX_RANK = 64  # numpy's
MAX_DENSE_BYTES = 1 << 31  # a sparse tensor is expanded up to so many bytes

T = onnx.TensorProto
_INT32_FIELD = (
    *(T.INT32, T.INT16, T.INT8, T.INT4, T.INT2, T.UINT16, T.UINT8, T.UINT4, T.UINT2, T.BOOL, T.FLOAT16, T.BFLOAT16, T.FLOAT4E2M1),
    *(T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.FLOAT8E8M0),
)
# Element type -> the field that holds its elements when they are not raw bytes.
TYPED_FIELD: dict[int, str] = {
    **dict.fromkeys(_INT32_FIELD, "int32_data"),
    **dict.fromkeys((T.FLOAT, T.COMPLEX64), "float_data"),
    **dict.fromkeys((T.DOUBLE, T.COMPLEX128), "double_data"),
    **dict.fromkeys((T.UINT32, T.UINT64), "uint64_data"),
    T.INT64: "int64_data",
    T.STRING: "string_data",
}
ELEMENTS_PER_ENTRY: dict[int, int] = {T.INT4: 2, T.UINT4: 2, T.FLOAT4E2M1: 2, T.INT2: 4, T.UINT2: 4}
ENTRIES_PER_ELEMENT: dict[int, int] = {T.COMPLEX64: 2, T.COMPLEX128: 2}


def check_tensor(tensor: onnx.TensorProto, where: str) -> None:
    """Raises ModelError (with `where`: the initialiser or the node) unless the stored elements match type and dims.

    External data is checked when it is mapped, where its size is known.
    """
    if tensor.data_type not in TYPED_FIELD:
        raise UnsupportedError(f"{where}: element type {tensor.data_type}; known are {sorted(TYPED_FIELD)}")
    count = element_count(tuple(tensor.dims), where)
    if tensor.data_location == T.EXTERNAL:
        if tensor.data_type == T.STRING:
            raise ModelError(f"{where}: strings cannot be external data")
        _check_external(tensor, where)
        return
    if tensor.HasField("segment"):
        raise UnsupportedError(f"{where}: a tensor in segments; whole tensors are accepted")
    if tensor.HasField("raw_data"):
        _check_raw(tensor, where)
    else:
        _check_typed(tensor, count, where)


def element_count(dims: tuple[int, ...], where: str) -> int:
    """The product of `dims`. Raises ModelError for a negative size or an absurd product."""
    if len(dims) > MAX_RANK:
        raise ModelError(f"{where}: {len(dims)} dims; {MAX_RANK} are accepted")
    count = 1
    for size in dims:
        if size < 0:
            raise ModelError(f"{where}: dims {list(dims)} have a negative size; sizes are 0 or more")
        count *= size
    if count > MAX_ELEMENTS:
        raise ModelError(f"{where}: dims {list(dims)} ask for {count} elements, which no machine holds")
    return count


def check_sparse(tensor: onnx.SparseTensorProto, where: str) -> None:
    """Raises ModelError unless values, indices and dims of a sparse tensor fit together."""
    check_tensor(tensor.values, f"{where} (values)")
    check_tensor(tensor.indices, f"{where} (indices)")
    dims, count = tuple(tensor.dims), len(tensor.values.dims) == 1 and tensor.values.dims[0]
    dense_bytes = element_count(dims, where) * 8
    if dense_bytes > MAX_DENSE_BYTES:
        raise UnsupportedError(f"{where}: a sparse tensor of dims {list(dims)} is too big to be expanded ({dense_bytes} bytes)")
    if tensor.indices.data_type != T.INT64 or list(tensor.indices.dims) not in ([count], [count, len(dims)]):
        shape = list(tensor.indices.dims)
        raise ModelError(f"{where}: indices of shape {shape}; int64 of shape [{count}] or [{count}, {len(dims)}] are accepted")


def _check_external(tensor: onnx.TensorProto, where: str) -> None:
    """The entries that say where the data is: a location, and numbers of bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if len(entries) < len(tensor.external_data) or not entries.get("location"):
        raise ModelError(f"{where}: external data needs one location, got {[entry.key for entry in tensor.external_data]}")
    for key in ("offset", "length"):
        text = entries.get(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise ModelError(f"{where}: {key} of the external data is {text!r}; a number of bytes is accepted")


def _check_raw(tensor: onnx.TensorProto, where: str) -> None:
    if tensor.data_type == T.STRING:
        raise ModelError(f"{where}: strings cannot be raw_data")
    needed = expected_bytes(tensor.data_type, tuple(tensor.dims))
    if len(tensor.raw_data) != needed:
        shape = list(tensor.dims)
        raise ModelError(f"{where}: raw_data has {len(tensor.raw_data)} bytes, but {_type_name(tensor)}{shape} takes {needed}")


def _check_typed(tensor: onnx.TensorProto, count: int, where: str) -> None:
    field = TYPED_FIELD[tensor.data_type]
    per_entry = ELEMENTS_PER_ENTRY.get(tensor.data_type, 1)
    needed = -(-count // per_entry) * ENTRIES_PER_ELEMENT.get(tensor.data_type, 1)
    got = len(getattr(tensor, field))
    # A 4-bit or 2-bit tensor may also hold one element an entry.
    if got not in (needed, count if per_entry > 1 else needed):
        raise ModelError(f"{where}: {field} has {got} entries, but {_type_name(tensor)}{list(tensor.dims)} takes {needed}")


def _type_name(tensor: onnx.TensorProto) -> str:
    return str(T.DataType.Name(tensor.data_type)).lower()
