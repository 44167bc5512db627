"""One meaning an operator: a model of any opset from 6 on is brought to the forms of opset 26.

The table says, for every operator whose form changed, at which version, and the function that makes the new form of the old one.
Changes that are not in it widened type lists or added attributes and inputs whose absence means what it meant before; a test checks that
against ONNX's own history of schemas.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx import defs
import onnx_ir as ir

from anycann.frontends.onnx import upgrade_math as computing
from anycann.frontends.onnx import upgrade_opset6 as oldest
from anycann.frontends.onnx import upgrade_shape as moving
from anycann.frontends.onnx.check import NEWEST_OPSET, OPSETS
from anycann.frontends.onnx.edit import Edit
from anycann.frontends.onnx.gradient import expand_gradients
from anycann.frontends.onnx.naming import name_everything
from anycann.frontends.onnx.upgrade_scan import scan_over_batch
from anycann.graph.sources import all_graphs, describe, subgraphs
from anycann.support.errors import InternalError, UnsupportedError, context
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Rule:
    """At version `since` the form of an operator changed; `apply` makes the new form of a node in the form before."""

    since: int
    apply: Callable[[Edit], None]


_BROADCAST = (Rule(7, oldest.broadcast_as_numpy),)
_RECURRENT = (Rule(7, oldest.recurrent_outputs),)
_FLATTENED = (Rule(13, computing.flatten_softmax),)
_REDUCED = (Rule(18, moving.axes_to_input),)

RULES: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), _BROADCAST),
    "BatchNormalization": (
        Rule(7, oldest.batch_normalization_test),
        Rule(9, computing.batch_normalization_spatial),
        Rule(14, computing.batch_normalization_outputs),
    ),
    "Clip": (Rule(11, computing.clip_to_inputs),),
    "Constant": (Rule(NEWEST_OPSET + 1, computing.constant_to_value),),
    "DFT": (Rule(20, computing.dft_axis_to_input),),
    "Dropout": (
        Rule(7, oldest.dropout_test),
        Rule(NEWEST_OPSET + 1, computing.dropout_to_identity),
    ),
    "GridSample": (Rule(20, computing.grid_sample_modes),),
    "GroupNormalization": (Rule(21, computing.group_normalization_channels),),
    "GRU": _RECURRENT,
    "Gemm": (Rule(7, oldest.gemm_broadcast),),
    "Hardmax": _FLATTENED,
    "LSTM": _RECURRENT,
    "LogSoftmax": _FLATTENED,
    "PRelu": (Rule(7, oldest.prelu_channel_slope),),
    "Pad": (Rule(11, moving.pad_to_inputs),),
    "RNN": _RECURRENT,
    "ReduceL1": _REDUCED,
    "ReduceL2": _REDUCED,
    "ReduceLogSum": _REDUCED,
    "ReduceLogSumExp": _REDUCED,
    "ReduceMax": _REDUCED,
    "ReduceMean": _REDUCED,
    "ReduceMin": _REDUCED,
    "ReduceProd": _REDUCED,
    "ReduceSum": (Rule(13, moving.axes_to_input),),
    "ReduceSumSquare": _REDUCED,
    "Resize": (Rule(11, moving.resize_to_coordinates), Rule(13, moving.resize_half_pixel_for_nn)),
    "RoiAlign": (Rule(16, computing.roi_align_half_pixel),),
    "Scan": (Rule(9, scan_over_batch),),
    "Scatter": (Rule(11, moving.scatter_to_elements),),
    "Slice": (Rule(10, moving.slice_to_inputs),),
    "Softmax": _FLATTENED,
    "Split": (Rule(13, moving.split_to_input), Rule(18, moving.split_num_outputs)),
    "Squeeze": (Rule(13, moving.axes_to_input),),
    "TopK": (Rule(10, moving.topk_to_input),),
    "Unsqueeze": (Rule(13, moving.axes_to_input),),
    "Upsample": (Rule(7, oldest.upsample_scales), Rule(9, moving.upsample_to_input), Rule(10, moving.upsample_to_resize)),
}
DEPRECATED = {"Upsample": 10, "Scatter": 11}  # still met after they were deprecated, and then meant as in their last version


def upgrade_model(model: ir.Model) -> ir.Model:
    """Bring `model`, loaded by `load_model`, to opset 26 of the default domain, in place; it is also the result.

    Raises UnsupportedError for opsets above 26, for those below 6 unless every operator has the form it has at 6, and for the few forms
    of old opsets that have no present one.
    """
    opset = model.opset_imports.get("", NEWEST_OPSET)
    if opset > NEWEST_OPSET:
        raise UnsupportedError(f"the model uses opset {opset}; {OPSETS[0]} to {NEWEST_OPSET} are accepted")
    with context(f"while upgrading from opset {opset} to {NEWEST_OPSET}"):
        upgrade_graph(model.graph, opset)
        expand_gradients(model.graph)
    model.opset_imports[""] = NEWEST_OPSET
    if any(node.domain == "ai.onnx.ml" for graph in all_graphs(model.graph) for node in graph):
        from anycann.frontends.onnx.machine_learning import expand_machine_learning

        expand_machine_learning(model.graph)
    name_everything(model)
    return model


def upgrade_graph(graph: ir.Graph, opset: int) -> None:
    """Bring the nodes of `graph` and of its subgraphs from `opset` to the newest one, in place."""
    for node in list(graph):
        for inner in subgraphs(node):
            upgrade_graph(inner, opset)
        if node.domain in ("", "ai.onnx"):
            if opset < OPSETS[0]:
                _check_harmless(node, opset)
            _upgrade_node(graph, node, max(opset, OPSETS[0]))


def _upgrade_node(graph: ir.Graph, node: ir.Node, opset: int) -> None:
    """Apply the rules of every version after `opset`, in order; a rule may make the node another operator, whose rules follow."""
    version = min(opset, DEPRECATED.get(node.op_type, opset + 1) - 1)
    edit = Edit(graph, node)
    while True:
        rule = next((rule for rule in RULES.get(node.op_type, ()) if rule.since > version), None)
        if rule is None:
            return
        rule.apply(edit)
        version = rule.since


def _check_harmless(node: ir.Node, opset: int) -> None:
    """Raises UnsupportedError unless the operator at `opset` is the one of the first opset here, but for the hint `consumed_inputs`."""
    try:
        old, new = (defs.get_schema(node.op_type, version, "") for version in (opset, OPSETS[0]))
    except defs.SchemaError as error:
        raise InternalError(f"{describe(node)} was not checked: {error}") from error
    node.attributes.pop("consumed_inputs", None)
    if old.since_version != new.since_version and _form(old) != _form(new):
        raise UnsupportedError(
            f"{describe(node)} has the form of opset {opset}; {OPSETS[0]} to {NEWEST_OPSET} are accepted: convert the model"
        )


def _form(schema: defs.OpSchema) -> tuple[object, ...]:
    """What tells two versions of an operator apart: attributes with types and defaults, and the names of inputs and outputs."""
    attributes = {name: (str(item.type), str(item.default_value)) for name, item in schema.attributes.items() if name != "consumed_inputs"}
    return attributes, [item.name for item in schema.inputs], [item.name for item in schema.outputs]
