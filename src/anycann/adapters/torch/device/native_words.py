"""The words that generated code and Python share, and how the code reads them."""

from __future__ import annotations

from enum import IntEnum

GRANULE = 512  # bytes: Ascend's allocator rounds up to it
MOST_ARGUMENTS = 24
TUPLE_AT = tuple.__basicsize__  # where a tuple has its items
BYTES_AT = bytes.__basicsize__ - 1  # where a bytes object has its bytes
INT32, HALF, BFLOAT16 = 3, 5, 15  # c10::ScalarType
FUNCTION_AT = 16  # where torch's object for a kernel of Python has the function
LIST_AT = 16  # where torch's list has its values: where they begin and end
SELF_AT = 24  # where a builtin function of Python has its self

# The words of the table: offsets in objects of torch, and addresses in this process
TABLE = (
    "object_impl", "keys_at", "keys", "special_keys", "device_at", "storage_at", "storage_device_at", "data_at", "context_at", "free_at",
    "bytes_at", "none", "not_implemented", "as_long", "take_reference", "allocate", "free", "accounts", "release", "tensor_type",
    "parameter_type", "to_dlpack", "from_dlpack", "vectorcall", "drop_reference", "clear_error", "new_long", "tuple_type", "adopt",
    "float_type", "int_type", "fetch_error", "normalise_error", "set_error", "undefined", "host_keys", "npu_keys", "cpu_keys",
    "dimensions_at", "dtype_at", "recordings", "alias_tensor", "make_storage", "delete_tensor", "throw",
    "bump_version", "generators",
)  # fmt: skip


class Kind(IntEnum):
    """What an operator returns."""

    SLOW = 0  # not known yet, or nothing that generated code handles
    TENSOR = 1  # a new tensor
    IN_PLACE = 2  # an argument, which it wrote
    TUPLE = 3  # several new tensors
    FACTORY = 4  # a new tensor on a device that may be said
    LIST = 5  # a list of new tensors
    NOTHING = 6  # arguments are written, nothing is returned
    VALUE = 7  # a number or a truth


class Word(IntEnum):
    """The words of a `Fast` kernel: those that its calls by Python need, then those of calls by torch's dispatcher.

    PLACE is that of the argument that is written, as WRITTEN for Python, or of `pin_memory` of a FACTORY, or of the list of NOTHING whose
    tensors get another version (-1: none do). BY_PYTHON has a bit for each dtype (`c10::ScalarType`) whose tensors Python must take.
    HOLDERS is how many may refer to a list: the stack, and the caller of an operator that takes one by reference. HOSTS: 1 if tensors of
    the host are taken, also to be written. GENERATOR is the place of a generator, which is the npu's if none is given, or that of no
    argument.
    """

    KIND = 0
    WRITTEN = 1
    CALL = 2
    SLOW = 3
    TENSORS = 4
    TABLE = 5
    EXPLAIN = 6
    BOXED_KIND = 7
    PLACE = 8
    COUNT = 9
    ENTRY = 10
    PYTHON = 11
    CURRENT = 12
    DEVICES = 13
    BY_PYTHON = 14
    LISTS = 15
    HOLDERS = 16
    HOSTS = 17
    GENERATOR = 18


def table_word(name: str) -> str:
    """The value of a word of the table."""
    return f"call i64 @word(ptr %table, i64 {TABLE.index(name)})"


def loads(*names: str) -> str:
    """Instructions that give words of the table their names."""
    return "\n".join(f"  %{name} = {table_word(name)}" for name in names)


def word_of(name: str, word: Word) -> str:
    """An instruction that gives a word of a `Fast` kernel its name."""
    return f"  %{name} = call i64 @word(ptr %words, i64 {int(word)})"
