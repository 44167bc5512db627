"""The kernels of each group: which generator, what they are called with, and the packed weights that go with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import math

import onnx_ir as ir

from anycann.assembly.weights import Array, Weights, forget
from anycann.codegen.contract import gains_by_planes, refuse, wanted_layout
from anycann.codegen.kernel import Kernel
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.recipe import Recipe
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated
from anycann.graph.registry import NotLowered, Registry, static_type
from anycann.om.plan import Buffer
from anycann.om.weights import Stored
from anycann.passes.aliases import Aliases, part_offset
from anycann.passes.grouping import Group, group_tensors
from anycann.passes.in_place import read_where_written
from anycann.passes.order import Unit
from anycann.passes.partition import AICORE, lower_node
from anycann.support.errors import context
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import tensor as te
from anycann.te.contractions import Attention, WeightGradient, operands
from anycann.te.expression import Load
from anycann.te.layout import ND, Place
from anycann.te.nest import CannotFuse, build_nest, contractions
from anycann.te.routines import Routine
from anycann.te.tensor import Compute, Constant, Contraction, Reduction, Tensor
from anycann.te.traversal import walk


@dataclass(frozen=True)
class Planned:
    """A kernel about to be generated: the nodes it computes, from what, and how its generators choose.

    constants: the model's, which may be let go afterwards.
    """

    nodes: tuple[str, ...]
    op_type: str
    recipe: Recipe
    constants: Constants
    choices: Choices


Watch = Callable[[Planned], None]


@dataclass(frozen=True)
class Generators:
    """The code generator as the passes ask it: what it can compute, and which layouts it reads. `watch` sees every kernel first."""

    registry: Registry
    target: Target
    choices: Choices
    watch: Watch | None = None

    def problem(self, node: ir.Node, tensors: list[Tensor]) -> str | None:
        """Why no generator takes the products in a node's lowering, or None."""
        for contraction in contractions(tensors):
            reason = refuse(contraction, lambda name: any(_is_known(v, name) for v in node.inputs))
            if reason is not None:
                return reason
        return None

    def wanted_layout(self, node: ir.Node, number: int, stored: str) -> str:
        """The layout operand `number` must have: `stored` itself if the node's kernel reads it as it is."""
        value = node.inputs[number]
        assert value is not None
        try:
            found = contractions(lower_node(node, self.registry, {}))
        except NotLowered:
            return stored
        return wanted_layout(found[0], value.name or "", stored, self.target, self.choices) if found else stored

    def gains_by_planes(self, node: ir.Node, written: bool) -> bool:
        """Whether a node is a convolution that had better read and write row-major planes; `written`: it has to write them anyway."""
        try:
            found = contractions(lower_node(node, self.registry, {}))
        except NotLowered:
            return False
        return bool(found) and gains_by_planes(found[0], self.target, self.choices, written)

    def reads_planes(self, node: ir.Node) -> bool:
        """Whether the kernel of a node reads its first operand as row-major planes."""
        return self.wanted_layout(node, 0, ND) == ND


def _is_known(value: ir.Value | None, name: str) -> bool:
    return value is not None and value.name == name and value.const_value is not None


@dataclass(frozen=True)
class Launch:
    """A kernel and the values it writes."""

    kernel: Kernel
    outputs: tuple[str, ...]


class KernelMaker:
    """Makes the kernels of one graph.

    texts: IR by symbol. buffers: packed weights and tables by the name kernels have for them. reads: what a unit's only result reads at its
    own index. workspaces: memory in which the kernels of a group hand something over (name, bytes).
    """

    def __init__(self, generators: Generators, weights: Weights, layouts: Mapping[ir.Value, str], aliases: Aliases):
        self._generators, self._weights, self._layouts, self._aliases = generators, weights, layouts, aliases
        self._target = generators.target
        self.texts: dict[str, str] = {}
        self.buffers: dict[str, Buffer] = {}
        self.reads: dict[Unit, frozenset[str]] = {}
        self.workspaces: dict[Group, list[tuple[str, int]]] = {}
        told = generators.choices.digest()
        self._repeats = Repeats(generators.target, told) if told is not None else Repeats()

    def launches(self, units: Sequence[Unit]) -> dict[Unit, list[Launch]]:
        """The kernels of every AiCore unit, those whose result is a slice in place left out."""
        return {unit: self._launches(unit) for unit in units if unit.kind == AICORE and unit not in self._aliases.slices}

    def keep_only(self, symbols: Iterable[str]) -> None:
        """Forget the text of kernels that nothing launches."""
        used = set(symbols)
        self.texts = {symbol: text for symbol, text in self.texts.items() if symbol in used}

    def _launches(self, unit: Unit) -> list[Launch]:
        assert unit.group is not None
        with context(f"while compiling {', '.join(n.name or n.op_type for n in unit.nodes)}"):
            if unit.nodes[0].op_type == "Concat" and unit.nodes[0].domain == "":
                return self._concatenation(unit.nodes[0])
            tensors = group_tensors(unit.group, self._generators.registry)
            if unit.group.alone:
                return self._alone(unit.group, tensors)
            used = [v for v in unit.group.outputs if math.prod(tensors[v].shape)]
            outputs = [Output(v.name or "", self._weights.stored(tensors[v], v), self._layouts.get(v, ND)) for v in used]
            self._note_tables([o.tensor for o in outputs])
            kernels = self._kernels(unit.group, outputs)
            if len(outputs) == len(kernels) == 1:
                self.reads[unit] = read_where_written(outputs[0].tensor)
        for value in unit.group.inputs:
            forget(value)
        return kernels

    def _kernels(self, group: Group, outputs: Sequence[Output]) -> list[Launch]:
        """One kernel for all outputs; the outputs of a node that fit into no common nest share as few as they can."""
        try:
            return self._launches_of(self._generate(group, outputs), group, outputs)
        except CannotFuse:
            if len(group.nodes) > 1:
                raise
        return [launch for some in _fitting(outputs) for launch in self._launches_of(self._generate(group, some), group, some)]

    def _launches_of(self, generated: Generated, group: Group, outputs: Sequence[Output]) -> list[Launch]:
        """A kernel, after the one that fills its workspace."""
        kernel = Launch(self._keep(generated, group), tuple(o.name for o in outputs))
        if generated.before is None or generated.workspace is None:
            return [kernel]
        self.texts[generated.before.symbol] = generated.before.ir
        self.workspaces[group] = [(generated.workspace.name, generated.workspace.nbytes)]
        return [Launch(generated.before, ()), kernel]

    def _keep(self, generated: Generated, group: Group | None = None) -> Kernel:
        """Take over a kernel and its packed weights; the weights they were made of are not needed again."""
        for packed in generated.packed:  # at once, so that the array can go
            self.buffers[packed.name] = buffer = self._weights.sink.add(packed.array)
            source = next((value for value in group.inputs if value.name == packed.source), None) if group is not None else None
            if source is not None and packed.arrangement is not None:
                self._weights.note(source, packed.array.dtype, Stored(buffer, packed.arrangement))
        self.texts[generated.kernel.symbol] = generated.kernel.ir
        return generated.kernel

    def _alone(self, group: Group, tensors: Mapping[ir.Value, Tensor]) -> list[Launch]:
        """The kernels of a routine, of a recurrent layer or of a gradient of weights."""
        parts = {v.name or "": contractions([tensors[v]])[0].operator for v in group.outputs}
        layouts = self._layouts_of(group)
        gradients = {name: part for name, part in parts.items() if isinstance(part, WeightGradient)}
        if gradients:
            from anycann.codegen.contract_gradient import generate_gradient

            return [Launch(self._keep(generate_gradient(name, part, layouts, self._target)), (name,)) for name, part in gradients.items()]
        routines = {name: part for name, part in parts.items() if isinstance(part, Routine)}
        if routines:
            from anycann.codegen.contract_routine import generate_routine

            return [Launch(self._keep(generate_routine(routines, layouts, self._target)), tuple(routines))]
        return self._recurrent(group, parts)

    def _recurrent(self, group: Group, layers: Mapping[str, object]) -> list[Launch]:
        """The input projection of all steps as a matrix product into a workspace, then the loop over time or its steps."""
        from anycann.codegen.contract_recurrent import generate_recurrent

        gates = f"{group.nodes[0].name}/gates"
        generated, workspaces = generate_recurrent(
            layers,  # type: ignore[arg-type]
            self._layouts_of(group),
            gates,
            self._target,
            self._constants(group),
            self._generators.choices,
        )
        self.workspaces[group] = list(workspaces.items())
        *before, last = [self._keep(each) for each in generated]
        return [*(Launch(kernel, ()) for kernel in before), Launch(last, tuple(layers))]

    def _generate(self, group: Group, outputs: Sequence[Output]) -> Generated:
        recipe = Recipe(tuple(outputs), self._layouts_of(group), self._target, _family(group))
        constants = self._constants(group)
        if self._generators.watch is not None:
            nodes = tuple(node.name or "" for node in group.nodes)
            self._generators.watch(Planned(nodes, group.nodes[0].op_type, recipe.of_whole_images(), constants, self._generators.choices))
        return recipe.generate(constants, self._generators.choices, self._repeats)

    def _layouts_of(self, group: Group) -> dict[str, str]:
        """The layouts of a group's operands by name; absent: row-major."""
        return {value.name or "": self._layouts[value] for value in group.inputs if value in self._layouts}

    def _constants(self, group: Group) -> Constants:
        """The values of a group's constant operands by name."""
        inputs = {v.name or "": v for v in group.inputs}

        def constant(name: str) -> Array | None:
            return self._weights.value(inputs.get(name))

        return constant

    def _concatenation(self, node: ir.Node) -> list[Launch]:
        """One copy for each operand, into its part of the result."""
        result = node.outputs[0]
        type_ = static_type(result)
        assert type_ is not None
        axis = node.attributes["axis"].as_int() % len(type_.shape)
        kernels: list[Launch] = []
        start = 0
        for value in node.inputs:
            part = None if value is None else static_type(value)
            assert value is not None
            assert part is not None
            there = part_offset(self._layouts.get(result, ND), type_, axis, start, self._target.lanes)
            if math.prod(part.shape) and not self._aliases.lies_at(value, result, there):
                source = te.placeholder(value.name or "", part.shape, part.dtype)
                piece = te.compute(part.shape, lambda *index, source=source: source[index])
                offset = tuple(start if d == axis else 0 for d in range(len(part.shape)))
                place = Place(type_.shape, self._layouts.get(result, ND), offset)
                layouts = {value.name or "": self._layouts[value]} if value in self._layouts else {}
                kernel = generate([Output(result.name or "", piece, within=place)], layouts, self._target, "concat")
                self.texts[kernel.symbol] = kernel.ir
                kernels.append(Launch(kernel, (result.name or "",)))
            start += part.shape[axis]
        return kernels

    def _note_tables(self, tensors: Sequence[Tensor]) -> None:
        """Remember tables made by lowerings, which kernels name among their arguments."""
        seen: set[int] = set()
        stack = list(tensors)
        while stack:
            tensor = stack.pop()
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if isinstance(tensor, Constant):
                self.buffers[tensor.name] = self._weights.sink.add(tensor.value)
            elif isinstance(tensor, Compute | Reduction):
                stack += [e.tensor for e in walk(tensor.body) if isinstance(e, Load)]
            elif isinstance(tensor, Contraction) and isinstance(tensor.operator, Attention):  # others pack what they know
                stack += operands(tensor.operator)


def _fitting(outputs: Sequence[Output]) -> list[list[Output]]:
    """The outputs in sets that each fit into one nest: every output joins the first one that it fits."""
    found: list[list[Output]] = []
    for output in outputs:
        for some in found:
            try:
                build_nest([o.tensor for o in (*some, output)])
            except CannotFuse:
                continue
            some.append(output)
            break
        else:
            found.append([output])
    return found


def _family(group: Group) -> str:
    """A readable prefix for the kernel's symbol."""
    kinds = list(dict.fromkeys(node.op_type.lower() for node in group.nodes))
    return "_".join(kinds[:3])
