"""Machine code (`native_ir.py`) for what every operator does, as functions of Python.

`claim(tensor, index)` makes a new cpu tensor the npu's: it changes device and keys in place (`layout.py`), and puts a record of ours
between its memory and the function that frees it, which takes the bytes off the npu's account, in whatever thread. A `Fast` kernel runs a
cpu kernel on aliases without the interpreter. All that the code must know of this process (offsets, addresses) is in a table, its `self`.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from pathlib import Path
from typing import Any

import torch

from anycann.adapters.torch.device import accounts, devices
from anycann.adapters.torch.device.accounts import ACCOUNTS, Field
from anycann.adapters.torch.device.dispatch_table import Table
from anycann.adapters.torch.device.generators import IMPLEMENTATIONS
from anycann.adapters.torch.device.layout import Layout
from anycann.adapters.torch.device.machine_code import KEYWORDS, NO_KEYWORDS, address_of, load, python_function
from anycann.adapters.torch.device.native_ir import module_ir
from anycann.adapters.torch.device.native_words import BFLOAT16, GRANULE, HALF, MOST_ARGUMENTS, TABLE, Kind, Word
from anycann.adapters.torch.device.signature import signature_of
from anycann.support.records import dataclass

_kept: list[Any] = []
_recordings = ctypes.c_uint64()


def count_recordings(more: int) -> None:
    """So many profilers more record: what passes through Python calls the cpu's operator, and leaves a span of what that took."""
    _recordings.value += more


@dataclass(frozen=True)
class Claim:
    """`call(tensor, index)`: the tensor, now of npu `index`; None if only Python can do it (conjugates, no memory); NotImplemented if the
    npu has no room for it. `account(tensor, index)` does the same for memory that a tensor which is the npu's got anew."""

    call: Callable[[Any, int], Any]
    account: Callable[[Any, int], Any]
    table: bytes
    operator_code: int  # address of the code of `Fast` kernels
    boxed_code: int  # of what torch's dispatcher calls in their place; 0 if this torch has not what it needs


def make_claim(layout: Layout, adopt: Callable[[Any, int], Any]) -> Claim | None:
    """The function for tensors as `layout` says, or None if this torch keeps memory in another way or generated code cannot run.

    `adopt` does in Python what the code leaves to it.
    """
    memory = _memory_offsets(layout)
    if memory is None:
        return None
    try:
        code = load("torch_npu_claim", module_ir())
    except Exception:  # no place for code, or LLVM does not know the processor: Python does it
        return None
    inside = _inside(layout)
    table = _table(layout, memory, code.address("torch_npu_release"), adopt, inside or {})
    claim, account = (python_function(name, code.address(f"torch_npu_{name}"), table, NO_KEYWORDS) for name in ("claim", "account"))
    made = Claim(claim, account, table, code.address("torch_npu_call"), code.address("torch_npu_boxed") if inside else 0)
    return made if _works(made) else None


def _works(claim: Claim) -> bool:
    """Whether a tensor that is claimed says so, is accounted for until it is freed, and an operator runs on it."""
    device, before = torch.device("npu", 0), accounts.read(0, Field.ALLOCATED)
    tensor = torch.full((3, 5), 2.0)
    fast = Fast(claim, lambda x: None)
    fast.enable(Kind.TENSOR, torch.neg, lambda error, *args: error, (0,))
    if claim.call(tensor, 0) is not tensor or tensor.device != device:
        return False
    result = fast.kernel(tensor)
    well = isinstance(result, torch.Tensor) and result.device == result.untyped_storage().device == device
    well = well and ctypes.c_float.from_address(result.data_ptr() + 56).value == -2.0
    well = well and accounts.read(0, Field.ALLOCATED) == before + 2 * GRANULE
    del tensor, result
    return well and accounts.read(0, Field.ALLOCATED) == before


def _memory_offsets(layout: Layout) -> dict[str, int] | None:
    """Where a StorageImpl keeps its data, the context and the function that free it, and its size; None if it is not as expected."""
    tensor = torch.empty(1237, dtype=torch.uint8)
    storage = tensor.untyped_storage()
    words = (ctypes.c_uint64 * 10).from_address(storage._cdata)
    data = [at for at in range(10) if words[at] == storage.data_ptr()]
    sizes = [at for at in range(10) if words[at] == 1237]
    if len(data) != 2 or data[1] != data[0] + 2 or len(sizes) != 1:
        return None
    return {"data_at": 8 * data[0], "free_at": 8 * (data[0] + 1), "context_at": 8 * data[1], "bytes_at": 8 * sizes[0]}


def _inside(layout: Layout) -> dict[str, int] | None:
    """What `torch_npu_boxed` knows of torch's C++ code beside the table's other words; None if this torch has none or several of it."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    names = {
        "alias_tensor": "_ZN2at6native5aliasERKNS_6TensorE",
        "make_storage": "_ZN3c1017make_storage_implENS_11StorageImpl15use_byte_size_tENS_6SymIntENS_7DataPtrEPNS_9AllocatorE"
        "bSt8optionalINS_6DeviceEE",
        "delete_tensor": "aoti_torch_delete_tensor_object",
        "bump_version": "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE",
        "undefined": "_ZN3c1019UndefinedTensorImpl10_singletonE",
    }
    dimensions, dtype = _offset_of_dimensions(), _offset_of_dtype()
    if dimensions is None or dtype is None or not all(hasattr(library, name) for name in names.values()):
        return None
    plain = torch._C._dispatch_keys(torch.empty(1)).raw_repr()
    return {
        **{word: address_of(getattr(library, name)) for word, name in names.items()},
        "host_keys": torch._C.DispatchKeySet(torch._C.DispatchKey.CPU).raw_repr(),
        "cpu_keys": plain,
        "npu_keys": plain ^ layout.keys,
        "dimensions_at": dimensions,
        "dtype_at": dtype,
        "recordings": ctypes.addressof(_recordings),
        "generators": ctypes.addressof(IMPLEMENTATIONS),
        "throw": address_of(ctypes.CDLL("libgcc_s.so.1")._Unwind_Resume_or_Rethrow),
    }


def _offset_of_dimensions() -> int | None:
    """Where a TensorImpl has the number of its dimensions; None if that is not one place."""
    tensors = [torch.empty([2] * dimensions) for dimensions in range(5)]
    words = [(ctypes.c_uint64 * 20).from_address(tensor._cdata) for tensor in tensors]
    found = [at for at in range(20) if all(words[dimensions][at] == dimensions for dimensions in range(5))]
    return 8 * found[0] if len(found) == 1 else None


def _offset_of_dtype() -> int | None:
    """Where a TensorImpl has the number of its dtype, in 16 bits; None if that is not one place."""
    numbers = {torch.uint8: 0, torch.int64: 4, torch.float16: HALF, torch.float32: 6, torch.float64: 7, torch.bfloat16: BFLOAT16}
    tensors = [(torch.empty(1, dtype=dtype), number) for dtype, number in numbers.items()]
    halves = [((ctypes.c_uint16 * 96).from_address(tensor._cdata), number) for tensor, number in tensors]
    found = [at for at in range(96) if all(words[at] == number for words, number in halves)]
    return 2 * found[0] if len(found) == 1 else None


def _table(layout: Layout, memory: dict[str, int], release: int, adopt: Callable[[Any, int], Any], inside: dict[str, int]) -> bytes:
    _kept.append(adopt)
    tensor = torch.empty(1, dtype=torch.complex64)
    conjugate, negative = torch._C._dispatch_keys(tensor.conj()), torch._C._dispatch_keys(torch._neg_view(tensor))
    plain = torch._C._dispatch_keys(tensor).raw_repr()
    words = {
        "object_impl": _offset_of_impl(tensor),
        "keys_at": layout.keys_at,
        "keys": layout.keys,
        "special_keys": (conjugate.raw_repr() | negative.raw_repr()) & ~plain,
        "device_at": layout.device_at,
        "storage_at": layout.storage_at,
        "storage_device_at": layout.storage_device_at,
        "none": id(None),
        "not_implemented": id(NotImplemented),
        "as_long": address_of(ctypes.pythonapi.PyLong_AsLong),
        "take_reference": address_of(ctypes.pythonapi.Py_IncRef),
        "allocate": address_of(ctypes.CDLL(None).malloc),
        "free": address_of(ctypes.CDLL(None).free),
        "accounts": ctypes.addressof(ACCOUNTS),
        "release": release,
        "tensor_type": id(torch.Tensor),
        "parameter_type": id(torch.nn.Parameter),
        "to_dlpack": id(torch._C._to_dlpack),
        "from_dlpack": id(torch._C._from_dlpack),
        "vectorcall": address_of(ctypes.pythonapi.PyObject_Vectorcall),
        "drop_reference": address_of(ctypes.pythonapi.Py_DecRef),
        "clear_error": address_of(ctypes.pythonapi.PyErr_Clear),
        "new_long": address_of(ctypes.pythonapi.PyLong_FromLong),
        "tuple_type": id(tuple),
        "adopt": id(adopt),
        "float_type": id(float),
        "int_type": id(int),
        "fetch_error": address_of(ctypes.pythonapi.PyErr_Fetch),
        "normalise_error": address_of(ctypes.pythonapi.PyErr_NormalizeException),
        "set_error": address_of(ctypes.pythonapi.PyErr_SetObject),
        **memory,
        **inside,
    }
    return b"".join(words.get(name, 0).to_bytes(8, "little") for name in TABLE)


def _offset_of_impl(tensor: Any) -> int:
    """Where a tensor's Python object points to its TensorImpl."""
    words = (ctypes.c_uint64 * 8).from_address(id(tensor))
    (at,) = (at for at in range(8) if words[at] == tensor._cdata)
    return 8 * at


class Fast:
    """A kernel of generated code that calls `slow`, until `enable` says how the operator is run without it.

    Then arguments that are npu tensors become aliases, the cpu operator is called, and its results are claimed. Whatever is unusual
    (tensors of the host or of another class, several devices, an error) goes to `slow`, which runs the whole operator.
    """

    def __init__(self, claim: Claim, slow: Callable[..., Any]):
        self._words = (ctypes.c_uint64 * len(Word))()
        self._words[Word.SLOW] = id(slow)
        self._words[Word.TABLE] = id(claim.table) + bytes.__basicsize__ - 1
        place = ctypes.addressof(self._words).to_bytes(8, "little")
        self.kernel = python_function("npu_kernel", claim.operator_code, place, KEYWORDS)
        self._boxed_code = claim.boxed_code
        _kept.extend((self._words, slow))

    def enable(self, kind: Kind, call: Any, explain: Callable[..., Any], tensors: tuple[int, ...], written: int = 0) -> None:
        """Run `call` from now on; `tensors` are the positions of arguments that are tensors or None, `written` that of the result.

        `explain(error, *args)` answers what is raised for an error of `call`, or None if the operator did nothing and `slow` shall run.
        """
        _kept.extend((call, explain))
        self._words[Word.EXPLAIN] = id(explain)
        self._words[Word.CALL] = id(call)
        self._words[Word.TENSORS] = sum(1 << at for at in tensors)
        self._words[Word.WRITTEN] = written
        self._words[Word.KIND] = kind

    def enable_boxed(self, table: Table, op: Any, kind: Kind, place: int, current: int, by_python: frozenset[int], hosts: bool) -> None:
        """Let torch's dispatcher run the cpu's kernel of `op`, a `torch._ops.OpOverload`, without Python; `place` as `Word.PLACE` says.

        `current` is the address of what tells the thread's device, 0 if there is one. `by_python`: dtypes (`c10::ScalarType`)
        whose tensors pass through it. `hosts` as the word of this name.
        """
        signature = signature_of(op)
        entry = table.npu_kernel(op._schema.name, op._schema.overload_name)
        if not self._boxed_code or entry is None or entry.function != id(self.kernel):
            return
        self._words[Word.BOXED_KIND] = kind
        self._words[Word.PLACE] = place
        self._words[Word.COUNT] = len(op._schema.arguments)
        self._words[Word.ENTRY] = entry.cpu_at
        self._words[Word.PYTHON] = entry.call
        self._words[Word.CURRENT] = current
        self._words[Word.DEVICES] = devices.count()
        self._words[Word.LISTS] = sum(1 << at for at in signature.lists)
        self._words[Word.HOLDERS] = 2 if signature.optional_lists else 1
        self._words[Word.GENERATOR] = signature.names.index("generator") if "generator" in signature.names else MOST_ARGUMENTS
        self._words[Word.HOSTS] = hosts
        self._words[Word.BY_PYTHON] = sum(1 << dtype for dtype in by_python)
        entry.replace_call(self._boxed_code)
