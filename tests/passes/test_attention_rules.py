"""Attention as exporters write it becomes one kernel with the same numbers, and says why where it does not."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
import pytest

from anycann.support.errors import ModelError
from anycann.te.strided import Strided
from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, parse, run, tasks, told

HEADS = {
    "heads": np.array([2, -1, 4, 16]),
    "joined": np.array([2, -1, 64]),
    "scale": np.float32(0.25),
    "half": np.float32(0.5),
    "four": np.float32(4.0),
    "big": np.float32(-1e9),
    "zero": np.float32(0.0),
    "products": np.array([8, 19, 27]),
    "values": np.array([8, 27, 16]),
    "apart": np.array([2, 4, 19, 16]),
}
SPLIT = "h{0} = Reshape({0}, heads) {0}t = Transpose<perm = [0, {1}]>(h{0}) "
USUAL = SPLIT.format("q", "2, 1, 3") + SPLIT.format("k", "2, 3, 1") + SPLIT.format("v", "2, 1, 3")
JOIN = "t = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(t, joined)"
HEADER = "g (float[2,19,64] q, float[2,27,64] k, float[2,27,64] v{0}) => (float[2,19,64] y) {{ "
CAUSAL = np.triu(np.full((19, 27), -np.inf, np.float32), 9)


def model(body: str, inputs: str = "", **constants: np.ndarray) -> onnx.ModelProto:
    return parse(HEADER.format(inputs) + body + " }", **{k: v for k, v in {**HEADS, **constants}.items() if k in body})


def kinds(made: onnx.ModelProto) -> list[tuple[str, ...]]:
    """What the kernels compute, less the copy of a result that is a view."""
    return [task.op_types for task in tasks(compile_graph(made).program) if task.op_types != ("TransData",)]


def feeds(**more: np.ndarray) -> dict[str, np.ndarray]:
    return {"q": floats(2, 19, 64), "k": floats(2, 27, 64, seed=1), "v": floats(2, 27, 64, seed=2), **more}


FORMS = {
    "a factor on the scores": "s = MatMul(qt, kt) d = Mul(s, scale) w = Softmax<axis = -1>(d) o = MatMul(w, vt)",
    "a divisor": "s = MatMul(qt, kt) d = Div(s, four) w = Softmax<axis = 3>(d) o = MatMul(w, vt)",
    "a factor on queries and keys": "a = Mul(qt, half) b = Mul(half, kt) s = MatMul(a, b) w = Softmax<axis = -1>(s) o = MatMul(w, vt)",
    "no number becomes zero": "s = MatMul(qt, kt) w = Softmax<axis = -1>(s) n = IsNaN(w) z = Where(n, zero, w) o = MatMul(z, vt)",
    "a cap": "s = MatMul(qt, kt) a = Div(s, four) b = Tanh(a) d = Mul(b, four) w = Softmax<axis = -1>(d) o = MatMul(w, vt)",
    "a known causal mask": "s = MatMul(qt, kt) d = Add(s, causal) w = Softmax<axis = -1>(d) o = MatMul(w, vt)",
    "heads that are joined behind the softmax": (
        "s = MatMul(qt, kt) d = Add(s, random) w = Softmax<axis = 3>(d) a = Reshape(w, products) b = Reshape(vt, values) "
        "c = MatMul(a, b) o = Reshape(c, apart)"
    ),
    "a known mask of another form": "s = MatMul(qt, kt) d = Add(random, s) w = Softmax<axis = -1>(d) o = MatMul(w, vt)",
}


@pytest.mark.parametrize("mask", ["causal", "fed", "known"])
def test_attention_of_half_numbers_takes_masks_of_them(mask: str) -> None:
    text = HEADER.format(", float16[19,27] fed").replace("float[", "float16[")
    constants = {name: value.astype(np.float16) if value.dtype == np.float32 and name != "big" else value for name, value in HEADS.items()}
    known = floats(19, 27, seed=8).astype(np.float16)
    causal = np.where(np.isinf(CAUSAL), np.finfo(np.float16).min, 0).astype(np.float16)
    body = f"{USUAL} s = MatMul(qt, kt) d = Add(s, {mask}) w = Softmax<axis = -1>(d) o = MatMul(w, vt) {JOIN} }}"
    used = {k: v for k, v in {**constants, "causal": causal, "known": known}.items() if k in body}
    made = parse(text + body, **used)
    assert [kind for kind in kinds(made) if kind != ("Cast",)] == [("Attention",)]
    given = {name: value.astype(np.float16) for name, value in feeds(fed=floats(19, 27, seed=5)).items()}
    (got,), (want,) = run(made, given), by_definition(made, given)
    assert np.abs(got.astype(np.float32) - want.astype(np.float32)).max() < 0.02 * np.abs(want.astype(np.float32)).max()


@pytest.mark.parametrize("form", FORMS)
def test_attention_of_projections_is_one_kernel(form: str) -> None:
    made = model(f"{USUAL}{FORMS[form]} {JOIN}", causal=CAUSAL, random=floats(4, 19, 27, seed=8))
    assert kinds(made) == [("Attention",)]
    given = feeds()
    assert_same(run(made, given), by_definition(made, given))


ONE_ELEMENT = {
    "a mask for several keys": ("s = MatMul(q, kt) d = Add(s, m) w = Softmax<axis = -1>(d) y = MatMul(w, v)", (1, 3), {"m": -1.5}),
    "one key": ("s = MatMul(q, kt) w = Softmax<axis = -1>(s) y = MatMul(w, v)", (2, 1), {}),
    "a known query": ("s = MatMul(m, kt) w = Softmax<axis = -1>(s) y = MatMul(w, v)", (1, 3), {"m": 0.7}),
}


@pytest.mark.parametrize("form", ONE_ELEMENT)
def test_operands_of_one_known_element_are_no_obstacle(form: str) -> None:
    body, (rows, keys), known = ONE_ELEMENT[form]
    constants = {name: np.full((1, 1, 1, 1), value, np.float32) for name, value in known.items()}
    made = parse(
        f"g (float[1,1,{rows},1] q, float[1,1,{keys},1] k, float[1,1,{keys},8] v) => (float[1,1,{rows},8] y)"
        f" {{ kt = Transpose<perm = [0, 1, 3, 2]>(k) {body} }}",
        **constants,
    )
    assert kinds(made) == [("Attention",)]
    given = {"q": floats(1, 1, rows, 1), "k": floats(1, 1, keys, 1, seed=1), "v": floats(1, 1, keys, 8, seed=2)}
    assert_same(run(made, given), by_definition(made, given))


IDLE = {"Add(s, m)": np.zeros((4, 19, 27), np.float32), "Where(m, s, big)": np.full((1, 27), True)}


@pytest.mark.parametrize("change", IDLE)
def test_a_known_mask_that_changes_nothing_is_left_out(change: str) -> None:
    made = model(f"{USUAL} s = MatMul(qt, kt) d = {change} w = Softmax<axis = -1>(d) o = MatMul(w, vt) {JOIN}", m=IDLE[change])
    (task,) = [task for task in tasks(compile_graph(made).program) if task.op_types == ("Attention",)]
    assert len(task.arguments) == len(["q", "k", "v", "y"])
    assert_same(run(made, feeds()), by_definition(made, feeds()))


MASKS = {
    "float[2,1,1,27] m": ("d = Add(s, m)", floats(2, 1, 1, 27, seed=5)),
    "float[19,27] m": ("d = Add(m, s)", floats(19, 27, seed=5)),
    "bool[2,1,19,27] m": ("d = Where(m, s, big)", floats(2, 1, 19, 27, seed=5) > -0.5),
    "bool[1,4,19,27] m": ("d = Where(m, big, s)", floats(1, 4, 19, 27, seed=5) > 0.5),
    "bool[2,1,1,27] m, float[2,4,19,27] r": ("a = Where(m, s, big) d = Add(a, r)", floats(2, 1, 1, 27, seed=5) > -0.5),
}


@pytest.mark.parametrize("inputs", MASKS)
def test_masks_that_are_fed_are_applied(inputs: str) -> None:
    text, mask = MASKS[inputs]
    made = model(f"{USUAL} s = MatMul(qt, kt) {text} w = Softmax<axis = -1>(d) o = MatMul(w, vt) {JOIN}", f", {inputs}")
    *before, last = kinds(made)
    assert last == ("Attention",)
    assert set(before) <= {("Where",)}
    given = feeds(m=mask, **({"r": floats(2, 4, 19, 27, seed=6)} if " r" in inputs else {}))
    assert_same(run(made, given), by_definition(made, given))


def test_one_projection_of_queries_keys_and_values_is_read_in_place() -> None:
    text = """
    g (float[2,19,192] x) => (float[2,19,64] y) {
      r = Reshape(x, parts) t = Transpose<perm = [2, 0, 3, 1, 4]>(r) a, b, c = Split<axis = 0, num_outputs = 3>(t)
      q = Squeeze(a, first) k = Squeeze(b, first) v = Gather<axis = 0>(t, two) kt = Transpose<perm = [0, 1, 3, 2]>(k)
      s = MatMul(q, kt) w = Softmax<axis = -1>(s) o = MatMul(w, v) p = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(p, joined)
    }"""
    constants = {"parts": np.array([2, 19, 3, 4, 16]), "first": np.array([0]), "two": np.array(2), "joined": np.array([2, 19, 64])}
    made = parse(text, **constants)
    assert kinds(made) == [("Attention",)]
    given = {"x": floats(2, 19, 192)}
    assert_same(run(made, given), by_definition(made, given))


@pytest.mark.parametrize("sizes", ["2,4,27,1", "2,1,1,1"])
def test_values_of_which_one_element_stands_for_a_row_are_written_out_for_the_kernel(sizes: str) -> None:
    body = f"v2 = Expand(v1, wide) {USUAL.split('hv')[0]} s = MatMul(qt, kt) w = Softmax<axis = -1>(s) o = MatMul(w, v2) {JOIN}"
    made = model(body, f", float[{sizes}] v1", wide=np.array([2, 4, 27, 16]))
    assert kinds(made) == [("Expand",), ("Attention",)]
    given = feeds(v1=floats(*map(int, sizes.split(",")), seed=3))
    assert_same(run(made, given), by_definition(made, given))


def test_keys_shared_by_heads_are_not_copied() -> None:
    text = """
    g (float[2,8,19,16] q, float[2,2,27,16] k, float[2,2,27,16] v) => (float[2,8,19,16] y) {
      ku = Unsqueeze(k, two) ke = Expand(ku, each) kr = Reshape(ke, all) vu = Unsqueeze(v, two) ve = Expand(vu, each) vr = Reshape(ve, all)
      kt = Transpose<perm = [0, 1, 3, 2]>(kr) s = MatMul(q, kt) w = Softmax<axis = -1>(s) y = MatMul(w, vr)
    }"""
    made = parse(text, two=np.array([2]), each=np.array([2, 2, 4, 27, 16]), all=np.array([2, 8, 27, 16]))
    assert kinds(made) == [("Attention",)]
    given = {"q": floats(2, 8, 19, 16), "k": floats(2, 2, 27, 16, seed=1), "v": floats(2, 2, 27, 16, seed=2)}
    assert_same(run(made, given), by_definition(made, given))


@pytest.mark.parametrize(
    ("body", "outputs", "why"),
    [
        ("s = MatMul(q, k) w = Softmax<axis = -1>(s) o = MatMul(w, v)", ", float[2,19,27] w", "the weights are also used elsewhere"),
        ("s = MatMul(q, k) w = Softmax<axis = -2>(s) o = MatMul(w, v)", "", "the softmax is not along the keys"),
        ("s = MatMul(q, k) e = Relu(s) w = Softmax<axis = -1>(e) o = MatMul(w, v)", "", "Relu of the scores is no part of an attention"),
        ("w = Softmax<axis = -1>(p) o = MatMul(w, v)", "", "the scores are no product"),
    ],
)
def test_what_is_not_attention_says_why(body: str, outputs: str, why: str) -> None:
    inputs = "float[2,19,8] q, float[2,8,27] k, float[2,27,8] v, float[2,19,27] p"
    made = parse(f"g ({inputs}) => (float[2,19,8] o{outputs}) {{ {body} }}")
    assert f"FuseAttention skipped o: {why}" in told(made)


EMPTY = {"batches": (0, 4, 7, 9, 8), "heads": (2, 0, 7, 9, 8), "rows": (2, 4, 0, 9, 8), "keys": (2, 4, 7, 0, 8), "depth": (2, 4, 7, 9, 0)}


@pytest.mark.parametrize("operator", ["products", "Attention"])
@pytest.mark.parametrize("none", EMPTY)
def test_operands_without_elements_are_left_to_what_computes_them(none: str, operator: str) -> None:
    batches, heads, rows, keys, depth = EMPTY[none]
    shapes = {"q": (batches, heads, rows, depth), "k": (batches, heads, keys, depth), "v": (batches, heads, keys, 8)}
    inputs = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    output = f"float[{batches},{heads},{rows},8] y"
    if operator == "Attention":
        made = onnx_attention(inputs, output, "y = Attention(q, k, v)")
    else:
        products = "t = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, t) w = Softmax<axis = -1>(s) y = MatMul(w, v)"
        made = parse(f"g ({inputs}) => ({output}) {{ {products} }}")
    given = {name: floats(*shape) for name, shape in shapes.items()}
    if (none, operator) == ("keys", "Attention"):  # the greatest of no scores
        with pytest.raises(ModelError, match="Attention"):
            run(made, given)
        return
    expected = [np.zeros((batches, heads, rows, 8), np.float32)] if not keys else by_definition(made, given)
    assert_same(run(made, given), expected)


@pytest.mark.parametrize("empty_is_zero", [0, 1])
@pytest.mark.parametrize("none", EMPTY)
def test_the_node_takes_operands_without_elements(none: str, empty_is_zero: int) -> None:
    batches, heads, rows, keys, depth = EMPTY[none]
    shapes = {"query": (batches, heads, rows, depth), "key": (batches, heads, keys, depth), "value": (batches, heads, keys, 8)}
    views = {name: str(Strided.contiguous(shape)) for name, shape in shapes.items()}
    order = {"order": [0, 1, 2, 3], "scale": 1.0, "empty_is_zero": empty_is_zero}
    node = helper.make_node("Attention", list(shapes), ["y"], domain="anycann", name="y", **views, **order)
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (batches, heads, rows, 8))
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("anycann", 1)]
    made = helper.make_model(helper.make_graph([node], "g", inputs, [output]), opset_imports=opsets, ir_version=10)
    given = {name: floats(*shape) for name, shape in shapes.items()}
    mean = given["value"].mean(-2, keepdims=True) if keys else np.float32(0)  # no keys: nothing is added up; no depth: all weigh the same
    assert_same(run(made, given), [np.broadcast_to(mean, (batches, heads, rows, 8))])


def onnx_attention(inputs: str, outputs: str, node: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 24]> g ({inputs}) => ({outputs}) {{ {node} }}')
    made.graph.node[0].name = "y"
    return made


ATTENTION = {
    "heads side by side, shared keys": (
        "float[2,19,64] q, float[2,27,32] k, float[2,27,32] v",
        "float[2,19,64] y",
        "y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = 1>(q, k, v)",
    ),
    "one step, two heads to a key": (
        "float[2,6,1,16] q, float[2,3,1,16] k, float[2,3,1,16] v, float[2,6,1,12] m, float[2,3,11,16] a, float[2,3,11,16] b",
        "float[2,6,1,16] y, float[2,3,12,16] c, float[2,3,12,16] d",
        "y, c, d = Attention<is_causal = 1>(q, k, v, m, a, b)",
    ),
    "one step, one key for all heads": (
        "float[2,1,64] q, float[2,12,16] k, float[2,12,16] v, bool[2,1,1,12] m",
        "float[2,1,64] y",
        "y = Attention<q_num_heads = 4, kv_num_heads = 1>(q, k, v, m)",
    ),
    "a cache": (
        "float[2,4,5,16] q, float[2,4,5,16] k, float[2,4,5,16] v, bool[5,12] m, float[2,4,7,16] a, float[2,4,7,16] b",
        "float[2,4,5,16] y, float[2,4,12,16] c, float[2,4,12,16] d",
        "y, c, d = Attention<scale = 0.5>(q, k, v, m, a, b)",
    ),
    "a cache behind heads side by side": (
        "float[2,1,64] q, float[2,1,64] k, float[2,1,64] v, float[1,12] m, float[2,4,11,16] a, float[2,4,11,16] b",
        "float[2,1,64] y, float[2,4,12,16] c, float[2,4,12,16] d",
        "y, c, d = Attention<q_num_heads = 4, kv_num_heads = 4>(q, k, v, m, a, b)",
    ),
}


@pytest.mark.parametrize("form", ATTENTION)
def test_attention_of_onnx_is_lowered(form: str) -> None:
    made = onnx_attention(*ATTENTION[form])
    given = {i.name: floats(*(d.dim_value for d in i.type.tensor_type.shape.dim), seed=n) for n, i in enumerate(made.graph.input)}
    if "bool" in ATTENTION[form][0]:
        given["m"] = given["m"] > -1.0
    assert ("Attention",) in kinds(made)
    assert not any(node.engine == "AiCpu" for node in compile_graph(made).nodes)
    assert_same(run(made, given), by_definition(made, given))


@pytest.mark.parametrize(
    ("outputs", "attributes", "why"),
    [
        (
            "float[2,4,19,16] y, float[2,4,27,16] a, float[2,4,27,16] b, float[2,4,19,27] c",
            "",
            "it takes lengths of its keys, or gives its scores",
        ),
        ("float[2,4,19,16] y", "<softcap = 2.0, is_causal = 1>", "its mask is added before the scores are capped"),
    ],
)
def test_attention_of_onnx_that_is_not_lowered_says_why(outputs: str, attributes: str, why: str) -> None:
    names = ", ".join(word.split("]")[1].strip() for word in outputs.split(", float"))
    inputs = "float[2,4,19,16] q, float[2,4,27,16] k, float[2,4,27,16] v"
    made = onnx_attention(inputs, outputs, f"{names} = Attention{attributes}(q, k, v)")
    assert f"LowerAttention skipped y: {why}" in told(made)


def test_products_written_as_einsum_are_an_attention() -> None:
    text = """
    g (float[2,19,64] q, float[2,27,64] k, float[2,27,64] v) => (float[2,19,64] y) {
      a = Reshape(q, heads) b = Reshape(k, heads) c = Reshape(v, heads)
      s = Einsum<equation = "bqhd, bkhd -> bhqk">(a, b) d = Mul(s, scale) w = Softmax<axis = -1>(d)
      o = Einsum<equation = "bhqk,bkhd->bqhd">(w, c) y = Reshape(o, joined)
    }"""
    made = parse(text, **{name: HEADS[name] for name in ("heads", "joined", "scale")})
    assert kinds(made) == [("Attention",)]
    assert_same(run(made, feeds()), by_definition(made, feeds()))


@pytest.mark.parametrize(
    ("equation", "applies"),
    [
        *(("mbk,nkb->bmn", True), ("kb,bkn->nb", False), ("mk,kn->nm", True), ("bmk,bkn->bmn", True), ("nk,bmk->bnm", True)),
        *(("mbk,knl->mbnl", True), ("mbnl,knl->mbk", True), ("klm,bnkl->mnb", True), ("kl,nmbkl->nbm", False)),
        *(
            ("bkm,lnbk->lbmn", True),
            ("lnbk,bkm->lbnm", True),
            ("mlk,nk->mn", True),
            ("bkm,lnbk->bnm", True),
            ("bm,bn->bmn", False),
            ("mk,k->m", False),
        ),
    ],
)
def test_an_einsum_in_another_order_is_a_product_between_transposes(equation: str, applies: bool) -> None:
    sizes = {"b": 2, "m": 3, "n": 4, "k": 5, "l": 6}
    a, b = equation.split("->")[0].split(",")
    inputs = [f"float[{','.join(str(sizes[label]) for label in term)}] {name}" for term, name in ((a, "a"), (b, "b"))]
    result = ",".join(str(sizes[label]) for label in equation.split("->")[1])
    made = parse(f'g ({", ".join(inputs)}) => (float[{result}] y) {{ y = Einsum<equation = "{equation}">(a, b) }}')
    given = {name: floats(*(sizes[label] for label in term), seed=n) for n, (term, name) in enumerate(((a, "a"), (b, "b")))}
    assert any("ProductOfEinsum applied" in line for line in told(made)) == applies
    assert_same(run(made, given), by_definition(made, given))


@pytest.mark.parametrize("equation", ["mk,lnk->mn", "lmk,knb->mbn", "km,kn->nm"])
def test_known_operands_of_an_einsum_are_put_in_order_while_compiling(equation: str) -> None:
    sizes = {"b": 2, "m": 3, "n": 4, "k": 5, "l": 6}
    (first, known), result = equation.split("->")[0].split(","), equation.split("->")[1]
    sides = {name: [sizes[label] for label in term] for name, term in (("a", first), ("w", known), ("y", result))}
    text = f'g (float{sides["a"]} a) => (float{sides["y"]} y) {{ y = Einsum<equation = "{equation}">(a, w) }}'
    made = parse(text, w=floats(*sides["w"], seed=1))
    given = {"a": floats(*sides["a"])}
    assert ("Transpose",) not in kinds(made)
    assert_same(run(made, given), by_definition(made, given))


def test_products_written_as_einsum_of_heads_are_an_attention() -> None:
    inputs = "float[2,4,19,16] q, float[2,4,27,16] k, float[2,4,27,16] v"
    text = f"""g ({inputs}) => (float[2,4,19,16] y) {{
      s = Einsum<equation = "bhlk,bhtk->bhlt">(q, k) d = Mul(s, scale) w = Softmax<axis = -1>(d)
      y = Einsum<equation = "bhlt,bhtv->bhlv">(w, v) }}"""
    made = parse(text, scale=HEADS["scale"])
    given = {name: floats(2, 4, extent, 16, seed=n) for n, (name, extent) in enumerate({"q": 19, "k": 27, "v": 27}.items())}
    assert kinds(made) == [("Attention",)]
    assert_same(run(made, given), by_definition(made, given))


def test_a_cast_to_the_own_type_is_no_obstacle() -> None:
    made = model(f"{USUAL}s = MatMul(qt, kt) c = Cast<to = 1>(s) w = Softmax<axis = -1>(c) d = Cast<to = 1>(w) o = MatMul(d, vt) {JOIN}")
    assert kinds(made) == [("Attention",)]
    assert_same(run(made, feeds()), by_definition(made, feeds()))


def test_heads_that_are_batches_of_products_are_written_side_by_side() -> None:
    made = model(
        "h = Reshape(q, heads) a = Transpose<perm = [0, 2, 1, 3]>(h) b = Reshape(a, batches) c = Reshape(k, heads)"
        " d = Transpose<perm = [0, 2, 3, 1]>(c) e = Reshape(d, turned) f = Reshape(v, heads) i = Transpose<perm = [0, 2, 1, 3]>(f)"
        " j = Reshape(i, keys) s = MatMul(b, e) w = Softmax<axis = -1>(s) o = MatMul(w, j) r = Reshape(o, apart)"
        " t = Transpose<perm = [0, 2, 1, 3]>(r) y = Reshape(t, joined)",
        batches=np.array([8, 19, 16]),
        turned=np.array([8, 16, 27]),
        keys=np.array([8, 27, 16]),
        apart=np.array([2, 4, 19, 16]),
    )
    assert kinds(made) == [("Attention",)]
    assert_same(run(made, feeds()), by_definition(made, feeds()))
