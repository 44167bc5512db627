"""ONNX's backend interface over `InferenceSession`: what the conformance suite of ONNX, and tools written for it, talk to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep, namedtupledict

from anycann.graph.types import type_proto_of
from anycann.session import InferenceSession, SessionOptions
from anycann.support.errors import UsageError


class Prepared(BackendRep):
    """A model ready to run."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Outputs (by position and by name) for `inputs`: a sequence in the model's order, a mapping by name, or one array.

        Raises UsageError when there are more inputs than the model has.
        """
        names = [argument.name for argument in self.session.get_inputs()]
        outputs = self.session.run(None, _by_name(names, inputs))
        names = [argument.name for argument in self.session.get_outputs()]
        return namedtupledict("Outputs", names)(*outputs)


class Backend(OnnxBackend):
    """AnyCANN as an ONNX backend. One device: "CPU"."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", options: SessionOptions | None = None, **_: Any) -> Prepared:
        """Compile `model`. Raises ModelError, UnsupportedError, and UsageError for a device other than "CPU"."""
        if not cls.supports_device(device):
            raise UsageError(f"device {device!r} is unknown; accepted: CPU")
        return Prepared(InferenceSession(model, options))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Compile `model` and run it once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Run one node, at the option `opset_version` of the default domain (the newest that ONNX knows when it is not given)."""
        names = [name for name in dict.fromkeys(node.input) if name]
        values = _by_name(names, inputs)
        infos = [helper.make_value_info(name, type_proto_of(values[name])) for name in names]
        graph = helper.make_graph([node], "node", infos, [onnx.ValueInfoProto(name=name) for name in node.output if name])
        imports = [helper.make_opsetid("", options.pop("opset_version", None) or onnx.defs.onnx_opset_version())]
        if node.domain:
            imports.append(helper.make_opsetid(node.domain, 1))
        model = helper.make_model(graph, opset_imports=imports)
        return cls.run_model(model, [values[name] for name in names], device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is "CPU"."""
        return device == "CPU"


def _by_name(names: Sequence[str], inputs: Any) -> Mapping[str, object]:
    if isinstance(inputs, Mapping):
        return inputs
    values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    if len(values) > len(names):
        raise UsageError(f"{len(values)} inputs were given; the model takes {len(names)}: {', '.join(names) or 'none'}")
    return dict(zip(names, values, strict=False))


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
