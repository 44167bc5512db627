"""What a kernel needs to know of an operator's schema."""

from __future__ import annotations

from typing import Any

from anycann.support.records import dataclass


@dataclass(frozen=True)
class Returned:
    """Where a result comes from: the argument it is, or lies in; `written` if the operator writes that argument."""

    position: int
    name: str
    written: bool


@dataclass(frozen=True)
class Signature:
    """The arguments and results of one operator, by what must be done with them.

    `tensors` and `lists` are the positions of tensors and lists of tensors; `returned` has an entry a result: None for a new tensor.
    `one_tensor`, `one_list`, `only_tensors` and `only_values` are about the results; `optional_lists`: some list is of tensors or none.
    `outs` are the names of the arguments that an `out=` operator fills.
    `versioned_list` is the position of a list whose tensors get another version when they are written, as on the cpu, or -1: no kernel that
    is given aliases counts for the tensors themselves.
    """

    names: tuple[str, ...]
    tensors: tuple[int, ...]
    lists: tuple[int, ...]
    returned: tuple[Returned | None, ...]
    outs: tuple[str, ...]
    one_tensor: bool
    one_list: bool
    only_tensors: bool
    only_values: bool
    optional_lists: bool
    tensors_by_position: bool
    versioned_list: int

    @property
    def new_results_only(self) -> bool:
        return bool(self.returned) and all(entry is None for entry in self.returned)

    @property
    def in_place(self) -> Returned | None:
        """The one argument that is written and returned, if that is all the operator does."""
        only = self.returned[0] if len(self.returned) == 1 else None
        return only if only is not None and only.written and not self.outs else None

    @property
    def view(self) -> Returned | None:
        """The argument that all results lie in, if there is one."""
        first = self.returned[0] if self.returned else None
        return first if first is not None and not first.written else None


def signature_of(op: Any) -> Signature:
    """The signature of a `torch._ops.OpOverload`."""
    arguments, results = op._schema.arguments, op._schema.returns
    kinds = [str(argument.type) for argument in arguments]
    returns_outs = bool(results) or op.namespace == "aten"  # others that return nothing write into tensors of the right size
    return Signature(
        names=tuple(argument.name for argument in arguments),
        tensors=tuple(at for at, kind in enumerate(kinds) if kind in ("Tensor", "Optional[Tensor]")),
        lists=tuple(at for at, kind in enumerate(kinds) if kind.startswith("List[") and "Tensor" in kind),
        returned=tuple(_returned(result, arguments) for result in results),
        outs=tuple(argument.name for argument in arguments if argument.kwarg_only and _written(argument) and returns_outs),
        one_tensor=len(results) == 1 and str(results[0].type) == "Tensor",
        one_list=len(results) == 1 and str(results[0].type) == "List[Tensor]",
        only_values=all(str(result.type) in ("bool", "int", "float") for result in results),
        optional_lists="List[Optional[Tensor]]" in kinds,
        only_tensors=all(str(result.type) == "Tensor" for result in results),
        versioned_list=0 if op._schema.name.startswith("aten::_foreach_") and _written(arguments[0]) else -1,
        tensors_by_position=not any(argument.kwarg_only and "Tensor" in str(argument.type) for argument in arguments),
    )


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _returned(result: Any, arguments: Any) -> Returned | None:
    if result.alias_info is None:
        return None
    for position, argument in enumerate(arguments):
        if argument.alias_info is not None and argument.alias_info.before_set & result.alias_info.before_set:
            return Returned(position, argument.name, argument.alias_info.is_write)
    return None
