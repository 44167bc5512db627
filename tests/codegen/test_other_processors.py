"""Every kind of kernel compiles for a processor that is not here: whole small models, for NEON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from anycann.compiler import CompileOptions, convert_model
from anycann.om.plan import NativeStep
from anycann.target.target import by_name

NEON_MACHINE = 183  # EM_AARCH64 of the ELF header


@dataclass(frozen=True)
class Kind:
    """A model of the nodes `body` that makes z; shapes of its float32 inputs and weights. One kernel's name begins with `kernel`."""

    kernel: str
    body: str
    inputs: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


IMAGE, VOLUME, SEQUENCE = {"x": (1, 9, 11, 13)}, {"x": (1, 5, 4, 5, 6)}, {"x": (1, 9, 50)}
ROWS, STEPS = {"x": (5, 77)}, {"x": (4, 2, 5)}
BYTES = (
    "s = Constant<value_float=0.02>() q = QuantizeLinear<output_dtype=2>(x, s) d = DequantizeLinear(q, s) "
    "k = QuantizeLinear<output_dtype=3>(w, s) e = DequantizeLinear(k, s) c = Conv(d, e) o = QuantizeLinear<output_dtype=2>(c, s) "
    "z = DequantizeLinear(o, s)"
)
KINDS = {
    "direct convolution": Kind("conv", "z = Conv<strides=[2,2]>(x, w)", IMAGE, {"w": (10, 9, 3, 3)}),
    "first layer": Kind("conv", "z = Conv<strides=[2,2],pads=[3,3,3,3]>(x, w)", {"x": (1, 3, 15, 13)}, {"w": (8, 3, 7, 7)}),
    "pointwise": Kind("conv", "z = Conv(x, w)", IMAGE, {"w": (13, 9, 1, 1)}),
    "depthwise": Kind("conv", "z = Conv<group=9,pads=[1,1,1,1]>(x, w)", IMAGE, {"w": (9, 1, 3, 3)}),
    "grouped": Kind("conv", "z = Conv<group=4>(x, w)", {"x": (1, 32, 9, 9)}, {"w": (32, 8, 3, 3)}),
    "dilated": Kind("conv", "z = Conv<dilations=[2,2]>(x, w)", IMAGE, {"w": (10, 9, 3, 3)}),
    "transposed": Kind("deconv", "z = ConvTranspose<strides=[2,2]>(x, w)", IMAGE, {"w": (9, 7, 3, 3)}),
    "Winograd": Kind("winograd", "z = Conv<pads=[1,1,1,1]>(x, w)", {"x": (1, 32, 16, 16)}, {"w": (32, 32, 3, 3)}),
    "convolution of a sequence": Kind("planes", "z = Conv(x, w)", SEQUENCE, {"w": (10, 9, 7)}),
    "convolution of a volume": Kind("conv", "z = Conv<strides=[2,2,2]>(x, w)", VOLUME, {"w": (9, 5, 3, 3, 3)}),
    "matrix times vector": Kind("matmul", "z = MatMul(x, w)", {"x": (1, 37)}, {"w": (37, 53)}),
    "product with what follows it": Kind(
        "matmul", "p = MatMul(x, w) a = Add(p, v) g = Gelu(a) z = Add(g, y)", {"x": (33, 37), "y": (33, 53)}, {"w": (37, 53), "v": (53,)}
    ),
    "products of a batch": Kind("matmul", "t = Transpose<perm=[0,2,1]>(y) z = MatMul(x, t)", {"x": (3, 8, 9), "y": (3, 7, 9)}),
    "attention": Kind("attention", "z = Attention<is_causal=1>(x, y, y)", {"x": (1, 4, 9, 16), "y": (1, 2, 9, 16)}),
    "softmax": Kind("softmax", "z = Softmax<axis=1>(x)", ROWS),
    "layer normalisation": Kind("layernorm", "z = LayerNormalization(x, w)", ROWS, {"w": (77,)}),
    "RMS normalisation": Kind("rmsnorm", "z = RMSNormalization(x, w)", ROWS, {"w": (77,)}),
    "group normalisation": Kind("groupnorm", "z = GroupNormalization<num_groups=3>(x, w, v)", IMAGE, {"w": (9,), "v": (9,)}),
    "instance normalisation": Kind("instancenorm", "z = InstanceNormalization(x, w, v)", IMAGE, {"w": (9,), "v": (9,)}),
    "LSTM": Kind("lstm", "z, h, c = LSTM<hidden_size=6>(x, w, v)", STEPS, {"w": (1, 24, 5), "v": (1, 24, 6)}),
    "GRU": Kind("gru", "z, h = GRU<hidden_size=6>(x, w, v)", STEPS, {"w": (1, 18, 5), "v": (1, 18, 6)}),
    "embedding": Kind("cast_gather", "i = Cast<to=7>(x) z = Gather(w, i)", {"x": (3, 5)}, {"w": (20, 9)}),
    "functions": Kind("exp", "a = Exp(x) b = Tanh(a) c = Erf(b) d = Sigmoid(c) e = Log(d) z = Sin(e)", ROWS),
    "storage of 16 bits": Kind("conv", "h = Cast<to=10>(x) u = Cast<to=10>(w) z = Conv(h, u)", IMAGE, {"w": (10, 9, 3, 3)}),
    "bytes": Kind("conv", BYTES, IMAGE, {"w": (10, 9, 3, 3)}),
}


def model_of(kind: Kind) -> onnx.ModelProto:
    values = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in kind.inputs.items())
    model = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["": 23]> g ({values}) => (z) {{ {kind.body} }}')
    rng = np.random.default_rng()
    for name, shape in kind.weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name))
    return model


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_kernel_compiles_for_neon(name: str) -> None:
    model = convert_model(model_of(KINDS[name]), CompileOptions(target=by_name("neon"))).model
    (program,), (objects,) = model.programs.values(), model.code.values()
    assert all(isinstance(step, NativeStep) for step in program.steps), "a part is left to the host"
    assert [symbol for symbol in objects if symbol.startswith(KINDS[name].kernel)], list(objects)
    for data in objects.values():
        assert (data[:4], int.from_bytes(data[18:20], "little")) == (b"\x7fELF", NEON_MACHINE)
