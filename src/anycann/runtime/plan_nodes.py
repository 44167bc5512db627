"""Nodes of the host as lines of a plan: shape arithmetic as integers of Python, and views by what numpy does at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from anycann.runtime.plan_text import FLOAT32, INT64, Array, Known, Numbers, Text, UnplannedError, Value, ints_of, is_literal, tuple_of

FAR = 1 << 31  # where a slice ends that takes all there is


class Node:
    """A node, with what is known of its operands: None for one that is absent."""

    def __init__(
        self, text: Text, op_type: str, attributes: Mapping[str, object], values: Sequence[Value | None], constants: Sequence[Array | None]
    ):
        self.text, self.op_type, self.attributes = text, op_type, attributes
        self.values, self._constants = values, constants

    def ints(self, place: int) -> Numbers | None:
        """What is in an operand."""
        return ints_of(self.values[place], self._constants[place]) if place < len(self.values) else None

    def known_ints(self, place: int) -> list[int]:
        """What is in an operand that is known while the function is written."""
        found = self.ints(place)
        if found is None or not all(map(is_literal, found.items)):
            raise UnplannedError
        return list(map(int, found.items))

    def array(self, place: int = 0) -> Known:
        """An operand as an array."""
        value = self.values[place]
        if not isinstance(value, Known):
            raise UnplannedError
        return value


Write: TypeAlias = Callable[[Node], Value]


def as_numbers(node: Node) -> Numbers | None:
    """The result as integers, where operands are; None where there is no such way."""
    write = _NUMBERS.get(node.op_type)
    return None if write is None else write(node)


def as_view(node: Node) -> Known | None:
    """The result as a view of the first operand, whatever lies there; None where there is no such way."""
    write = _VIEWS.get(node.op_type)
    return None if write is None or not isinstance(node.values[0], Known) else write(node)


# ---- integers
def _shape(node: Node) -> Numbers | None:
    value, start, end = node.values[0], node.attributes.get("start", 0), node.attributes.get("end")
    if not isinstance(value, Known) or not isinstance(start, int) or not isinstance(end, int | None):
        return None
    return Numbers(value.sizes[start:end], 1)


def _gathered(node: Node) -> Numbers | None:
    data, places = node.ints(0), node.ints(1)
    if data is None or places is None or data.rank != 1 or node.attributes.get("axis", 0) not in (0, -1):
        return None
    found = [int(place) for place in places.items if is_literal(place) and -len(data.items) <= int(place) < len(data.items)]
    return Numbers(tuple(data.items[place] for place in found), places.rank) if len(found) == len(places.items) else None


def _arithmetic(node: Node) -> Numbers | None:
    one, other = node.ints(0), node.ints(1)
    if one is None or other is None or (len(one.items) != len(other.items) and 1 not in (len(one.items), len(other.items))):
        return None
    count = 0 if 0 in (len(one.items), len(other.items)) else max(len(one.items), len(other.items))
    pairs = [(one.items[n % len(one.items)], other.items[n % len(other.items)]) for n in range(count)]
    text, rank = node.text, max(one.rank, other.rank)
    if node.op_type == "Add":
        return Numbers(tuple(text.sum(a, b) for a, b in pairs), rank)
    if node.op_type == "Mul":
        return Numbers(tuple(text.product(a, b) for a, b in pairs), rank)
    return Numbers(tuple(text.let(f"{a} - {_bracketed(b)}") for a, b in pairs), rank)


def _bracketed(size: str) -> str:
    return f"({size})" if size[0] == "-" else size


def _joined(node: Node) -> Numbers | None:
    found = [node.ints(place) for place in range(len(node.values))]
    if any(each is None or each.rank != 1 for each in found):
        return None
    return Numbers(tuple(item for each in found if each is not None for item in each.items), 1)


def _same(node: Node) -> Numbers | None:
    return node.ints(0) if node.op_type == "Identity" or node.attributes.get("to") == 7 else None


def _row(node: Node) -> Numbers | None:
    """Unsqueeze of one number."""
    data = node.ints(0)
    return None if data is None or data.rank != 0 or node.known_ints(1) not in ([0], [-1]) else Numbers(data.items, 1)


def _number(node: Node) -> Numbers | None:
    """Squeeze of a row of one number."""
    data = node.ints(0)
    if data is None or data.rank != 1 or len(data.items) != 1 or (len(node.values) > 1 and node.known_ints(1) not in ([0], [-1])):
        return None
    return Numbers(data.items, 0)


def _part(node: Node) -> Numbers | None:
    """Slice of a row."""
    data = node.ints(0)
    if data is None or data.rank != 1:
        return None
    starts, ends, *others = [node.known_ints(place) for place in range(1, len(node.values))]
    known = len(starts) == len(ends) == 1 and others in ([], [[0]], [[-1]], [[0], [1]], [[-1], [1]])
    return Numbers(data.items[starts[0] : ends[0]], 1) if known else None


_NUMBERS: dict[str, Callable[[Node], Numbers | None]] = {
    **dict.fromkeys(("Add", "Mul", "Sub"), _arithmetic),
    **dict.fromkeys(("Cast", "Identity"), _same),
    "Concat": _joined,
    "Gather": _gathered,
    "Shape": _shape,
    "Slice": _part,
    "Squeeze": _number,
    "Unsqueeze": _row,
}


# ---- views
def _transposed(node: Node) -> Known:
    x, rank = node.array(), len(node.array().sizes)
    perm = node.attributes.get("perm", [*range(rank)][::-1])
    if not isinstance(perm, list) or sorted(perm) != [*range(rank)]:
        raise UnplannedError
    plain = x.plain and [axis for axis in perm if x.sizes[axis] != "1"] == [axis for axis in range(rank) if x.sizes[axis] != "1"]
    return node.text.view(f"{x.name}.transpose({', '.join(map(str, perm))})", tuple(x.sizes[axis] for axis in perm), x.dtype, plain)


def _unsqueezed(node: Node) -> Known:
    x, axes = node.array(), node.known_ints(1)
    rank = len(x.sizes) + len(axes)
    places = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(places) != len(axes):
        raise UnplannedError
    rest = iter(x.sizes)
    sizes = tuple("1" if axis in places else next(rest) for axis in range(rank))
    words = ["None" if axis in places else ":" for axis in range(rank)]
    return node.text.view(_part_of(x, words), sizes, x.dtype, x.plain)


def _squeezed(node: Node) -> Known:
    x, axes = node.array(), node.known_ints(1)
    rank = len(x.sizes)
    places = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(places) != len(axes):
        raise UnplannedError
    for axis in places:
        node.text.same(x.sizes[axis], "1")
    words = ["0" if axis in places else ":" for axis in range(rank)]
    return node.text.view(_part_of(x, words), tuple(size for axis, size in enumerate(x.sizes) if axis not in places), x.dtype, x.plain)


def _part_of(x: Known, words: Sequence[str]) -> str:
    """What numpy calls a view by a word for each axis, of which there may be none."""
    return f"{x.name}[{', '.join([*words, '...'])}]"


def _reshaped(node: Node) -> Known | None:
    x, shape, text = node.array(), node.ints(1), node.text
    if shape is None or shape.rank != 1 or (node.attributes.get("allowzero") and "0" in shape.items):
        return None
    for place, size in enumerate(shape.items):
        if not is_literal(size):
            text.refuse_if(f"{size} <= 0")  # which would say something else
        elif size == "0" and place >= len(x.sizes):
            return None
    sizes = [x.sizes[place] if size == "0" else size for place, size in enumerate(shape.items)]
    if sizes.count("-1") > 1:
        return None
    if "-1" in sizes:
        rest, known = sorted(x.sizes), [size for size in sizes if size != "-1"]
        for size in tuple(known):  # n * 12 * 32 of n * 384: 1, without dividing by what may be 0
            if not is_literal(size) and size in rest:
                rest.remove(size)
                known.remove(size)
        over, under = text.product(*rest), text.product(*known)
        if under == "0":
            return None
        if not is_literal(under):
            text.refuse_if(f"not {under}")
        sizes[sizes.index("-1")] = text.let(f"{over} // {under}")
    x = text.plain(x)
    return text.view(f"{x.name}.reshape({tuple_of(sizes)})", tuple(sizes), x.dtype, True)


def _sliced(node: Node) -> Known | None:
    x, text = node.array(), node.text
    starts, ends = node.ints(1), node.ints(2)
    if starts is None or ends is None:
        return None
    axes = node.known_ints(3) if len(node.values) > 3 and node.values[3] is not None else [*range(len(starts.items))]
    if len(node.values) > 4 and node.values[4] is not None and set(node.known_ints(4)) - {1}:
        return None
    rank, sizes = len(x.sizes), list(x.sizes)
    words = [":"] * rank
    if len(axes) != len(starts.items) or len(axes) != len(ends.items) or len({axis % rank for axis in axes}) != len(axes):
        return None
    for axis, start, end in zip(axes, starts.items, ends.items, strict=True):
        size = x.sizes[axis % rank]
        first, last = _place(text, start, size), _place(text, end, size)
        known = [int(each) for each in (first, last, size) if is_literal(each)]
        if len(known) < 3:
            text.refuse_if(f"not 0 <= {first} <= {last} <= {size}")
        elif not 0 <= known[0] <= known[1] <= known[2]:
            return None
        words[axis % rank], sizes[axis % rank] = f"{first}:{last}", text.let(f"{last} - {first}") if first != "0" else last
    return text.view(_part_of(x, words), tuple(sizes), x.dtype)


def _place(text: Text, place: str, size: str) -> str:
    """Where a slice begins or ends, counted from the front; one that is not known has to be so."""
    if not is_literal(place) or 0 <= int(place) < FAR:
        return place
    return size if int(place) >= FAR else text.sum(size, place)


def _identity(node: Node) -> Known:
    x = node.array()
    return Known(x.name, x.sizes, x.dtype, x.plain)


_VIEWS: dict[str, Callable[[Node], Known | None]] = {
    "Identity": _identity,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Squeeze": _squeezed,
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
}

ELEMENTWISE = {"Add": "add", "Div": "divide", "Mul": "multiply", "Sub": "subtract"}
ELEMENTWISE_TYPES = {FLOAT32: ELEMENTWISE, INT64: {name: word for name, word in ELEMENTWISE.items() if name != "Div"}}
