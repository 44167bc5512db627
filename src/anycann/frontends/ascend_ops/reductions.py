"""Sums, means and extremes along axes, places of extremes, sorting, softmax and normalisation."""

from __future__ import annotations

from anycann.frontends.ascend_ops.builder import Builder
from anycann.frontends.ascend_ops.definition import Build, Required, operator
from anycann.frontends.ascend_ops.elementwise import dtype_of


def as_list(value: object) -> list[int]:
    """An attribute that may be one number or a list."""
    return [int(item) for item in value] if isinstance(value, list | tuple) else [int(value)]  # type: ignore[call-overload]


def _axes(b: Builder) -> str:
    return b.integers("axes") if b.has("axes") else b.constant(as_list(b["axes"]))


def _reduce(op_type: str) -> Build:
    return lambda b: b.node(op_type, b.input("x"), _axes(b), keepdims=int(b["keep_dims"]), noop_with_empty_axes=0)


def _reduce_bool(op_type: str) -> Build:
    """All and Any: the least and the greatest of 0 and 1."""
    return lambda b: b.cast(b.node(op_type, b.cast(b.input("x"), "int32"), _axes(b), keepdims=int(b["keep_dims"])), "bool")


for _name in ("Sum", "Mean", "Max", "Min", "Prod"):
    operator(f"Reduce{_name}", "x:T axes:index", _reduce(f"Reduce{_name}"), keep_dims=False)
    operator(f"Reduce{_name}D", "x:T", _reduce(f"Reduce{_name}"), axes=Required("ints"), keep_dims=False)
for _name, _onnx in (("All", "ReduceMin"), ("Any", "ReduceMax")):
    operator(f"Reduce{_name}", "x:bool axes:index", _reduce_bool(_onnx), keep_dims=False)
    operator(f"Reduce{_name}D", "x:bool", _reduce_bool(_onnx), axes=Required("ints"), keep_dims=False)


# ---- places
def _argument(op_type: str) -> Build:
    def build(b: Builder) -> str:
        axis = int(b.known("dimension").reshape(-1)[0]) if b.has("dimension") else int(b["dimension"])
        found = b.node(op_type, b.input("x"), axis=b.axis(axis, b.rank("x")), keepdims=0)
        dtype = dtype_of(b, "dtype")
        return found if dtype == "int64" else b.cast(found, dtype)

    return build


def _with_value(which: str) -> Build:
    def build(b: Builder) -> list[str]:
        axis, keep = b.axis(int(b["dimension"]), b.rank("x")), int(b["keep_dims"])
        index = b.cast(b.node(f"Arg{which}", b.input("x"), axis=axis, keepdims=keep), "int32")
        return [index, b.node(f"Reduce{which}", b.input("x"), b.constant([axis]), keepdims=keep)]

    return build


for _which in ("Max", "Min"):
    operator(f"Arg{_which}V2" if _which == "Max" else "ArgMin", "x:number dimension:index", _argument(f"Arg{_which}"), casts=True, dtype=9)
    operator(f"Arg{_which}D", "x:number", _argument(f"Arg{_which}"), casts=True, dimension=Required("int"), dtype=9)
    operator(f"Arg{_which}WithValue", "x:number", _with_value(_which), outputs=2, dimension=Required("int"), keep_dims=False)


def _top(b: Builder) -> list[str]:
    count = b.integers("k") if b.has("k") else b.constant([int(b["k"])])
    axis = b.axis(int(b["dim"]), b.rank("x"))
    values, places = b.nodes_of("TopK", b.input("x"), count, count=2, axis=axis, largest=int(b["largest"]), sorted=int(b["sorted"]))
    return [values, b.cast(places, b.spec.outputs[1].dtype)]


operator("TopK TopKV2", "x:T k:index", _top, outputs=2, sorted=True, dim=-1, largest=True)
operator("TopKD", "x:T assist_seq?:T", _top, outputs=2, k=Required("int"), sorted=True, dim=-1, largest=True)


def _sort(b: Builder) -> list[str]:
    axis = b.axis(int(b["axis"]), b.rank("x"))
    size = b.node("Gather", b.node("Shape", b.input("x")), b.constant([axis]), axis=0)
    values, places = b.nodes_of("TopK", b.input("x"), size, count=2, axis=axis, largest=int(b["descending"]), sorted=1)
    return [values, b.cast(places, "int32")]


operator("Sort", "x:T", _sort, outputs=2, axis=-1, descending=False)


def _cumsum(b: Builder) -> str:
    axis = b.integers("axis") if b.has("axis") else b.constant(int(b["axis"]))
    return b.node("CumSum", b.input("x"), axis, exclusive=int(b["exclusive"]), reverse=int(b["reverse"]))


operator("Cumsum", "x:T axis:index", _cumsum, exclusive=False, reverse=False)
operator("CumsumD", "x:T", _cumsum, axis=Required("int"), exclusive=False, reverse=False)


# ---- softmax and normalisation
def _softmax(op_type: str, name: str) -> Build:
    def build(b: Builder) -> str:
        axes = as_list(b["axes"] if "axes" in b.attributes else b["axis"])
        if len(axes) != 1:
            b.fail("attribute", f"axes is {axes}; accepted: one axis")
        return b.node(op_type, b.input(name), axis=b.axis(axes[0], b.rank(name)))

    return build


operator("SoftmaxV2", "x:T", _softmax("Softmax", "x"), group="float", axes=(-1,), half_to_float=False)
operator("Softmax", "x:T", _softmax("Softmax", "x"), group="float", axis=-1)
operator("LogSoftmaxV2", "logits:T", _softmax("LogSoftmax", "logits"), group="float", axes=(-1,))


def _moments(b: Builder, rows: str, axes: list[int]) -> tuple[str, str, str]:
    """Mean, variance, and what is left without the mean."""
    mean = b.node("ReduceMean", rows, b.constant(axes), keepdims=1)
    centred = b.node("Sub", rows, mean)
    return mean, b.node("ReduceMean", b.node("Mul", centred, centred), b.constant(axes), keepdims=1), centred


def _layer_norm(b: Builder) -> list[str]:
    rank = b.rank("x")
    begin, begin_parameters = (b.axis(int(b[name]), rank) for name in ("begin_norm_axis", "begin_params_axis"))
    if begin_parameters != begin and b["begin_params_axis"] != 0:
        b.fail("attribute", f"begin_params_axis is {b['begin_params_axis']}; accepted: that of begin_norm_axis, {b['begin_norm_axis']}")
    mean, variance, _ = _moments(b, b.input("x"), list(range(begin, rank)))
    y = b.node("LayerNormalization", b.input("x"), b.input("gamma"), b.input("beta"), axis=begin, epsilon=float(b["epsilon"]))
    return [y, mean, variance]


operator("LayerNorm", "x:T gamma:T beta:T", _layer_norm, outputs=1, group="float", begin_norm_axis=0, begin_params_axis=0, epsilon=1e-7)


def _rms_norm(b: Builder) -> list[str]:
    axes = list(range(b.rank("x") - b.rank("gamma"), b.rank("x")))
    square = b.node("Mul", b.input("x"), b.input("x"))
    mean = b.node("ReduceMean", square, b.constant(axes), keepdims=1)
    scale = b.node("Reciprocal", b.node("Sqrt", b.node("Add", mean, b.like(b["epsilon"], "x"))))
    return [
        b.node("Mul", b.node("Mul", b.input("x"), scale), b.input("gamma")),
        b.cast(scale, b.spec.outputs[1].dtype) if len(b.spec.outputs) > 1 else scale,
    ]


operator("RmsNorm", "x:T gamma:T", _rms_norm, outputs=1, group="float", epsilon=1e-6)


def _batch_norm(b: Builder) -> str:
    format_ = b.image_format("x") if b.rank("x") == 4 else "NCHW"
    parameters = [b.input(name) for name in ("scale", "offset", "mean", "variance")]
    return b.back(b.node("BatchNormalization", b.nchw(b.input("x"), format_), *parameters, epsilon=float(b["epsilon"])), format_)


operator("BNInfer", "x:T scale:T offset:T mean:T variance:T", _batch_norm, group="float", epsilon=Required("float"))


def _l2_normalize(b: Builder) -> str:
    square = b.node("Mul", b.input("x"), b.input("x"))
    total = b.node("ReduceSum", square, b.constant(as_list(b["axis"])), keepdims=1)
    return b.node("Div", b.input("x"), b.node("Sqrt", b.node("Max", total, b.like(b["eps"], "x"))))


operator("L2Normalize", "x:T", _l2_normalize, group="float", axis=(), eps=1e-4)
