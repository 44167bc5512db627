"""Which loops a group of tensors is computed in: outer loops shared by all, and inside them one stage after the other.

softmax over rows of x[i, j]:      outer i
                                     reduce m = max over j of x[i, j]
                                     reduce s = sum over j of exp(x[i, j] - m)
                                     write  y[i, j] = exp(x[i, j] - m) / s   for j
"""

from __future__ import annotations

from collections.abc import Sequence

from anycann.support.records import dataclass
from anycann.te.expression import Const, Expr, Load, Op, Var
from anycann.te.gated import gated
from anycann.te.rounded import simplified
from anycann.te.simplify import linear
from anycann.te.tensor import Compute, Contraction, Reduction, Tensor
from anycann.te.traversal import substitute, walk


class CannotFuse(Exception):
    """These tensors do not fit into one nest; the text says why."""


@dataclass(frozen=True)
class ReduceStage:
    """For each outer index: `kind` of body over `over`, kept in a register under `tensor`."""

    tensor: Reduction
    over: tuple[Var, ...]
    body: Expr


@dataclass(frozen=True)
class WriteStage:
    """For each outer index and each index of `over`: store body as element `index` of output number `output`."""

    output: int
    over: tuple[Var, ...]
    index: tuple[Expr, ...]
    body: Expr


@dataclass(frozen=True)
class Nest:
    """Shared outer loops and the stages inside them, in order."""

    outer: tuple[Var, ...]
    stages: tuple[ReduceStage | WriteStage, ...]


def build_nest(outputs: Sequence[Tensor]) -> Nest:
    """The nest that computes all outputs (Compute or Reduction tensors) from placeholders and contractions. Raises CannotFuse."""
    inliner = Inliner()
    reduced = reductions(outputs)
    if not reduced:
        return _pointwise(outputs, inliner)
    outer = _variables(reduced[0].axes)
    stages: list[ReduceStage | WriteStage] = []
    for reduction in reduced:
        mapping = _match_axes(reduction.axes, outer)
        body = inliner.inline(substitute(reduction.body, mapping))
        stages.append(ReduceStage(reduction, reduction.reduce_axes, body))
    for number, output in enumerate(outputs):
        stages.append(_write(number, output, outer, inliner))
    _check_bindings(outer, stages)
    return Nest(outer, tuple(stages))


def _pointwise(outputs: Sequence[Tensor], inliner: Inliner) -> Nest:
    first = outputs[0]
    assert isinstance(first, Compute)
    outer = _variables(first.axes)
    stages = []
    for number, output in enumerate(outputs):
        assert isinstance(output, Compute)
        if output.shape != first.shape:
            raise CannotFuse(f"outputs of different shapes: {list(first.shape)} and {list(output.shape)}")
        mapping = _match_axes(output.axes, outer)
        index = tuple(substitute(axis, mapping) for axis in output.axes)
        stages.append(WriteStage(number, (), index, inliner.inline(substitute(output.body, mapping))))
    return Nest(outer, tuple(stages))


def _write(number: int, output: Tensor, outer: tuple[Var, ...], inliner: Inliner) -> WriteStage:
    if isinstance(output, Reduction):
        mapping = _match_axes(output.axes, outer)
        index = tuple(substitute(axis, mapping) for axis in output.axes)
        return WriteStage(number, (), index, Load(output, index))
    assert isinstance(output, Compute)
    body = inliner.inline(output.body)
    mapping = _bound_axes(body, outer)
    index = tuple(substitute(axis, mapping) for axis in output.axes)
    rows = tuple(v for axis in index for v in walk(axis) if isinstance(v, Var) and v not in outer)
    return WriteStage(number, rows, index, substitute(body, mapping))


def _bound_axes(body: Expr, outer: tuple[Var, ...]) -> dict[Var, Expr]:
    """Which variables of an output are the outer loops: those it reads the reductions at. One read at v // d is split in two."""
    mapping: dict[Var, Expr] = {}
    bound: dict[Var, Var] = {}
    for expr in walk(body):
        if isinstance(expr, Load) and isinstance(expr.tensor, Reduction):
            used = [i for i, axis in zip(expr.indices, expr.tensor.axes, strict=True) if isinstance(axis, Var)]
            for index, loop in zip(used, outer, strict=True):
                variable, divisor = _quotient(index)
                if variable is None or variable.extent != loop.extent * divisor or bound.setdefault(variable, loop) is not loop:
                    raise CannotFuse("a reduced value is read at other places than its own row")
                if variable not in mapping:
                    mapping[variable] = loop if divisor == 1 else loop * divisor + Var(f"{variable.name}_in", divisor)
    if len(bound) != len(outer):
        raise CannotFuse("an output does not depend on the reduction it is grouped with")
    return mapping


def _quotient(index: Expr) -> tuple[Var | None, int]:
    """(v, d) for an index v // d, (v, 1) for v itself, (None, 1) for another index."""
    form = linear(index)
    if len(form.terms) != 1 or form.constant or form.terms[0][1] != 1:
        return None, 1
    atom = form.terms[0][0]
    if isinstance(atom, Op) and atom.name == "floordiv" and isinstance(atom.operands[1], Const):
        return _plain_variable(atom.operands[0]), int(atom.operands[1].value)
    return (atom, 1) if isinstance(atom, Var) else (None, 1)


def _plain_variable(index: Expr) -> Var | None:
    form = linear(index)
    if form.constant == 0 and len(form.terms) == 1 and form.terms[0][1] == 1 and isinstance(form.terms[0][0], Var):
        return form.terms[0][0]
    return None


def _check_bindings(outer: tuple[Var, ...], stages: Sequence[ReduceStage | WriteStage]) -> None:
    """Every read of a reduction is at the outer index of this very iteration."""
    for stage in stages:
        for expr in walk(stage.body):
            if isinstance(expr, Load) and isinstance(expr.tensor, Reduction):
                used = [i for i, axis in zip(expr.indices, expr.tensor.axes, strict=True) if isinstance(axis, Var)]
                if [_plain_variable(i) for i in used] != list(outer):
                    raise CannotFuse("a reduction reads another row of an earlier one")


def reductions(outputs: Sequence[Tensor]) -> list[Reduction]:
    """All reductions below the outputs, producers first."""
    order: list[Reduction] = []
    seen: set[int] = set()

    def visit(tensor: Tensor) -> None:
        if id(tensor) in seen:
            return
        seen.add(id(tensor))
        if isinstance(tensor, Compute | Reduction):
            for expr in walk(tensor.body):
                if isinstance(expr, Load):
                    visit(expr.tensor)
        if isinstance(tensor, Reduction):
            order.append(tensor)

    for output in outputs:
        visit(output)
    return order


def _variables(axes: Sequence[Expr]) -> tuple[Var, ...]:
    return tuple(axis for axis in axes if isinstance(axis, Var))


def _match_axes(axes: Sequence[Expr], outer: tuple[Var, ...]) -> dict[Var, Expr]:
    """Own axes by position onto the outer loops of the same extents."""
    own = _variables(axes)
    if [v.extent for v in own] != [v.extent for v in outer]:
        raise CannotFuse(f"loops of different extents: {[v.extent for v in own]} and {[v.extent for v in outer]}")
    return dict(zip(own, outer, strict=True))


class Inliner:
    """Replaces reads of computed tensors by their bodies, each (tensor, index) once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Expr] = {}
        self._keys: dict[int, tuple[object, object]] = {}

    def inline(self, root: Expr) -> Expr:
        """`root` with no read of a Compute left in it."""
        memo: dict[int, Expr] = {}
        for expr in walk(root):
            memo[id(expr)] = self._one(expr, memo)
        return memo[id(root)]

    def _one(self, expr: Expr, memo: dict[int, Expr]) -> Expr:
        if isinstance(expr, Op):
            operands = tuple(memo[id(o)] for o in expr.operands)
            unchanged = all(a is b for a, b in zip(operands, expr.operands, strict=True))
            return expr if unchanged else simplified(gated(Op(expr.name, operands, expr.dtype)))
        if not isinstance(expr, Load):
            return expr
        indices = tuple(memo[id(i)] for i in expr.indices)
        key = (id(expr.tensor), *(self.key(i) for i in indices))
        if key not in self._known:
            self._known[key] = self._load(expr.tensor, indices)
        return self._known[key]

    def _load(self, tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
        if not isinstance(tensor, Compute):
            return Load(tensor, indices)
        mapping = {axis: index for axis, index in zip(tensor.axes, indices, strict=True) if isinstance(axis, Var)}
        return self.inline(substitute(tensor.body, mapping))

    def key(self, expr: Expr) -> object:
        """A hashable that is equal for structurally equal index expressions."""
        known = self._keys.get(id(expr))
        if known is None:
            known = self._keys[id(expr)] = (expr, self._structure(expr))  # keeps expr alive, so that its id stays its own
        return known[1]

    def _structure(self, expr: Expr) -> object:
        if isinstance(expr, Const):
            return (expr.dtype.name, expr.value)
        if isinstance(expr, Var):
            return expr.serial
        if isinstance(expr, Load):
            return (id(expr.tensor), *(self.key(i) for i in expr.indices))
        assert isinstance(expr, Op)
        return (expr.name, expr.dtype.name, *(self.key(o) for o in expr.operands))


def contractions(outputs: Sequence[Tensor]) -> list[Contraction]:
    """The contractions below the outputs."""
    found: dict[int, Contraction] = {}
    seen: set[int] = set()
    stack = list(outputs)
    while stack:
        tensor = stack.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if isinstance(tensor, Contraction):
            found[id(tensor)] = tensor
        elif isinstance(tensor, Compute | Reduction):
            stack += [expr.tensor for expr in walk(tensor.body) if isinstance(expr, Load)]
    return list(found.values())
