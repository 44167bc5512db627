"""Walks over expressions: their operands, everything below a root, and the tree with some of it replaced. Sharing is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anycann.te import dtypes
from anycann.te.expression import FOLDED, Expr, Load, Op, Var, binary


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct operands."""
    if isinstance(expr, Op):
        return expr.operands
    return expr.indices if isinstance(expr, Load) else ()


def walk(*roots: Expr) -> list[Expr]:
    """Every expression below the roots, operands before users, each once."""
    order: list[Expr] = []
    seen: set[int] = set()
    users: list[Expr] = []  # their operands are on the stack, None behind them
    stack: list[Expr | None] = [*reversed(roots)]
    while stack:
        expr = stack.pop()
        if expr is None:
            order.append(users.pop())
            continue
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        operands = expr.operands if isinstance(expr, Op) else expr.indices if isinstance(expr, Load) else ()  # `children`, at once
        if operands:
            users.append(expr)
            stack.append(None)
            stack += operands[::-1]
        else:
            order.append(expr)
    return order


def reached(root: Expr, on: Callable[[Expr], Sequence[Expr]]) -> Iterator[Expr]:
    """Every expression that is come to from the root, users before operands, each once; `on(expr)` says where it goes on from there."""
    stack, seen = [root], set[int]()
    while stack:
        expr = stack.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        yield expr
        stack += on(expr)


def certain(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands that are computed in any case: not the branches of a select, which may read what is not there."""
    return expr.operands[:1] if isinstance(expr, Op) and expr.name == "select" else children(expr)


def rewrite(root: Expr, replace: Callable[[Expr], Expr | None], memo: dict[int, Expr] | None = None) -> Expr:
    """The tree with every node for which `replace` answers an expression replaced by it (top down), sharing kept."""
    memo = {} if memo is None else memo
    known = memo.get(id(root))
    if known is not None:
        return known
    result = replace(root)
    if result is None:
        result = _rebuild(root, [rewrite(child, replace, memo) for child in children(root)])
    memo[id(root)] = result
    return result


def _rebuild(expr: Expr, operands: list[Expr]) -> Expr:
    if all(a is b for a, b in zip(operands, children(expr), strict=True)):
        return expr
    if isinstance(expr, Load):
        return Load(expr.tensor, tuple(operands))
    assert isinstance(expr, Op)
    if expr.dtype == dtypes.int64 and len(operands) == 2 and expr.name in FOLDED:
        return binary(expr.name, operands[0], operands[1])
    return Op(expr.name, tuple(operands), expr.dtype)


def substitute(root: Expr, values: dict[Var, Expr]) -> Expr:
    """The tree with variables replaced."""
    if not values:
        return root
    return rewrite(root, lambda e: values.get(e) if isinstance(e, Var) else None)
