"""Programs written by hand for the tests of the executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper
from runtime_kernels import binary_kernel, load

from anycann.om.plan import Buffer, HostStep, Location, NativeStep, Program, RegionStep, Task, TensorSpec
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.host import Evaluate, HostRunner
from anycann.runtime.loader import LoadedCode
from anycann.runtime.region_cache import RegionCache
from anycann.runtime.thread_pool import ThreadPool


class Kernels:
    """fadd and fmul of float32 and add of int64, loaded once."""

    def __init__(self) -> None:
        self.symbols: dict[str, str] = {}
        texts = []
        for opcode, element in (("fadd", "float"), ("fmul", "float"), ("add", "i64")):
            symbol, text = binary_kernel(opcode, 0, element)
            self.symbols[opcode] = symbol
            texts.append((symbol, text))
        self.code: LoadedCode = load(*texts)


def spec(name: str, shape: Sequence[int | None] = (), dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name, dtype, tuple(shape))


class ProgramBuilder:
    """Collects inputs, kernels, host nodes and regions; every native result gets a place of its own in the arena, or an output."""

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], constants: Mapping[str, np.ndarray] | None = None):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.values: dict[str, Location] = {}
        self.steps: list[NativeStep | HostStep | RegionStep] = []
        self.arena_bytes = 0
        self.constants = np.zeros(64, np.uint8)
        for i, one in enumerate(inputs):
            if one.dtype != "object" and all(isinstance(size, int) for size in one.shape):
                self.values[one.name] = Location(one, Buffer("input", 0, nbytes(one), i))
        for name, array in (constants or {}).items():
            self._constant(name, array)

    def _constant(self, name: str, array: np.ndarray) -> None:
        place = Buffer("constants", len(self.constants) - 64, array.nbytes)
        self.values[name] = Location(spec(name, array.shape, array.dtype.name), place)
        room = np.zeros(place.offset_bytes + -(-array.nbytes // 64) * 64 + 64, np.uint8)
        room[: place.offset_bytes] = self.constants[: place.offset_bytes]
        room[place.offset_bytes : place.offset_bytes + array.nbytes] = array.reshape(-1).view(np.uint8)
        self.constants = room

    def place(self, one: TensorSpec) -> Location:
        """An output if the value is one, else a piece of the arena."""
        names = [output.name for output in self.outputs]
        if one.name in names:
            place = Buffer("output", 0, nbytes(one), names.index(one.name))
        else:
            place = Buffer("arena", self.arena_bytes, nbytes(one))
            self.arena_bytes += -(-nbytes(one) // 64) * 64
        self.values[one.name] = Location(one, place)
        return self.values[one.name]

    def native(self, *calls: tuple[str, str, str, TensorSpec], kernels: Kernels) -> ProgramBuilder:
        """One native step of (opcode, a, b, result): elementwise kernels."""
        tasks = []
        for opcode, a, b, result in calls:
            out = self.place(result)
            count = int(np.prod(result.shape))
            arguments = (self.values[a].buffer, self.values[b].buffer, out.buffer)
            tasks.append(Task(kernels.symbols[opcode], arguments, count, 0, (f"node_{result.name}",), (opcode,), (result.name,), count))
        self.steps.append(NativeStep(tuple(tasks)))
        return self

    def host(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], located: Sequence[TensorSpec] = (), **attributes: object
    ) -> ProgramBuilder:
        """An AiCpu node; `located` results get a place, others live in the environment."""
        for one in located:
            self.place(one)
        node = helper.make_node(op_type, inputs, outputs, **attributes)
        self.steps.append(HostStep(node.SerializeToString(), 26, f"host_{op_type}", op_type, tuple(inputs), tuple(outputs)))
        return self

    def region(self, step: RegionStep, located: Sequence[TensorSpec] = ()) -> ProgramBuilder:
        for one in located:
            self.place(one)
        self.steps.append(step)
        return self

    def program(self) -> Program:
        return Program(self.inputs, self.outputs, self.arena_bytes, tuple(self.steps), self.values)

    def compiled(self, kernels: Kernels, pool: ThreadPool, regions: RegionCache | None = None, poison: bool = True) -> CompiledProgram:
        return CompiledProgram(self.program(), self.constants, kernels.code, pool, HostRunner(prepare), regions, poison)


def prepare(node: onnx.NodeProto, opset: int) -> Evaluate:
    """The numpy meaning of the operators that the tests use."""
    return lambda inputs, captures=None: HOST[node.op_type](*inputs)


def _nonzero(x: np.ndarray) -> list[object]:
    return [np.array(np.nonzero(x), np.int64)]


HOST: dict[str, Callable[..., list[object]]] = {
    "Neg": lambda x: [-x],
    "Identity": lambda x: [x],
    "NonZero": _nonzero,
    "SequenceConstruct": lambda *xs: [list(xs)],
    "SequenceLength": lambda xs: [np.array(len(xs), np.int64)],
    "Greater": lambda a, b: [np.array(a > b)],
    "Less": lambda a, b: [np.array(a < b)],
    "ReduceSum": lambda x: [np.array(x.sum())],
    "Compress": lambda x, condition: [x[condition]],
    "Add": lambda a, b: [a + b],
    "Mul": lambda a, b: [a * b],
    "Optional": lambda *x: [x[0] if x else None],
    "OptionalHasElement": lambda x: [np.array(x is not None)],
    "Concat": lambda *xs: [np.concatenate(xs)],
    "WrongDtype": lambda x: [x.astype(np.float64)],
    "WrongShape": lambda x: [x[:-1]],
}


def nbytes(one: TensorSpec) -> int:
    return int(np.prod(one.shape)) * np.dtype(one.dtype).itemsize
