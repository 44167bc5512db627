"""Programs of the regions whose input shapes are known before anything runs: branches, loop bodies, and what follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import TypeAlias

import onnx_ir as ir

from anycann.assembly.compiled import Compiled, NodeReport
from anycann.assembly.graph_compiler import GraphCompiler
from anycann.om.model import input_key
from anycann.om.plan import Program, RegionStep, TensorSpec
from anycann.om.weights import Stored
from anycann.support.errors import ModelError, UnsupportedError
from anycann.support.logging import get_logger

MOST_VARIANTS = 4  # types of the inputs that one region is compiled for at one step: a loop whose values grow has any number of them
MOST_PROGRAMS = 64  # of regions, in all

Kinds: TypeAlias = tuple[TensorSpec, ...]  # types that a value may well have when the model runs, their names ""; () if nobody can tell
Made: TypeAlias = Sequence[Kinds]  # of the outputs of a region or step; () if nobody can tell

_ITERATION, _CONDITION = (TensorSpec("", "int64", ()),), (TensorSpec("", "bool", ()),)


class KnownRegions:
    """Follows compiled programs without running them and compiles the regions they come to. What is missed is compiled when it is met.

    graphs: every region found, by name. programs: those compiled, by region and `input_key`. kernels: their texts. nodes: their engines.
    stored: where weights of the model and its regions lie, packed without loss, by the id of their tensor.
    """

    def __init__(self, compiler: GraphCompiler):
        self.graphs: dict[str, ir.Model] = {}
        self.programs: dict[str, dict[str, Program]] = {}
        self.kernels: dict[str, str] = {}
        self.nodes: list[NodeReport] = []
        self.stored: dict[int, Stored] = {}
        self._compiler = compiler
        self._made: dict[tuple[str, str], Made] = {}

    def add(self, compiled: Compiled, graph: ir.Graph) -> list[Kinds]:
        """Take over what belongs to `compiled`, which was made of `graph`, and compile its regions. The types its outputs may have."""
        self.graphs.update(compiled.regions)
        self.kernels.update(compiled.kernels)
        self.stored.update((id(graph.initializers[name].const_value), place) for name, place in compiled.stored.items())
        known = _located(compiled.program)
        for step in compiled.program.steps:
            if isinstance(step, RegionStep):
                made = zip(step.outputs, self._step(step, known), strict=False)
                known |= {name: kinds for name, kinds in made if name not in known}
        return [known.get(spec.name, ()) for spec in compiled.program.outputs]

    # ---- steps: the types of their outputs
    def _step(self, step: RegionStep, known: Mapping[str, Kinds]) -> Made:
        captured = [[known.get(name, ()) for name in names] for names in step.captures]
        inputs = [known.get(name, ()) for name in step.inputs]
        if step.kind == "if":
            return _either([self._call(region, kinds) for region, kinds in zip(step.regions, captured, strict=True)])
        if step.kind == "loop":
            return self._loop(step, inputs[2:], captured[0])
        if step.kind == "scan":
            return self._scan(step, inputs, captured[0])
        return self._call(step.regions[0], [*inputs, *captured[0]])

    def _loop(self, step: RegionStep, carried: Sequence[Kinds], captured: Sequence[Kinds]) -> Made:
        return self._states(step.regions[0], [_ITERATION, _CONDITION], carried, captured, 1)

    def _scan(self, step: RegionStep, inputs: Sequence[Kinds], captured: Sequence[Kinds]) -> Made:
        count = step.attributes["num_scan_inputs"]
        assert isinstance(count, int)
        axes = step.attributes.get("scan_input_axes", (0,) * count)
        assert isinstance(axes, Sequence)
        first = len(inputs) - count
        slices = [_slices(kinds, axis) for kinds, axis in zip(inputs[first:], axes, strict=True)]
        return self._states(step.regions[0], [], inputs[:first], [*slices, *captured], 0)

    def _states(self, region: str, before: list[Kinds], carried: Sequence[Kinds], after: Sequence[Kinds], skip: int) -> Made:
        """Compile a body turn by turn for the types its carried values take, from `carried` on; these types. `skip` outputs come first.

        A carried value of which a turn does not tell the type is taken to keep it.
        """
        waiting, states, turns = _combinations(carried), dict[Kinds, None](), list[Made]()
        while waiting and len(states) < MOST_VARIANTS:
            state = waiting.pop(0)
            if state not in states:
                states[state] = None
                made = self._call(region, [*before, *((kind,) for kind in state), *after])[skip : skip + len(state)]
                turn = [new or (old,) for new, old in zip(made, state, strict=False)]
                turns += [[(kind,) for kind in state], turn]
                waiting += _combinations(turn) if len(turn) == len(state) else []
        return _either(turns)

    # ---- regions
    def _call(self, region: str, inputs: Sequence[Kinds]) -> Made:
        """The types of a region's outputs for every combination of the types of its inputs, each compiled."""
        return _either([self._compile(region, specs) for specs in _combinations(inputs)])

    def _compile(self, region: str, specs: Kinds) -> Made:
        """One program, if it was not there yet. A region that cannot be compiled may never be run: its error waits until then."""
        key = input_key(specs)
        if (region, key) not in self._made:
            if len(self._made) == MOST_PROGRAMS:
                return ()
            self._made[region, key] = ()
            try:
                model = self.graphs[region]
                compiled = self._compiler.compile(model, specs, f"{region}/{key}/")
            except (ModelError, UnsupportedError) as error:
                get_logger("compiler").info("region %s is not compiled for %s: %s", region, key, error)
                return ()
            self.programs.setdefault(region, {})[key] = compiled.program
            self.nodes += compiled.nodes
            self._made[region, key] = self.add(compiled, model.graph)
        return self._made[region, key]


def _located(program: Program) -> dict[str, Kinds]:
    """Values of static type by name, inputs and outputs included."""
    specs = {name: location.spec for name, location in program.values.items()}
    specs |= {spec.name: spec for spec in (*program.inputs, *program.outputs) if spec.dtype != "object"}
    return {name: (TensorSpec("", spec.dtype, spec.shape),) for name, spec in specs.items()}


def _combinations(kinds: Sequence[Kinds]) -> list[Kinds]:
    """The first choices of one type a value; none if a value's type is not known."""
    return list(islice(product(*kinds), MOST_VARIANTS))


def _either(made: Sequence[Made]) -> Made:
    """What the outputs may be after one of several regions or turns."""
    return [tuple(dict.fromkeys(kind for kinds in each for kind in kinds)) for each in zip(*filter(None, made), strict=True)]


def _slices(kinds: Kinds, axis: int) -> Kinds:
    """The types of what a scan input is cut into; () for an axis that it lacks."""
    if any(not -len(kind.shape) <= axis < len(kind.shape) for kind in kinds):
        return ()
    return tuple(TensorSpec("", kind.dtype, tuple(s for n, s in enumerate(kind.shape) if n != axis % len(kind.shape))) for kind in kinds)
