"""The models of the table with 8-bit weights and activations (QDQ), made by ONNX Runtime's quantizer from their real inputs.

Products with constant weights are quantised, with a scale a channel of the weights, and what lies between them: sums, pools, views. Sums
stay as they are in networks with attention, whose masks of -10000 would leave no step for anything else.
Needs onnxruntime; `scripts/fetch_models.py --quantised` does it for every model that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import importlib.util
import logging
import os
from pathlib import Path
import tempfile
from typing import Any
import warnings

import onnx

from benchmarks.zoo.models import Model, relative_error, run_all
from benchmarks.zoo.packages import FetchError, default_folder

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
BETWEEN = ("Add", "Concat", "MaxPool", "AveragePool", "GlobalAveragePool", "Relu", "Clip", "Resize", "Reshape", "Transpose", "Flatten")
WORST_ERROR = 0.5  # in the norm, of an output: beyond it the quantised file is another network
OPSET = 13  # the first whose QuantizeLinear takes a scale a channel
_CONTROL = frozenset({"If", "Loop", "Scan"})
_QUANTISED = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})


def target(model: Model, folder: Path | None = None) -> Path:
    """Where the quantised file lies; it need not be there yet."""
    return (folder or default_folder()) / "quantised" / f"{model.name}.onnx"


def why_not(graph: onnx.GraphProto) -> str:
    """Why a model is not quantised; "" if it can be."""
    types = {node.op_type for node in graph.node}
    if types & _CONTROL:
        return f"its work lies in {', '.join(sorted(types & _CONTROL))}, which the quantizer leaves alone"
    if types & _QUANTISED:
        return "it is quantised as it is published"
    return "" if types & set(PRODUCTS) else "it has no product with weights"


def quantise(model: Model, folder: Path | None = None, say: Callable[[str], None] = print) -> Path | None:
    """The quantised file, made if it is not there; None for a model that is not for it, said why. Raises FetchError."""
    file = target(model, folder)
    if file.is_file():
        return file
    loaded = onnx.load(model.path(folder))
    reason = why_not(loaded.graph)
    if reason:
        say(f"{model.name} is not quantised: {reason}")
        return None
    if importlib.util.find_spec("onnxruntime") is None:
        raise FetchError(f"{model.name} is quantised by onnxruntime, which is not installed: pip install 'anycann[bench]'")
    say(f"quantising {model.name}")
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.stem}.{os.getpid()}.onnx")
    try:
        _write(loaded, model, part)
    except Exception as failure:
        part.unlink(missing_ok=True)
        raise FetchError(f"{model.name} could not be quantised: {type(failure).__name__}: {failure}") from failure
    error = _error(model, model.path(folder), part)
    if error > WORST_ERROR:
        part.unlink()
        say(f"{model.name} is not quantised: its outputs would be off by {error:.2g} in the norm")
        return None
    part.replace(file)
    return file


def _error(model: Model, plain: Path, made: Path) -> float:
    """The greatest difference of an output that quantising makes, both run by ONNX Runtime."""
    import onnxruntime

    wanted, got = (run_all(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]), model) for path in (plain, made))
    return max(relative_error(g, w) for mine, right in zip(got, wanted, strict=True) for g, w in zip(mine, right, strict=True))


def kinds(graph: onnx.GraphProto) -> list[str]:
    """The operators that are quantised: without sums where a Softmax weighs a product."""
    weights = {name for node in graph.node if node.op_type == "Softmax" for name in node.output}
    attends = any(node.op_type == "MatMul" and weights & set(node.input) for node in graph.node)
    return [*PRODUCTS, *(name for name in BETWEEN if not (attends and name == "Add"))]


class _RealInputs:
    """The feeds of a model's calls, one after another, as the quantizer asks for them."""

    def __init__(self, model: Model):
        self._feeds: Iterator[dict[str, Any]] = iter(model.feeds())

    def get_next(self) -> dict[str, Any] | None:
        """The next call's feeds, None after the last."""
        return next(self._feeds, None)


def _write(loaded: onnx.ModelProto, model: Model, file: Path) -> None:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it advises what has been done
    try:
        with tempfile.TemporaryDirectory(prefix="anycann-quantise-") as scratch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain, prepared = Path(scratch) / "plain.onnx", Path(scratch) / "prepared.onnx"
            onnx.save(_modern(loaded), plain)
            quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)  # folds normalisations into convolutions
            _quantise(prepared, model, file, per_channel=True)
            if not scales_fit(onnx.load(file).graph):
                _quantise(prepared, model, file, per_channel=False)
    finally:
        root.setLevel(level)


def _quantise(prepared: Path, model: Model, file: Path, per_channel: bool) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    # it adjusts scales for 32-bit biases, and raises ValueError where there is a scale a channel
    options = {"MatMulConstBOnly": True, "QDQDisableWeightAdjustForInt32Bias": True}
    quantize_static(
        str(prepared),
        str(file),
        _RealInputs(model),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=kinds(onnx.load(prepared).graph),
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options=options,
    )


def scales_fit(graph: onnx.GraphProto) -> bool:
    """Whether constants have as many scales as channels. The quantizer gives a bias of shape [1, n] its n scales along axis 0."""
    sizes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        data, scale = (sizes.get(name) for name in node.input[:2]) if node.op_type == "DequantizeLinear" else (None, None)
        if data and scale and scale != [1]:  # one scale is for all
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
            if axis >= len(data) or data[axis] != scale[0]:
                return False
    return True


def _modern(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that has all that is written into it."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    return model if opset >= OPSET else onnx.version_converter.convert_version(model, OPSET)
