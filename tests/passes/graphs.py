"""Graphs written as ONNX text, compiled, and what came of them as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
import onnx_ir as ir

from anycann.assembly import Compiled, GraphCompiler
from anycann.compiler import CompileOptions, convert_model, gear_shapes, input_specs
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.om.growing import GrowingConstants
from anycann.om.plan import HostStep, NativeStep, Program, RegionStep, Task
from anycann.session import InferenceSession, SessionOptions
from anycann.target.target import Target, by_name

AVX512 = by_name("avx512")  # generating needs no such processor
Arrays = Mapping[str, np.ndarray]


def parse(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    """The model of a graph in ONNX text; `constants` become initialisers by name. Nodes without a name get that of their first output."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20, "anycann": 1, "com.microsoft": 1]> {text}')
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    for node in model.graph.node:
        node.name = node.name or node.output[0]
    return model


def compile_graph(
    model: onnx.ModelProto, target: Target = AVX512, fuse: bool = True, switched_off: frozenset[str] = frozenset()
) -> Compiled:
    """The program of a model of fixed shapes."""
    graph = upgrade_model(ir.from_proto(model))
    (shapes,) = gear_shapes(graph.graph, ())
    return GraphCompiler(target, GrowingConstants(), fuse=fuse, switched_off=switched_off).compile(graph, input_specs(graph.graph, shapes))


def tasks(program: Program) -> list[Task]:
    return [task for step in program.steps if isinstance(step, NativeStep) for task in step.tasks]


def kernels(text: str, **constants: np.ndarray) -> list[str]:
    """The kernels of a graph, each as its operators: "Conv+Relu"."""
    return ["+".join(task.op_types) for task in tasks(compile_graph(parse(text, **constants)).program)]


def steps(program: Program) -> str:
    """The steps of a program in one line: "native(2) host(NonZero) deferred"."""
    words = []
    for step in program.steps:
        if isinstance(step, NativeStep):
            words.append(f"native({len(step.tasks)})")
        elif isinstance(step, HostStep):
            words.append(f"host({step.op_type})")
        elif isinstance(step, RegionStep):
            words.append(step.kind)
    return " ".join(words)


def told(model: onnx.ModelProto, report: str = "rules", target: Target = AVX512) -> tuple[str, ...]:
    """What a pass says of a graph, as `--explain` prints it."""
    (found,) = [each for each in convert_model(model, CompileOptions(target=target)).reports if each.name == report]
    return found.lines


def run(model: onnx.ModelProto, feeds: Arrays, **options: object) -> list[np.ndarray]:
    """What a session computes, in poisoned memory."""
    session = InferenceSession(model, SessionOptions(poison=True, **options))  # type: ignore[arg-type]
    return [np.asarray(result) for result in session.run(None, feeds)]


def by_definition(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    """What onnx.reference computes."""
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, dict(feeds))]


def assert_same(got: Sequence[np.ndarray], want: Sequence[np.ndarray], tolerance: float = 2e-5) -> None:
    """Shapes, dtypes and elements agree; the tolerance is relative to the largest element."""
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = float(np.abs(b[np.isfinite(b)]).max(initial=1.0)) if b.size else 1.0
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
