"""Damaged, malformed and hostile models: an error that says who must act and where, never a crash and never another kind of exception."""

from __future__ import annotations

from collections.abc import Callable
import gzip
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
import onnx_ir as ir
from onnx_models import delimited, make_model
import pytest

from anycann.frontends.onnx.load import load_model
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.support.errors import AnyCANNError, ModelError, UnsupportedError, describe

X = np.ones((2, 64), np.float32)
W = np.ones((64, 40), np.float32)


def small_model() -> onnx.ModelProto:
    branch = helper.make_graph([helper.make_node("Neg", ["h"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 1, None)])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch, else_branch=branch),
    ]
    return make_model(nodes, {"x": X, "c": np.array(True)}, ["y"], opset=11, constants={"w": W})


def load_all(source: Path | bytes | onnx.ModelProto) -> ir.Model:
    """What a session does with a model first."""
    return upgrade_model(load_model(source))


def test_the_model_that_is_damaged_below_is_sound() -> None:
    assert load_all(small_model()).graph.outputs


def test_every_truncation_is_refused_or_harmless() -> None:
    content = small_model().SerializeToString()
    cuts = [*range(400), *range(400, len(content), 97), len(content) - 1]
    for cut in cuts:
        try:
            load_all(content[:cut])
        except AnyCANNError:
            continue
        pytest.fail(f"a model cut at byte {cut} of {len(content)} was accepted")


def test_flipped_bits_are_refused_or_leave_a_sound_model() -> None:
    content = small_model().SerializeToString()
    structure = [place for place in range(len(content)) if not 300 < place < len(content) - 500]
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(content)
        for place in rng.choice(structure, rng.integers(1, 4)):
            damaged[place] ^= 1 << rng.integers(8)
        try:
            load_all(bytes(damaged))
        except AnyCANNError:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (gzip.compress(b"model", mtime=0), "gzip"),
        (b"PK\x03\x04rest", "zip"),
        (b"<!DOCTYPE html><html>", "text"),
        (b'{"irVersion": 8}', "text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS"),
        (b"ir_version: 8\ngraph {\n}\n" * 4, "text"),
        (bytes(range(256)) * 20, "damaged"),
        (b"\0" * 4096, "damaged"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "truncated"),
        (b"\x08" + b"\xff" * 80, "no end"),
        (b"\x0b\x0c", "wire type"),
    ],
)
def test_what_is_no_model_is_told_by_what_it_is(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert said in describe(caught.value)
    assert "wrong.onnx" in describe(caught.value)


@pytest.mark.parametrize("make", [lambda folder: folder, lambda folder: folder / "nothing.onnx"])
def test_a_folder_and_a_missing_file_are_refused_by_path(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(ModelError, match=path.name):
        load_model(path)


def relu(*names: str, **changes: object) -> onnx.NodeProto:
    return helper.make_node("Relu", [names[0]], [names[1]], name=f"relu_{names[1]}", **changes)


def malformed(**parts: object) -> onnx.ModelProto:
    """`x -> relu -> y` with one thing wrong."""
    nodes = parts.pop("nodes", [relu("x", "y")])
    model = make_model(nodes, {"x": X}, parts.pop("outputs", ["y"]))  # type: ignore[arg-type]
    for tensor in parts.pop("tensors", []):  # type: ignore[attr-defined]
        model.graph.initializer.append(tensor)
    return model


def raw(dims: list[int], nbytes: int, data_type: int = 1, **fields: object) -> onnx.TensorProto:
    return onnx.TensorProto(name="w", dims=dims, data_type=data_type, raw_data=b"\0" * nbytes, **fields)


def nested(depth: int) -> onnx.ModelProto:
    """Branches within branches, made in place: protobuf cannot copy what it cannot read."""
    model = malformed()
    graph = model.graph
    for _ in range(depth):
        node = graph.node.add(op_type="If", input=["x"], output=["z"])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    return model


MALFORMED: dict[str, tuple[onnx.ModelProto, str]] = {
    "circle of two nodes": (malformed(nodes=[relu("b", "a"), relu("a", "b"), relu("a", "y")]), "circle: node 'relu_a'"),
    "node that feeds itself": (malformed(nodes=[relu("y", "y")]), "circle"),
    "name defined twice": (malformed(nodes=[relu("x", "y"), relu("x", "y")]), "'y' is defined already"),
    "node that redefines an input": (malformed(nodes=[relu("x", "x"), relu("x", "y")]), "'x' is defined already"),
    "input of nothing": (malformed(nodes=[relu("ghost", "y")]), "'ghost' is neither"),
    "output of nothing": (malformed(outputs=["ghost"]), "'ghost' is computed by no node"),
    "two initialisers of one name": (malformed(tensors=[raw([1], 4), raw([1], 4)]), "'w' is defined twice"),
    "initialiser without a name": (malformed(tensors=[onnx.TensorProto(dims=[1], data_type=1, raw_data=b"1234")]), "has no name"),
    "too little raw data": (malformed(tensors=[raw([10], 36)]), "36 bytes, but float[10] takes 40"),
    "too much raw data": (malformed(tensors=[raw([10], 44)]), "44 bytes"),
    "negative size": (malformed(tensors=[raw([-10], 40)]), "negative"),
    "absurd size": (malformed(tensors=[raw([1 << 40, 1 << 40], 40)]), "no machine holds"),
    "sizes that overflow to nothing": (malformed(tensors=[raw([1 << 32, 1 << 32], 0)]), "no machine holds"),
    "weights that are missing": (malformed(tensors=[onnx.TensorProto(name="w", dims=[8], data_type=1)]), "float_data has 0 entries"),
    "unknown element type": (malformed(tensors=[raw([1], 4, 99)]), "element type 99"),
    "raw strings": (malformed(tensors=[raw([1], 4, 8)]), "strings"),
    "offset that is no number": (
        malformed(
            tensors=[
                onnx.TensorProto(
                    name="w",
                    dims=[1],
                    data_type=1,
                    data_location=1,
                    external_data=[
                        onnx.StringStringEntryProto(key="location", value="w"),
                        onnx.StringStringEntryProto(key="offset", value="-4"),
                    ],
                )
            ]
        ),
        "offset",
    ),
    "too many inputs": (malformed(nodes=[helper.make_node("Relu", ["x", "x"], ["y"], name="bad")]), "node 'bad' (Relu) has 2 inputs"),
    "no output": (malformed(nodes=[relu("x", "y"), helper.make_node("Relu", ["x"], [], name="bad")]), "has 0 outputs"),
    "unknown attribute": (malformed(nodes=[relu("x", "y", slope=1)]), "'slope' does not exist"),
    "attribute of another type": (malformed(nodes=[helper.make_node("Elu", ["x"], ["y"], alpha=[1])]), "FLOAT is accepted"),
    "missing attribute": (malformed(nodes=[helper.make_node("Cast", ["x"], ["y"], name="bad")]), "lacks the attribute 'to'"),
    "graph attribute without a graph": (
        malformed(
            nodes=[onnx.NodeProto(op_type="If", input=["x"], output=["y"], attribute=[onnx.AttributeProto(name="then_branch", type=5)])]
        ),
        "without a value",
    ),
    "branches without end": (nested(200), "deep"),
}


@pytest.mark.parametrize(("model", "said"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_model_is_refused_with_its_place(model: onnx.ModelProto, said: str) -> None:
    with pytest.raises((ModelError, UnsupportedError)) as caught:
        load_all(model)
    assert said in str(caught.value)


def test_an_attribute_given_twice_is_refused() -> None:
    node = helper.make_node("Elu", ["x"], ["y"], alpha=1.0)
    node.attribute.append(node.attribute[0])
    with pytest.raises(ModelError, match="given twice"):
        load_model(malformed(nodes=[node]))


def test_a_text_attribute_that_is_no_text_is_refused() -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], name="pool", kernel_shape=[1, 1], auto_pad=b"VAL\xff")
    with pytest.raises(ModelError, match=r"node 'pool' .*'auto_pad'.* is not UTF-8"):
        load_model(malformed(nodes=[node]))


def test_branches_nested_beyond_what_protobuf_reads_are_refused_from_a_file() -> None:
    graph = b"\x12\x01g" + delimited(5, b"\x08\x80\x20\x10\x01\x4a\x80\x20" + b"\0" * 4096)
    for _ in range(3000):
        graph = delimited(1, delimited(5, delimited(6, graph)))
    with pytest.raises(ModelError, match="deeper"):
        load_model(b"\x08\x08" + delimited(7, graph))


def test_a_function_that_calls_itself_is_refused() -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = make_model([helper.make_node("f", ["x"], ["y"], domain="own")], {"x": X}, ["y"], opset=17)
    for name, callee in (("f", "g"), ("g", "f")):
        model.functions.append(
            helper.make_function("own", name, ["a"], ["b"], [helper.make_node(callee, ["a"], ["b"], domain="own")], imports)
        )
    model.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(ModelError, match="calls itself"):
        load_model(model)


@pytest.mark.parametrize(
    ("op_type", "domain", "opset", "said"),
    [
        ("Relo", "", 26, "near names: Relu"),
        ("Relu", "my.domain", 26, "domain 'my.domain' has no Relu"),
        ("FusedMatMull", "com.microsoft", 26, "FusedMatMul"),
        ("Gelu", "", 19, "does not exist at opset 19"),
        ("Anything", "my.domain", 26, "known domains: ['', 'ai.onnx.ml'"),
    ],
)
def test_an_unknown_operator_is_refused_by_node_operator_domain_and_near_names(op_type: str, domain: str, opset: int, said: str) -> None:
    model = make_model([helper.make_node(op_type, ["x"], ["y"], name="culprit", domain=domain)], {"x": X}, ["y"], opset=opset)
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    with pytest.raises(UnsupportedError, match="node 'culprit'") as caught:
        load_model(model)
    assert said in str(caught.value)
    assert op_type in str(caught.value)


def test_a_domain_that_is_not_imported_is_refused() -> None:
    with pytest.raises(ModelError, match=r"imports no opset of domain 'ai\.onnx\.ml'"):
        load_model(malformed(nodes=[helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml")]))


def test_opsets_beyond_the_newest_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="opset 27"):
        load_model(make_model([relu("x", "y")], {"x": X}, ["y"], opset=27))


def test_a_domain_imported_in_two_versions_is_refused() -> None:
    model = malformed()
    model.opset_import.append(helper.make_opsetid("", 11))
    with pytest.raises(ModelError, match="versions 26 and 11"):
        load_model(model)
