"""acl.op: models of single operators: found in a folder or in memory, matched with what a call asks for, or compiled when it comes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.entries import status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.tensor_descs import TensorDesc
from anycann.acl.util import ptr_to_bytes
from anycann.model_programs import ModelPrograms, SessionOptions
from anycann.om.operator_spec import METADATA_KEY, OperandSpec, OperatorError, OperatorSpec, from_json
from anycann.om.plan import TensorSpec
from anycann.om.reader import read_offline_model
from anycann.runtime.executor import CompiledProgram
from anycann.support.errors import AnyCANNError, describe
from anycann.support.logging import get_logger

USUAL_QUEUE = 20000  # models kept ready, as many as Ascend keeps
_PART_CODES = {
    "type": Code.OP_NOT_FOUND,
    "input": Code.OP_INPUT_NOT_MATCH,
    "output": Code.OP_OUTPUT_NOT_MATCH,
    "attribute": Code.OP_ATTR_NOT_MATCH,
}
_log = get_logger("acl")


class OperatorModel:
    """One operator, ready to run for any shapes that `spec` takes."""

    acl_word: ClassVar[str] = "operator handle"

    def __init__(self, source: str | bytes, spec: OperatorSpec, where: str):
        self.spec, self.where = spec, where
        self._source = source
        self._programs: ModelPrograms | None = None
        self._last: tuple[OperatorSpec | None, CompiledProgram | None] = (None, None)  # of handles and loops, which call the same again

    def program(self, call: OperatorSpec) -> CompiledProgram:
        """What runs `call`."""
        last, executable = self._last
        if last is not call or executable is None:
            executable = self._find(call)
            self._last = (call, executable)
        return executable

    def _find(self, call: OperatorSpec) -> CompiledProgram:
        if any(size < 0 for operand in call.inputs for size in operand.shape):
            raise AclError(Code.INVALID_PARAM, f"{call.op} has inputs of open size; accepted: sizes that are known when it is made ready")
        if self._programs is None:
            self._programs = ModelPrograms(self._source, SessionOptions(), 0)
        given = [operand for operand in call.inputs if operand.dtype]
        specs = tuple(
            TensorSpec(declared.name, declared.dtype, operand.shape) for declared, operand in zip(self._programs.inputs, given, strict=True)
        )
        return self._programs.find(specs).executable


class OperatorModels:
    """Every single-operator model of the process."""

    def __init__(self) -> None:
        self._loaded: list[OperatorModel] = []
        self._folders: set[str] = set()
        self._kept: OrderedDict[str, OperatorModel] = OrderedDict()  # what a call came to, the last one used at the end
        self.most_kept = USUAL_QUEUE

    def add_folder(self, folder: str) -> None:
        """Take every model below `folder` that holds a single operator, once: public programs ask before each of their calls.

        Raises AclError for a folder that is not there.
        """
        path = Path(folder)
        if not path.is_dir():
            raise AclError(Code.INVALID_PARAM, f"{folder!r} is no folder; accepted: the one that atc --singleop wrote its models to")
        with PROCESS.lock:
            if folder in self._folders:
                return
            self._folders.add(folder)
            self._loaded += list(_models_in(path))
            self._kept.clear()

    def add(self, source: bytes) -> None:
        """Take a model in memory. Raises AclError if it holds no single operator."""
        model = _read(source, "the model in memory")
        with PROCESS.lock:
            self._loaded.append(model)
            self._kept.clear()

    def find(self, call: OperatorSpec) -> OperatorModel:
        """The model for a call: one that was loaded, else one made now. Raises AclError where there can be none, with what is nearest."""
        key = repr(call)
        with PROCESS.lock:
            if key not in self._kept:
                self._kept[key] = self._matching(call) or self._made(call)
                while len(self._kept) > self.most_kept:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def clear(self) -> None:
        """Forget all of them."""
        self.__init__()  # type: ignore[misc]

    def _matching(self, call: OperatorSpec) -> OperatorModel | None:
        return next((model for model in self._loaded if model.spec.difference(call) is None), None)

    def _made(self, call: OperatorSpec) -> OperatorModel:
        from anycann import single_operator  # imports ONNX and the compiler

        near = [
            f"{model.where}: {difference[1]}"
            for model in self._loaded
            if (difference := model.spec.difference(call)) and difference[0] != "type"
        ]
        hint = f"; the nearest loaded model, {near[0]}" if near else ""
        try:
            source = single_operator.operator_model(call)
            spec = single_operator.completed(call)
        except OperatorError as error:
            raise AclError(_PART_CODES[error.part], f"no loaded model matches, and none can be made: {error}{hint}") from error
        _log.warning("no loaded model matches %s; it is compiled now, where an Ascend answers 100024%s", call.op, hint)
        return OperatorModel(source, spec, f"{call.op}, compiled when it was called")


OPERATORS = OperatorModels()
PROCESS.ending.append(OPERATORS.clear)


def _read_settings() -> None:
    """`max_opqueue_num` of the file of acl.init."""
    count = PROCESS.config.get("max_opqueue_num")
    if count is None:
        return
    if not str(count).isdecimal() or int(str(count)) <= 0:
        raise AclError(Code.INVALID_MAX_OPQUEUE_NUM_CONFIG, f"max_opqueue_num is {count!r:.40}; accepted: a number of at least 1")
    OPERATORS.most_kept = int(str(count))


PROCESS.beginning.append(_read_settings)


def _models_in(folder: Path) -> Iterator[OperatorModel]:
    for file in sorted(folder.rglob("*.om")):
        try:
            yield _read(str(file), str(file))
        except AclError as error:
            _log.warning("%s is left out: %s", file, error)


def _read(source: str | bytes, where: str) -> OperatorModel:
    try:
        metadata = read_offline_model(source).metadata
        if METADATA_KEY not in metadata:
            raise AclError(Code.OP_LOAD_FAILED, f"{where} holds a whole model; accepted: one that atc --singleop made")
        return OperatorModel(source, from_json(metadata[METADATA_KEY], where), where)
    except AclError:
        raise
    except AnyCANNError as error:
        raise AclError(Code.OP_LOAD_FAILED, describe(error)) from error


# ---- what a call asks for
def operator_call(op_type: str, inputs: Sequence[int], outputs: Sequence[int], attributes: dict[str, object]) -> OperatorSpec:
    """A call in terms of tensor descriptions. Raises AclError for a handle that is none."""
    return OperatorSpec(op_type, tuple(operand_of(desc) for desc in inputs), tuple(operand_of(desc) for desc in outputs), attributes)


def operand_of(handle: int) -> OperandSpec:
    """What a tensor description says."""
    desc = PROCESS.handles.get(handle, TensorDesc)
    if desc.data_type == types.UNDEFINED:
        return OperandSpec("", (), "UNDEFINED")
    dtype = types.numpy_dtype_of(desc.data_type).name
    ranges = tuple((least, most) for least, most in desc.ranges)
    return OperandSpec(dtype, tuple(desc.dims), types.FORMATS[desc.format], ranges, _constant(desc))


def _constant(desc: TensorDesc) -> tuple[float, ...] | None:
    """The values of acl.set_tensor_const."""
    if desc.constant is None:
        return None
    if len(desc.constant) < desc.nbytes:
        raise AclError(Code.INVALID_PARAM, f"the constant has {len(desc.constant)} bytes; the tensor needs {desc.nbytes}")
    return tuple(np.frombuffer(desc.constant[: desc.nbytes], types.numpy_dtype_of(desc.data_type)).tolist())


# ---- loading
@status("acl.op.set_model_dir")
def set_model_dir(folder: str) -> None:
    """Take every single-operator model in a folder and below."""
    PROCESS.check_initialised()
    OPERATORS.add_folder(folder)


@status("acl.op.load")
def load(ptr: int, size: int) -> None:
    """Take the single-operator model whose `size` bytes lie at `ptr`."""
    if not ptr or size <= 0:
        raise AclError(Code.INVALID_PARAM, f"model of {size} bytes at {ptr:#x}; accepted: an address that is not null, at least 1 byte")
    data = ptr_to_bytes(ptr, size)
    if data is None:
        raise AclError(Code.INVALID_PARAM, f"{size} bytes at {ptr:#x} cannot be read")
    OPERATORS.add(data)


@status("acl.op.set_max_op_queue_num")
def set_max_op_queue_num(count: int) -> None:
    """How many models are kept ready; the one that was not used for longest goes first."""
    if count <= 0:
        raise AclError(Code.INVALID_MAX_OPQUEUE_NUM_CONFIG, f"the number of kept operators is {count}; accepted: at least 1")
    OPERATORS.most_kept = count
