"""Standard operators whose class in `onnx.reference` departs from the specification: optionals, If with an absent result, Loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from anycann.graph.types import numpy_dtype


class _HostOp(OpRun):
    """An operator that may give None, an optional without a value."""

    def _check_and_fix_outputs(self, results: tuple[object, ...]) -> tuple[object, ...]:
        return results


class Optional(_HostOp):
    """Optional(x?): a present optional is represented by its value, an absent one by None."""

    def _run(self, x: object = None, **_: object) -> tuple[object]:
        return (x,)


class If(_HostOp):
    """If(cond): the outputs of one branch."""

    def need_context(self) -> bool:
        return True

    def _run(self, condition: np.ndarray, context: Mapping[str, object], attributes: Any = None, **branches: Any) -> tuple[object, ...]:
        branch = branches["then_branch" if condition.item() else "else_branch"]
        return tuple(branch.run(None, dict(context), attributes=attributes))


class Loop(_HostOp):
    """Loop(M?, cond?, carried...): carried values after the last iteration, then the per-iteration outputs stacked on a new first axis."""

    def need_context(self) -> bool:
        return True

    def _run(
        self,
        trips: np.ndarray | None,
        condition: np.ndarray | None,
        *carried: object,
        context: Mapping[str, object],
        body: Any,
        attributes: Any = None,
    ) -> tuple[object, ...]:
        values, count = list(carried), len(carried)
        scans: list[list[np.ndarray]] = [[] for _ in body.output_names[1 + count :]]
        running = condition is None or bool(condition.item())
        limit = None if trips is None else int(trips.item())
        iteration = 0
        while running and (limit is None or iteration < limit):
            arguments = [np.array(iteration, np.int64), np.array(running), *values]
            feeds = {**context, **dict(zip(body.input_names, arguments, strict=True))}
            keep_on, *results = body.run(None, feeds, attributes=attributes)
            running, values = bool(keep_on.item()), results[:count]
            for scan, result in zip(scans, results[count:], strict=True):
                scan.append(result)
            iteration += 1
        return (*values, *(_stack(scan, type_) for scan, type_ in zip(scans, body.output_types[1 + count :], strict=True)))


def _stack(results: list[np.ndarray], type_: Any) -> np.ndarray:
    """The results of all iterations on a new first axis; of no iteration, an empty array of the declared type and sizes (unknown: 0)."""
    if results:
        return np.stack(results)
    tensor = type_.tensor_type
    return np.empty((0, *(dim.dim_value for dim in tensor.shape.dim)), numpy_dtype(tensor.elem_type or 1))


class Scan(_HostOp):
    """Scan(states..., sequences...): states after the last slice, then what each slice gave, stacked along the output axes."""

    def need_context(self) -> bool:
        return True

    def _run(
        self,
        *values: np.ndarray,
        context: Mapping[str, object],
        body: Any,
        num_scan_inputs: int,
        scan_input_axes: list[int] | None = None,
        scan_input_directions: list[int] | None = None,
        scan_output_axes: list[int] | None = None,
        scan_output_directions: list[int] | None = None,
        attributes: Any = None,
    ) -> tuple[object, ...]:
        count = len(values) - num_scan_inputs
        states, sequences = list(values[:count]), []
        outputs = len(body.output_names) - count
        for number, sequence in enumerate(values[count:]):
            moved = np.moveaxis(sequence, _item(scan_input_axes, number), 0)
            sequences.append(moved[::-1] if _item(scan_input_directions, number) else moved)
        scans: list[list[np.ndarray]] = [[] for _ in range(outputs)]
        for step in range(len(sequences[0])):
            arguments = [*states, *(sequence[step] for sequence in sequences)]
            feeds = {**context, **dict(zip(body.input_names, arguments, strict=True))}
            results = body.run(None, feeds, attributes=attributes)
            states = results[:count]
            for scan, result in zip(scans, results[count:], strict=True):
                scan.append(result)
        stacked = [_stack(scan, type_) for scan, type_ in zip(scans, body.output_types[count:], strict=True)]
        ordered = [result[::-1] if _item(scan_output_directions, number) else result for number, result in enumerate(stacked)]
        return (*states, *(np.moveaxis(result, 0, _item(scan_output_axes, number)) for number, result in enumerate(ordered)))


def _item(values: list[int] | None, number: int) -> int:
    """Entry `number` of an optional list of axes or directions; 0 is what an absent one means."""
    return 0 if values is None else values[number]
