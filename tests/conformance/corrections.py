"""Cases of onnx 1.21 whose data ONNX corrected in 1.22: they run with the data of 1.22, which is written out here."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx
from onnx import helper

_TWO_D = [[41, -12, -9], [1, -75, -128]]
_THREE_D = [[[-86, -128, -128], [115, 39, -121]]] * 2


@dataclass(frozen=True)
class Correction:
    """What 1.22 has instead: attributes of the case's only node, and the first output's values. `source`: ONNX's own change."""

    source: str
    attributes: dict[str, float] = field(default_factory=dict)
    output: list[object] | None = None


_SATURATES = "onnx/onnx#7868: results beyond int8 saturate, as the operator's text says; the data had them wrap around"
CORRECTIONS = {
    "test_adam_multiple": Correction(
        "onnx/onnx#7763: the data was made with epsilon 1e-2, which the node did not say", attributes={"epsilon": 1e-2}
    ),
    "test_qlinearmatmul_2D_int8_float16": Correction(_SATURATES, output=_TWO_D),
    "test_qlinearmatmul_2D_int8_float32": Correction(_SATURATES, output=_TWO_D),
    "test_qlinearmatmul_3D_int8_float16": Correction(_SATURATES, output=_THREE_D),
    "test_qlinearmatmul_3D_int8_float32": Correction(_SATURATES, output=_THREE_D),
}


def correct_model(name: str, model: onnx.ModelProto) -> None:
    """Write the corrected attributes of case `name` into its model; nothing where there are none."""
    if name not in CORRECTIONS:
        return
    (node,) = model.graph.node
    for attribute, value in CORRECTIONS[name].attributes.items():
        assert attribute not in {given.name for given in node.attribute}, f"{name} has {attribute} now: take its correction out"
        node.attribute.append(helper.make_attribute(attribute, value))
