"""Programs of torch.export (`torch.export.save`: .pt2 files) as models. PyTorch itself is needed to read them."""

from __future__ import annotations

from collections.abc import Sequence
import operator
from typing import TYPE_CHECKING, Any
import zipfile

import numpy as np
import onnx_ir as ir

from anycann.support.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    import torch

ASSERTIONS = ("aten._assert_tensor_metadata.default",)


def holds_program(path: str) -> bool:
    """Whether a file is a program of torch.export: a zip archive with a graph in it, which a checkpoint does not have."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return any(name.endswith("archive_format") for name in names) and any("/models/" in name for name in names)


def load_program(path: str) -> ir.Model:
    """The model in a .pt2 file. Raises UnsupportedError without PyTorch, ModelError for a damaged file."""
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError(f"{path} is a program of torch.export; PyTorch is needed to read it: pip install torch") from error
    try:
        program = torch.export.load(path)
    except Exception as error:  # of many kinds
        raise ModelError(f"{path}: torch.export cannot load it: {error}") from error
    return model_of(program)


def model_of(program: torch.export.ExportedProgram) -> ir.Model:
    """The model of an exported program: its inputs and outputs by their names there, weights as constants.

    Programs with open sizes, and those with operators that have no translation here, go by torch.onnx if its exporter is installed.
    Raises UnsupportedError, with the names of the operators, if they cannot.
    """
    from anycann.frontends.torch_fx.decomposed import decomposed

    plain = decomposed(program)
    missing = _untranslated(plain)
    if missing:
        return _by_torch_onnx(program, missing)
    return _translated(plain)


# ---- by the table
def _untranslated(program: torch.export.ExportedProgram) -> list[str]:
    """What keeps the program from being translated: operators with the reason, open sizes."""
    from anycann.frontends.torch_fx.translate import why_not

    found: dict[str, None] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and _is_open(node.meta.get("val")):
            found[f"input {node.name} has open sizes"] = None
        if _computes(node) and node.target is not operator.getitem:
            reason = why_not(node)
            if reason is not None:
                found[f"{node.target}: {reason}"] = None
    return list(found)


def _computes(node: Any) -> bool:
    """Whether a node is a call with a result; what a program asserts of dtypes and devices has been so when it was exported."""
    return node.op == "call_function" and str(node.target) not in ASSERTIONS


def _is_open(value: Any) -> bool:
    return not all(isinstance(size, int) for size in getattr(value, "shape", ()))


def _translated(program: torch.export.ExportedProgram) -> ir.Model:
    from anycann.frontends.torch_fx.arrays import array_of
    from anycann.frontends.torch_fx.translate import translate

    given = [node for node in program.graph.nodes if node.op == "placeholder"]
    weights = _weights(program)
    constants: dict[Any, np.ndarray] = {node: array_of(weights[node.name]) for node in given if node.name in weights}
    inputs = [node for node in given if node not in constants and getattr(node.meta.get("val"), "shape", None) is not None]
    wanted = set(program.graph_signature.user_outputs)
    outputs = [node for node in program.graph.output_node().args[0] if getattr(node, "name", None) in wanted]
    nodes = [node for node in program.graph.nodes if _computes(node)]
    model = translate(nodes, inputs, outputs, constants).model
    _rename(model.graph.inputs, [node.name for node in inputs])
    _rename(model.graph.outputs, [f"{node.name}/output" if node in inputs else str(node.name) for node in outputs])
    return model


def _weights(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Tensors that the program carries, by the names of its inputs."""
    signature = program.graph_signature
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    found = {}
    for name, target in named.items():
        value = program.state_dict.get(target)
        found[name] = program.constants[target] if value is None else value
    return found


def _rename(values: Sequence[ir.Value], names: Sequence[str]) -> None:
    """The program's own names; those of values inside give way."""
    for value, name in zip(values, names, strict=True):
        for node in value.graph or ():
            for other in node.outputs:
                if other.name == name and other is not value:
                    other.name = f"{name}/value"
        value.name = name


# ---- by torch's exporter
def _by_torch_onnx(program: torch.export.ExportedProgram, missing: Sequence[str]) -> ir.Model:
    """The model as torch.onnx makes it."""
    import torch

    from anycann.frontends.onnx.load import load_model
    from anycann.frontends.onnx.upgrade import upgrade_model

    try:
        exported = torch.onnx.export(program, dynamo=True, verbose=False)
    except Exception as error:  # the exporter is not installed, or fails in ways of its own
        raise UnsupportedError(f"the program cannot be translated ({'; '.join(missing)}), nor exported by torch.onnx: {error}") from error
    return upgrade_model(load_model(exported.model_proto))
