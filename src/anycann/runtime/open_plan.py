"""An open program as one function of Python that is written for it: sizes are integers, kernels run together, and little else is left.

    n1, n2, = x1.shape                                  of a feed
    n3 = n1 + 1                                         Shape, Gather, Add, Unsqueeze
    x4 = x2[n1:n3, ...]                                 Slice
    c5[7] = id(x4)                                      kernels
    x6 = empty((1, 4, n3, 64), o7)                      Concat of a cache and what they give
    c8((x6, x1, c9), (2, 256 * n3, ..), 4, o10(..))
    o11(c12)                                            all of it runs

It is written by what one run's values were like. What it takes for granted of another run, it checks, and gives None where that is not so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anycann.runtime.open_attention import AttentionNodes
from anycann.runtime.open_program import OWN, HostNode, OpenProgram, Sized
from anycann.runtime.part_kernels import Kernels
from anycann.runtime.plan_calls import Calls, Own
from anycann.runtime.plan_nodes import ELEMENTWISE_TYPES, Node, as_numbers, as_view
from anycann.runtime.plan_text import FLOAT32, Array, Example, Known, Numbers, Text, UnplannedError, Value, ints_of, tuple_of
from anycann.runtime.row_kernels import RowKernels
from anycann.runtime.thread_pool import ThreadPool

MOST_IDLE = 4  # sets of what runs at once need of their own


class Plan:
    """The function. Safe in any thread."""

    def __init__(self, run: Callable[[Sequence[object], Sequence[object]], list[object] | None], own: Sequence[Own]):
        self._run, self._own = run, own
        self._idle: list[Sequence[object]] = []  # append and pop are atomic

    def run(self, feeds: Sequence[object]) -> list[object] | None:
        """The outputs, arrays of their own; None for a run that the function was not written for.

        Raises AnyCANNError where a node of the host refuses its operands.
        """
        try:
            own = self._idle.pop()
        except IndexError:
            own = self._made()
        try:
            return self._run(feeds, own)
        except (ArithmeticError, IndexError, TypeError, ValueError):  # for sizes that do not fit
            return None
        finally:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(own)

    def _made(self) -> Sequence[object]:
        made: dict[str, Any] = {}
        for each in self._own:
            made[each.name] = each.make(made)
        return tuple(made.values())


def plan(program: OpenProgram, examples: Mapping[str, Example], pool: ThreadPool) -> Plan | None:
    """The function for `program`, of which one run had such values; None where there is no way to write it."""
    try:
        return _Writer(program, examples, pool).plan()
    except UnplannedError:
        return None


class _Writer:
    def __init__(self, program: OpenProgram, examples: Mapping[str, Example], pool: ThreadPool):
        self._program, self._examples = program, examples
        self._text = Text()
        self._calls = Calls(self._text, pool.calls)
        self._values: dict[str, Value] = {}
        self._arrays: dict[str, Known] = {}  # of values that are known as integers
        self._dead: set[str] = set()  # values that nobody needs any more
        self._pending: set[str] = set()  # values that are computed at the next flush

    def plan(self) -> Plan:
        text, program = self._text, self._program
        feeds = [text.fresh("x") for _ in program.inputs]
        for name, feed in zip(program.inputs, feeds, strict=True):
            self._values[name] = self._noted(name, text.seen(feed, self._example(name)))
        for part, dead in zip(program.parts, program.dead, strict=True):
            self._write(part)
            self._dead.update(dead)
            if not self._calls.wait:
                self._let_go()
        self._calls.flush()
        outputs = self._outputs()
        own = self._calls.own
        head = [f"{tuple_of([each.name for each in own])} = own"] if own else []
        lines = [*([f"{tuple_of(feeds)} = feeds"] if feeds else []), *head, *text.ordered(), f"return [{', '.join(outputs)}]"]
        exec(compile("def run(feeds, own):\n " + "\n ".join(lines), "<open plan>", "exec"), text.objects)
        return Plan(text.objects.pop("run"), own)  # type: ignore[arg-type]  # else it would hold itself, and all it names

    def _outputs(self) -> list[str]:
        """An array of its own for each."""
        taken: set[str] = set()
        found = []
        for name in self._program.outputs:
            value = self._operand(name)
            alone = value.fresh and value.plain and value.name not in taken
            taken.add(value.name)
            found.append(value.name if alone else f'array({value.name}, order="C")')
        return found

    # ---- parts
    def _write(self, part: Kernels | RowKernels | HostNode) -> None:
        if isinstance(part, Kernels):
            leaves = [name in self._program.outputs for name in part.outputs]
            results: Sequence[Value] = self._calls.program(part.program, [self._plain(name) for name in part.inputs], leaves)
            self._pending.update(part.outputs)
        elif isinstance(part, RowKernels):
            results = self._rows(part)
        else:
            results = self._attention(part) or self._node(part) or self._by_numpy(part)
        for name, value in zip(part.outputs, results, strict=True):
            if name:
                self._check(name, value)
                self._values[name] = self._noted(name, value)

    def _rows(self, part: RowKernels) -> list[Known]:
        self._calls.flush()
        self._pending.clear()
        text, operands = self._text, [self._operand(name) for name in part.inputs]
        names = [text.fresh("x") for _ in part.outputs]
        rows = next(operand.sizes[axis] for operand, axis in zip(operands, part.axes, strict=True) if axis is not None)
        found = text.fresh("x")
        text.line(f"{found} = {text.bind(part.run)}({tuple_of([operand.name for operand in operands])})")
        text.refuse_if(f"{found} is None")
        text.line(f"{', '.join(names)}, = {found}")
        text.line(f"{found} = None")
        results = []
        for name, output, axis in zip(names, part.outputs, part.output_axes, strict=True):
            like = self._example(output)
            sizes = tuple(rows if number == axis else str(size) for number, size in enumerate(like.shape))
            results.append(Known(name, sizes, like.dtype, all(size == "1" for size in sizes[:axis])))
        return results

    def _attention(self, part: HostNode) -> list[Known] | None:
        if not isinstance(part.evaluate, AttentionNodes):
            return None
        try:
            result = self._calls.attention(part.evaluate.kernel, [self._operand(name) for name in part.inputs])
        except UnplannedError:
            return None
        self._pending.update(part.outputs)
        return [result]

    def _node(self, part: HostNode) -> list[Value] | None:
        """A node by integers, by a view or by kernels, if it can be."""
        if len(part.outputs) != 1 or any(not name for name in part.inputs) or not part.op_type:
            return None
        values = [self._values.get(name) or self._constant(name) for name in part.inputs]
        constants = [self._program.constants.get(name) for name in part.inputs]
        node = Node(self._text, part.op_type, part.attributes, values, constants)
        try:
            numbers = as_numbers(node)
            if numbers is not None:
                return [numbers]
            if self._pending.isdisjoint(part.inputs[1:]) and (view := as_view(node)) is not None:
                if part.inputs[0] in self._pending:
                    self._pending.update(part.outputs)
                return [view]
            if part.op_type == "Concat" and not self._pending.isdisjoint(part.inputs):
                axis, operands = part.attributes["axis"], [self._operand(name) for name in part.inputs]
                assert isinstance(axis, int)
                joined = self._calls.joined(operands, axis % len(operands[0].sizes))
                self._pending.update(part.outputs)
                return [joined]
        except UnplannedError:
            pass
        return None

    def _by_numpy(self, part: HostNode) -> list[Known]:
        """Any node, and its results as they come."""
        if not self._pending.isdisjoint(part.inputs):
            self._calls.flush()
            self._pending.clear()
        text = self._text
        operands = [self._operand(name) if name else None for name in part.inputs]
        names = [text.fresh("x") for _ in part.outputs]
        words = [operand.name if operand is not None else "None" for operand in operands]
        dtypes = {operand.dtype for operand in operands if operand is not None}
        function = ELEMENTWISE_TYPES.get(next(iter(dtypes)), {}).get(part.op_type) if len(dtypes) == 1 else None
        if function is not None and any(operand.sizes for operand in operands if operand is not None):  # else numpy gives no array
            text.line(f"{names[0]} = {text.bind(getattr(np, function))}({', '.join(words)})")
        else:
            text.line(f"{', '.join(names)}, = {text.bind(part.evaluate)}({tuple_of(words)})")
        return [self._made(name, output, words) for name, output in zip(names, part.outputs, strict=True)]

    def _made(self, name: str, output: str, operands: Sequence[str]) -> Known:
        """A result of numpy's. One that leaves the function is copied at once if it is not an array of its own."""
        if not output:
            return Known(name, (), FLOAT32)
        found = self._text.seen(name, self._example(output))
        if output not in self._program.outputs:
            return found
        others = "".join(f" and {name} is not {operand}" for operand in operands)
        alone = f"{name}.base is None and {name}.flags.num & {OWN} == {OWN}{others}"
        own = self._text.fresh("x")  # not the same name: lines that ask for strides go in front of what gives a name another array
        self._text.line(f'{own} = {name} if {alone} else array({name}, order="C")')
        self._text.line(f"{name} = None")
        return Known(own, found.sizes, found.dtype, True, True)

    # ---- values
    def _operand(self, name: str) -> Known:
        """A value as an array."""
        value = self._values.get(name) or self._constant(name)
        if value is None:
            raise UnplannedError
        if isinstance(value, Known):
            return value
        if name not in self._arrays:
            self._arrays[name] = self._text.written(value)
        return self._arrays[name]

    def _plain(self, name: str) -> Known:
        """A value as a row-major array."""
        value = self._operand(name)
        if value.name not in self._text.scattered:
            return value
        if name in self._pending:
            self._calls.flush()
            self._pending.clear()
        return self._text.view(f"as_plain({value.name})", value.sizes, value.dtype, True)

    def _noted(self, name: str, value: Value) -> Value:
        """The same; where it did not lie row-major in the run that is known, that is not asked of it."""
        if isinstance(value, Known) and not value.plain and not self._example(name).plain:
            self._text.scattered.add(value.name)
        return value

    def _constant(self, name: str) -> Value | None:
        found: Array | None = self._program.constants.get(name)
        if found is None:
            return None
        numbers = ints_of(None, found)
        if numbers is not None:
            return numbers
        plain = found.flags.c_contiguous and found.flags.aligned
        return Known(self._text.bind(found), tuple(map(str, found.shape)), found.dtype, plain)

    def _example(self, name: str) -> Example:
        found = self._examples.get(name)
        if found is None:
            raise UnplannedError
        return found

    def _let_go(self) -> None:
        """Of arrays that no call waits for: attention over long sequences makes large ones in every layer."""
        lives = {value.name for name, value in self._values.items() if name not in self._dead and isinstance(value, Known)}
        for name in sorted(self._dead & self._values.keys()):
            value = self._values.pop(name)
            if isinstance(value, Known) and value.name.startswith("x") and value.name not in lives:
                self._text.line(f"{value.name} = None")

    def _check(self, name: str, value: Value) -> None:
        """Go no further where a result is not what the program has to have there."""
        wanted: Sized | None = self._program.checked.get(name)
        if wanted is None:
            return
        array = self._text.written(value) if isinstance(value, Numbers) else value
        if array.dtype != wanted.dtype:
            raise UnplannedError
        if wanted.shape is not None:
            self._text.same_sizes(array.sizes, [str(size) for size in wanted.shape])
