"""Source names through rewrites, and the words errors use for a node."""

from __future__ import annotations

from onnx import helper
import onnx_ir as ir

from anycann.graph.sources import all_graphs, describe, describe_proto, inherit_sources, set_sources, source_names


def test_a_node_without_a_record_is_its_own_source() -> None:
    assert source_names(ir.node("Relu", [], name="r")) == ("r",)
    assert source_names(ir.node("Relu", [])) == ()


def test_a_new_node_stands_for_all_it_replaces_once_each() -> None:
    old = [ir.node("Conv", [], name="conv"), ir.node("Relu", [], name="relu")]
    set_sources(old[1], ["relu", "conv"])
    new = ir.node("FusedConv", [])
    inherit_sources([new], old)
    assert source_names(new) == ("conv", "relu")
    assert new.name == "conv/FusedConv"


def test_errors_name_sources_operator_and_domain() -> None:
    node = ir.node("Gelu", [], name="g", domain="com.microsoft")
    assert describe(node) == "node 'g' (com.microsoft.Gelu)"
    set_sources(node, ["a", "b"])
    assert describe(node) == "node 'a', 'b' (com.microsoft.Gelu)"
    assert describe_proto(helper.make_node("Relu", ["x"], ["y"])) == "node that computes 'y' (Relu)"


def test_all_graphs_go_down_to_the_innermost() -> None:
    graph = ir.Graph([], [], nodes=[], name="inner")
    for name in ("middle", "outer"):
        graph = ir.Graph([], [], nodes=[ir.node("If", [], {"then_branch": graph})], name=name)
    assert [inner.name for inner in all_graphs(graph)] == ["outer", "middle", "inner"]
