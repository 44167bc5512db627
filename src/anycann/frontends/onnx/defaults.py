"""Inputs with a default value: initialisers that are also inputs, which the model computes with unless a feed says otherwise.

From IR version 4 on ONNX means an optional input by that; version 3 had to list every initialiser as an input, and means a constant.
Inside, such a value is a constant like any other, so that the default folds and packs; its name is noted on the graph, and a variant of the
model has it as an input.
"""

from __future__ import annotations

from collections.abc import Sequence
import json

import onnx_ir as ir

from anycann.support.errors import ModelError, UsageError

FIRST_IR_VERSION = 4
NOTE = "anycann.overridable"  # key in the graph's metadata: a JSON list of names


def fix_defaults(graph: ir.Graph) -> list[str]:
    """Make inputs that have an initialiser constants; the answer is their names, in order."""
    fixed = [value for value in graph.inputs if value.name in graph.initializers and value.const_value is not None]
    graph.inputs[:] = [value for value in graph.inputs if value not in fixed]
    return [value.name or "" for value in fixed]


def note_overridable(graph: ir.Graph, names: Sequence[str], ir_version: int | None) -> None:
    """Remember which constants a feed may replace, if this version of the format means that."""
    graph.metadata_props.pop(NOTE, None)
    if names and (ir_version or FIRST_IR_VERSION) >= FIRST_IR_VERSION:
        graph.metadata_props[NOTE] = json.dumps(list(names))


def overridable(graph: ir.Graph) -> list[ir.Value]:
    """The constants that a feed may replace, in the order in which the model lists them as inputs. Raises ModelError for a damaged note."""
    note = graph.metadata_props.get(NOTE, "[]")
    try:
        names = [str(name) for name in json.loads(note)]
    except (ValueError, TypeError) as error:
        raise ModelError(f"the graph's {NOTE!r} is {note!r:.60}; accepted: a JSON list of names") from error
    return [graph.initializers[name] for name in names if name in graph.initializers]


def with_inputs(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """(x), w = default -> (x, w): a copy of the model in which the named constants are further inputs, in this order.

    Raises UsageError for a name that is not overridable.
    """
    copy = model.clone()
    values = {value.name: value for value in overridable(copy.graph)}
    for name in names:
        if name not in values:
            raise UsageError(f"{name!r} is no input with a default value; accepted: {', '.join(map(str, values)) or 'none'}")
        value = copy.graph.initializers.pop(name)
        value.const_value = None
        copy.graph.inputs.append(value)
    return copy
