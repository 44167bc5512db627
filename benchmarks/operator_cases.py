"""Models of one operator at sizes that published networks have them, for `benchmarks.operators`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSETS = {"": 20, "ai.onnx.ml": 3}
IR_VERSION = 10


@dataclass(frozen=True)
class Case:
    """One node. operands: None for an absent one; `constant`: operand numbers that are initialisers; `outputs`: how many results."""

    name: str
    op_type: str
    operands: tuple[np.ndarray | None, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    outputs: int = 1
    domain: str = ""

    def model(self) -> onnx.ModelProto:
        """The node as a model with the types of its operands; those of its results are left to be inferred."""
        names = ["" if operand is None else f"x{number}" for number, operand in enumerate(self.operands)]
        results = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.op_type, names, results, self.op_type, domain=self.domain, **self.attributes)  # type: ignore[arg-type]
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.feeds().items()
        ]
        weights = [numpy_helper.from_array(self.operands[number], names[number]) for number in self.constant]  # type: ignore[arg-type]
        graph = helper.make_graph([node], self.op_type, inputs, [onnx.ValueInfoProto(name=name) for name in results], weights)
        opset = helper.make_opsetid(self.domain, OPSETS[self.domain])
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)

    def feeds(self) -> dict[str, np.ndarray]:
        """The operands that are inputs, by name."""
        return {f"x{n}": array for n, array in enumerate(self.operands) if array is not None and n not in self.constant}


_RNG = np.random.default_rng(20260704)


def _f(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _i(low: int, high: int, *shape: int, dtype: str = "int64") -> np.ndarray:
    return _RNG.integers(low, high, shape).astype(dtype)


def _n(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def elementwise() -> list[Case]:
    """Arithmetic, comparisons and functions on one tensor of a hidden layer."""
    image, text = (1, 64, 112, 112), (8, 128, 768)
    cases = [Case(op, op, (_f(*text),)) for op in ("Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Abs", "Neg", "Floor", "Softplus")]
    cases += [Case(op, op, (_f(*image),)) for op in ("Relu", "LeakyRelu", "Elu", "HardSwish", "Gelu", "Mish")]
    cases += [Case(op, op, (_f(*text), _f(*text))) for op in ("Add", "Mul", "Div", "Max")]
    cases += [Case(op, op, (np.abs(_f(*text)),)) for op in ("Sqrt", "Log")]
    cases += [Case("Add row", "Add", (_f(*text), _f(768))), Case("Pow row", "Pow", (np.abs(_f(*text)), _f(768)))]
    cases += [Case("Add channel", "Add", (_f(*image), _f(64, 1, 1))), Case("Mul gate", "Mul", (_f(*image), _f(1, 64, 1, 1)))]
    whole = (_i(-99, 99, *text), _i(1, 99, *text))
    cases += [Case(f"{op} int64", op, whole) for op in ("Add", "Mul", "Div", "Mod", "Less")]
    cases += [Case(f"{op} int32", op, tuple(a.astype(np.int32) for a in whole)) for op in ("Add", "Mul", "Div")]
    flags = (_f(*text) > 0, _f(*text) > 0)
    cases += [Case(op, op, flags) for op in ("And", "Xor")]
    cases += [Case("Not", "Not", flags[:1]), Case("Equal", "Equal", (_f(*text), _f(*text))), Case("IsNaN", "IsNaN", (_f(*text),))]
    cases += [
        Case("Where", "Where", (flags[0], _f(*text), _f(*text))),
        Case("Where scalar", "Where", (flags[0], _f(*text), np.zeros(1, np.float32))),
    ]
    cases += [Case("Clip", "Clip", (_f(*image), np.array(0, np.float32), np.array(6, np.float32)), constant=(1, 2))]
    cases += [Case("Cast to int64", "Cast", (_f(*text),), {"to": 7}), Case("Cast to half", "Cast", (_f(*text),), {"to": 10})]
    cases += [Case("Cast of uint8", "Cast", (_i(0, 255, 1, 3, 640, 640, dtype="uint8"),), {"to": 1})]
    return [*cases, Case("PRelu", "PRelu", (_f(*image), _f(64, 1, 1)), constant=(1,))]


def reductions() -> list[Case]:
    """Sums, extremes and their places along each axis."""
    cases = []
    for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2"):
        for axes in ((0,), (1,), (2,), (1, 2), (0, 1, 2)):
            cases.append(Case(f"{op} {axes}", op, (_f(16, 128, 384), _n(*axes)), constant=(1,)))
    cases += [Case("ReduceMean image", "ReduceMean", (_f(1, 256, 56, 56), _n(2, 3)), constant=(1,))]
    cases += [Case(f"ArgMax axis {axis}", "ArgMax", (_f(16, 128, 384),), {"axis": axis}) for axis in (0, 1, 2)]
    cases += [
        Case("ArgMax classes", "ArgMax", (_f(1, 80, 8400),), {"axis": 1}),
        Case("ArgMax segments", "ArgMax", (_f(1, 21, 512, 512),), {"axis": 1}),
    ]
    cases += [Case("ReduceSum int64", "ReduceSum", (_i(0, 9, 16, 128, 384), _n(2)), constant=(1,))]
    cases += [Case(f"CumSum axis {axis}", "CumSum", (_f(16, 128, 384), np.array(axis)), constant=(1,)) for axis in (0, 1, 2)]
    cases += [Case(f"Softmax axis {axis}", "Softmax", (_f(12, 128, 128),), {"axis": axis}) for axis in (0, 1, 2)]
    cases += [Case(f"Softmax width {width}", "Softmax", (_f(512, width),)) for width in (7, 17, 49, 197, 1000)]
    return [
        *cases,
        Case("LogSoftmax", "LogSoftmax", (_f(64, 6625),)),
        Case("Softmax distribution", "Softmax", (_f(4, 16, 8400),), {"axis": 1}),
    ]


def normalisations() -> list[Case]:
    """Layer, root mean square, group, instance and batch normalisation."""
    cases = [
        Case(f"LayerNormalization {w}", "LayerNormalization", (_f(197, w), _f(w), _f(w)), {"axis": -1}, (1, 2))
        for w in (49, 96, 197, 768, 1023)
    ]
    cases += [Case("InstanceNormalization", "InstanceNormalization", (_f(1, 64, 128, 128), _f(64), _f(64)), constant=(1, 2))]
    cases += [Case("InstanceNormalization audio", "InstanceNormalization", (_f(4, 80, 401), _f(80), _f(80)), constant=(1, 2))]
    cases += [Case("GroupNormalization", "InstanceNormalization", (_f(1, 32, 40960), _f(32), _f(32)), constant=(1, 2))]
    batch = (_f(1, 64, 112, 112), *(np.abs(_f(64)) for _ in range(4)))
    cases += [Case("BatchNormalization", "BatchNormalization", batch, constant=(1, 2, 3, 4))]
    return [*cases, Case("LpNormalization", "LpNormalization", (_f(512, 512),)), Case("LRN", "LRN", (_f(1, 64, 56, 56),), {"size": 5})]


def movement() -> list[Case]:
    """Elements moved and chosen: transposes, parts, padding, gathers and scatters."""
    cases = [Case(f"Transpose {'x'.join(map(str, s))} {p}", "Transpose", (_f(*s),), {"perm": p}) for s, p in (
        ((1024, 1024), [1, 0]), ((8, 128, 768), [0, 2, 1]), ((8, 128, 768), [1, 0, 2]), ((8, 128, 12, 64), [0, 2, 1, 3]),
        ((8, 12, 128, 64), [0, 1, 3, 2]), ((1, 3, 640, 640), [0, 2, 3, 1]), ((1, 640, 640, 3), [0, 3, 1, 2]),
        ((1, 256, 40, 40), [0, 2, 3, 1]),
        ((1, 84, 8400), [0, 2, 1]), ((1, 3, 85, 80, 80), [0, 1, 3, 4, 2]),
        ((3, 224, 224), [1, 2, 0]), ((4, 8400), [1, 0]), ((3, 100, 300), [2, 1, 0]),
    )]  # fmt: skip
    cases += [Case(f"Concat axis {axis}", "Concat", (_f(8, 64, 768), _f(8, 64, 768)), {"axis": axis}) for axis in (0, 1, 2)]
    cases += [Case("Split inner", "Split", (_f(8, 128, 2304), _n(768, 768, 768)), {"axis": 2}, (1,), 3)]
    cases += [Case("Split channels", "Split", (_f(1, 128, 80, 80), _n(64, 64)), {"axis": 1}, (1,), 2)]
    cases += [Case("Slice steps", "Slice", (_f(1, 3, 640, 640), _n(0, 0), _n(640, 640), _n(2, 3), _n(2, 2)), constant=(1, 2, 3, 4))]
    cases += [Case("Slice inner", "Slice", (_f(1, 8400, 85), _n(5), _n(85), _n(2)), constant=(1, 2, 3))]
    for mode in ("constant", "reflect", "edge"):
        cases.append(Case(f"Pad {mode}", "Pad", (_f(1, 32, 160, 160), _n(0, 0, 1, 1, 0, 0, 1, 1)), {"mode": mode}, (1,)))
    cases += [
        Case("Tile", "Tile", (_f(1, 128, 768), _n(8, 1, 1)), constant=(1,)),
        Case("Expand", "Expand", (_f(128, 1), _n(8, 128, 768)), constant=(1,)),
    ]
    cases += [
        Case("DepthToSpace", "DepthToSpace", (_f(1, 48, 160, 160),), {"blocksize": 4}),
        Case("DepthToSpace 3x3", "DepthToSpace", (_f(1, 27, 64, 64),), {"blocksize": 3}),
        Case("SpaceToDepth", "SpaceToDepth", (_f(1, 3, 640, 640),), {"blocksize": 2}),
    ]
    cases += [Case("Gather embedding", "Gather", (_f(30522, 384), _i(0, 30522, 8, 128)), constant=(0,))]
    cases += [Case("Gather inner", "Gather", (_f(8, 128, 768), _i(0, 768, 64)), {"axis": 2})]
    cases += [Case("GatherElements", "GatherElements", (_f(1, 8400, 80), _i(0, 8400, 1, 300, 80)), {"axis": 1})]
    cases += [Case("GatherND", "GatherND", (_f(1, 8400, 84), np.stack([_i(0, 1, 300), _i(0, 8400, 300)], 1)))]
    cases += [Case("ScatterND", "ScatterND", (_f(8400, 84), _i(0, 8400, 300, 1), _f(300, 84)))]
    cases += [
        Case(
            "ScatterElements",
            "ScatterElements",
            (_f(300, 8400), _RNG.permuted(np.tile(np.arange(8400), (300, 1)), axis=1)[:, :40], _f(300, 40)),
            {"axis": 1},
        )
    ]
    cases += [
        Case("ScatterElements add", "ScatterElements", (_f(1000, 64), _i(0, 1000, 4000, 64), _f(4000, 64)), {"axis": 0, "reduction": "add"})
    ]
    cases += [Case("OneHot", "OneHot", (_i(0, 1000, 512), np.array(1000), np.array([0, 1], np.float32)), constant=(1, 2))]
    cases += [Case("Trilu", "Trilu", (_f(12, 512, 512),)), Case("Range", "Range", (np.array(0), np.array(8400), np.array(1)))]
    return [*cases, Case("ReverseSequence", "ReverseSequence", (_f(128, 8, 256), _n(*range(121, 129))))]


def windows() -> list[Case]:
    """Poolings, convolutions of every kind, resizing and sampling."""
    three, five = {"kernel_shape": [3, 3], "pads": [1] * 4}, {"kernel_shape": [5, 5], "pads": [2] * 4}
    cases = [
        Case("MaxPool 3x3/2", "MaxPool", (_f(1, 64, 112, 112),), {**three, "strides": [2, 2]}),
        Case("MaxPool 2x2/2", "MaxPool", (_f(1, 64, 112, 112),), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Case("MaxPool 5x5", "MaxPool", (_f(1, 256, 20, 20),), five),
        Case("MaxPool 13x13", "MaxPool", (_f(1, 256, 20, 20),), {"kernel_shape": [13, 13], "pads": [6] * 4}),
        Case("MaxPool 1d/2", "MaxPool", (_f(4, 64, 4000),), {"kernel_shape": [2], "strides": [2]}),
        Case("MaxPool 1d 3", "MaxPool", (_f(4, 64, 4000),), {"kernel_shape": [3], "pads": [1, 1]}),
        Case("MaxPool 3d/2", "MaxPool", (_f(1, 32, 16, 56, 56),), {"kernel_shape": [2] * 3, "strides": [2] * 3}),
        Case("MaxPool heatmap 3x3", "MaxPool", (_f(1, 80, 128, 128),), three),
        Case("AveragePool 3x3", "AveragePool", (_f(1, 64, 56, 56),), three),
        Case("AveragePool 2x2/2", "AveragePool", (_f(1, 64, 56, 56),), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Case("AveragePool 1d", "AveragePool", (_f(4, 64, 4000),), {"kernel_shape": [4], "strides": [4]}),
        Case("GlobalAveragePool", "GlobalAveragePool", (_f(1, 1280, 7, 7),)),
        Case("GlobalMaxPool", "GlobalMaxPool", (_f(1, 512, 28, 28),)),
    ]
    for mode in ("nearest", "linear", "cubic"):
        for size in (2.0, 0.5):
            scales = np.array([1, 1, size, size], np.float32)
            cases.append(Case(f"Resize {mode} {size}", "Resize", (_f(1, 64, 80, 80), None, scales), {"mode": mode}, (2,)))
    corners = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    cases += [Case("Resize corners", "Resize", (_f(1, 21, 65, 65), None, None, _n(1, 21, 513, 513)), corners, (3,))]
    cases += [Case("Resize floor", "Resize", (_f(1, 128, 40, 40), None, np.array([1, 1, 2, 2], np.float32)),
                   {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, (2,))]  # fmt: skip
    grid = _RNG.uniform(-1, 1, (1, 80, 80, 2)).astype(np.float32)
    cases += [
        Case(f"GridSample {mode}", "GridSample", (_f(1, 64, 80, 80), grid), {"mode": mode}) for mode in ("linear", "nearest", "cubic")
    ]
    corner = _RNG.uniform(0, 40, (100, 2))
    boxes = np.concatenate([corner, corner + _RNG.uniform(4, 30, (100, 2))], 1).astype(np.float32)
    rois = {"output_height": 7, "output_width": 7, "sampling_ratio": 2}
    cases += [Case("RoiAlign", "RoiAlign", (_f(1, 256, 50, 50), boxes, np.zeros(100, np.int64)), rois)]
    return cases


def products() -> list[Case]:
    """Convolutions, matrix products of odd shapes, and recurrent layers."""

    def conv(name: str, x: Sequence[int], w: Sequence[int], op: str = "Conv", **attributes: object) -> Case:
        return Case(name, op, (_f(*x), _f(*w)), attributes, (1,))

    cases = [
        conv("Conv 3x3", (1, 64, 56, 56), (64, 64, 3, 3), pads=[1] * 4),
        conv("Conv 1x1", (1, 256, 28, 28), (128, 256, 1, 1)),
        conv("Conv depthwise", (1, 96, 56, 56), (96, 1, 3, 3), pads=[1] * 4, group=96),
        conv("Conv grouped", (1, 128, 28, 28), (128, 4, 3, 3), pads=[1] * 4, group=32),
        conv("Conv dilated", (1, 128, 33, 33), (128, 128, 3, 3), pads=[6] * 4, dilations=[6, 6]),
        conv("Conv 1d", (1, 80, 1500), (384, 80, 3), pads=[1, 1]),
        conv("Conv 1d depthwise", (1, 512, 400), (512, 1, 31), pads=[15, 15], group=512),
        conv("Conv 1d stride 5", (1, 1, 16000), (512, 1, 10), strides=[5]),
        conv("Conv 3d", (1, 16, 16, 56, 56), (32, 16, 3, 3, 3), pads=[1] * 6),
        conv("ConvTranspose 2x2/2", (1, 128, 40, 40), (128, 64, 2, 2), "ConvTranspose", strides=[2, 2]),
        conv("ConvTranspose 4x4/2", (1, 64, 40, 40), (64, 64, 4, 4), "ConvTranspose", strides=[2, 2], pads=[1] * 4),
        conv("ConvTranspose 1d", (1, 256, 100), (256, 128, 16), "ConvTranspose", strides=[8], pads=[4, 4]),
    ]
    for a, b in (((1, 768), (768, 3072)), ((1, 4096), (4096, 4096)), ((17, 129), (129, 65)), ((197, 768), (768, 768)), ((3, 5), (5, 7))):
        cases.append(Case(f"MatMul {a[0]}x{a[1]}x{b[1]}", "MatMul", (_f(*a), _f(*b)), constant=(1,)))
    cases += [
        Case("MatMul two inputs", "MatMul", (_f(12, 128, 64), _f(12, 64, 128))),
        Case("MatMul vector", "MatMul", (_f(1024, 1024), _f(1024))),
    ]
    cases += [
        Case("MatMul outer", "MatMul", (_f(512, 1), _f(1, 512))),
        Case("MatMul 1 x 64 keys", "MatMul", (_f(12, 1, 64), _f(12, 64, 512))),
    ]
    cases += [Case("Gemm transposed", "Gemm", (_f(64, 512), _f(1000, 512), _f(1000)), {"transB": 1}, (1, 2))]
    cases += [Case("Einsum bhid,bhjd", "Einsum", (_f(8, 12, 64, 64), _f(8, 12, 64, 64)), {"equation": "bhid,bhjd->bhij"})]
    cases += [Case("Einsum outer", "Einsum", (_f(8, 512), _f(8, 512)), {"equation": "bi,bj->bij"})]
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        weights = (_f(1, gates * 128, 64) / 16, _f(1, gates * 128, 128) / 16, _f(1, 2 * gates * 128))
        cases.append(Case(op, op, (_f(50, 1, 64), *weights), {"hidden_size": 128}, (1, 2, 3), 2))
    weights = (_f(2, 1024, 128) / 16, _f(2, 1024, 256) / 16, _f(2, 2048))
    return [
        *cases,
        Case("LSTM both ways", "LSTM", (_f(40, 4, 128), *weights), {"hidden_size": 256, "direction": "bidirectional"}, (1, 2, 3)),
    ]


def quantised() -> list[Case]:
    """Quantising, dequantising, and products of bytes."""
    scale, zero = np.array(0.02, np.float32), np.array(3, np.uint8)
    image = (1, 64, 112, 112)
    cases = [Case("QuantizeLinear", "QuantizeLinear", (_f(*image), scale, zero), constant=(1, 2))]
    cases += [Case("DequantizeLinear", "DequantizeLinear", (_i(0, 255, *image, dtype="uint8"), scale, zero), constant=(1, 2))]
    cases += [Case("DynamicQuantizeLinear", "DynamicQuantizeLinear", (_f(128, 768),), outputs=3)]
    bytes_ = (_i(0, 255, 128, 768, dtype="uint8"), _i(-127, 127, 768, 768, dtype="int8"), zero)
    cases += [Case("MatMulInteger", "MatMulInteger", bytes_, constant=(1, 2))]
    qconv = (
        _i(0, 255, 1, 64, 56, 56, dtype="uint8"),
        scale,
        zero,
        _i(-127, 127, 64, 64, 3, 3, dtype="int8"),
        scale,
        np.array(0, np.int8),
        np.array(9, np.float32),
        zero,
    )
    return [*cases, Case("QLinearConv", "QLinearConv", qconv, {"pads": [1] * 4}, tuple(range(1, 8)))]


def detection() -> list[Case]:
    """What ends detectors and samplers: the best, the non-zero, the unique, the suppressed."""
    cases = [Case("TopK 300 of 8400", "TopK", (_f(1, 8400), _n(300)), constant=(1,), outputs=2)]
    cases += [Case("TopK 300 of 672000", "TopK", (_f(1, 672000), _n(300)), constant=(1,), outputs=2)]
    cases += [Case("TopK 5 of 1000", "TopK", (_f(32, 1000), _n(5)), constant=(1,), outputs=2)]
    cases += [Case("TopK 1000 of 120000", "TopK", (_f(1, 120000), _n(1000)), constant=(1,), outputs=2)]
    cases += [Case("TopK axis 1", "TopK", (_f(1, 8400, 4), _n(100)), {"axis": 1}, (1,), 2)]
    for count, classes in ((1000, 1), (8400, 1), (8400, 80)):
        cases.append(_suppression(count, classes))
    mask = (_RNG.random((640, 640)) < 0.05).astype(np.float32)
    cases += [Case("NonZero mask", "NonZero", (mask,)), Case("NonZero bool", "NonZero", (mask > 0,))]
    cases += [Case("Compress", "Compress", (_f(8400, 84), _RNG.random(8400) < 0.1), {"axis": 0})]
    return [*cases, Case("Unique", "Unique", (_i(0, 500, 8400),), {"sorted": 1}, (), 4)]


def _suppression(count: int, classes: int) -> Case:
    middle, size = _RNG.uniform(0, 640, (1, count, 2)), _RNG.uniform(8, 160, (1, count, 2))
    boxes = np.concatenate([middle - size / 2, middle + size / 2], 2).astype(np.float32)
    scores = (_RNG.random((1, classes, count)) ** 4).astype(np.float32)
    rest = (np.array([100]), np.array([0.5], np.float32), np.array([0.5], np.float32))
    return Case(f"NonMaxSuppression {count} x {classes}", "NonMaxSuppression", (boxes, scores, *rest), constant=(2, 3, 4))


def trees() -> list[Case]:
    """A forest and boosted trees of 32 features, for one row and for many."""
    cases = []
    for rows in (1, 100, 10000):
        x = _f(rows, 32)
        for title, count, depth in (("forest", 100, 9), ("boosted", 100, 4)):
            cases.append(Case(f"{title} of {rows} rows", "TreeEnsembleRegressor", (x,), _ensemble(count, depth, 32), domain="ai.onnx.ml"))
    return cases


def _ensemble(trees: int, depth: int, features: int) -> dict[str, object]:
    """Attributes of whole trees with random tests: node n's children are 2n + 1 and 2n + 2."""
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    numbers, leaf = np.tile(np.arange(nodes), trees), np.tile(np.arange(nodes) >= inner, trees)
    owners = np.repeat(np.arange(trees), nodes)
    return {
        "nodes_treeids": owners.tolist(),
        "nodes_nodeids": numbers.tolist(),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_featureids": np.where(leaf, 0, _i(0, features, trees * nodes)).tolist(),
        "nodes_values": np.where(leaf, 0, _f(trees * nodes)).tolist(),
        "nodes_truenodeids": np.where(leaf, 0, 2 * numbers + 1).tolist(),
        "nodes_falsenodeids": np.where(leaf, 0, 2 * numbers + 2).tolist(),
        "target_treeids": owners[leaf].tolist(),
        "target_nodeids": numbers[leaf].tolist(),
        "target_ids": [0] * int(leaf.sum()),
        "target_weights": _f(int(leaf.sum())).tolist(),
        "n_targets": 1,
    }


FAMILIES = (elementwise, reductions, normalisations, movement, windows, products, quantised, detection, trees)


def all_cases() -> list[Case]:
    """Every case, in order of the families."""
    return [case for family in FAMILIES for case in family()]
