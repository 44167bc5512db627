"""What a recurrent layer is: LSTM, GRU or RNN as ONNX defines them, with static sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from anycann.support.errors import ModelError, UnsupportedError
from anycann.support.records import dataclass
from anycann.target.target import Target

Cell: TypeAlias = Literal["LSTM", "GRU", "RNN"]
Direction: TypeAlias = Literal["forward", "reverse", "bidirectional"]


@dataclass(frozen=True)
class Activation:
    """One of ONNX's activation functions; alpha and beta where it has them."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


# name -> defaults of alpha and beta; None where the function has none (ONNX RNN, GRU, LSTM, "activations")
PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "relu": (None, None),
    "scaledtanh": (1.0, 1.0),
    "sigmoid": (None, None),
    "softplus": (None, None),
    "softsign": (None, None),
    "tanh": (None, None),
    "thresholdedrelu": (1.0, None),
}
DEFAULT_ACTIVATIONS: dict[str, tuple[str, ...]] = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class RecurrentShape:
    """`steps` time steps of `batch` sequences with `inputs` features into `hidden` cells.

    activations: those of the first direction, then those of the second. layout: 0 for X[steps, batch, inputs], 1 for X[batch, steps, ...].
    has_lengths: sequence lengths are given at run time. rounds_states: weights of 8 bits may be multiplied with hidden states of 16
    (`recurrent_words.py`). The other flags name the optional operands and attributes of ONNX.
    """

    cell: Cell
    steps: int
    batch: int
    inputs: int
    hidden: int
    direction: Direction = "forward"
    activations: tuple[Activation, ...] = ()
    clip: float | None = None
    layout: int = 0
    input_forget: bool = False
    linear_before_reset: bool = False
    has_peepholes: bool = False
    has_lengths: bool = False
    rounds_states: bool = False

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @property
    def gates(self) -> int:
        """Gates of a cell, in ONNX's order: i o f c, z r h, or one."""
        return GATES[self.cell]

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """The gates that are computed together: a GRU's candidate needs the finished reset gate unless it is applied afterwards."""
        if self.cell == "GRU" and not self.linear_before_reset:
            return ((0, 1), (2,))
        return (tuple(range(self.gates)),)

    @property
    def flops(self) -> int:
        """Multiplications and additions of the recurrent products (without the input projection)."""
        return 2 * self.directions * self.steps * self.batch * self.gates * self.hidden * self.hidden

    def activations_of(self, direction: int) -> tuple[Activation, ...]:
        """f, g, h of one direction."""
        count = len(DEFAULT_ACTIVATIONS[self.cell])
        return self.activations[direction * count : (direction + 1) * count]


@dataclass(frozen=True)
class RecurrentTile:
    """`rows` sequences of a batch run together, and of each block `vectors` registers of hidden cells (of every gate).

    by_tiles: the recurrent product multiplies bfloat16 by matrix tiles (recurrent_tiles.py); by_pairs: by dot products of two
    (recurrent_pairs.py). by_steps: each step is a launch, whose tasks are blocks of cells (recurrent_steps.py). group: how many of the
    sequences have their sums in registers at once, which is a task; 0: all. Tasks that one thread has take turns with parts of the weights.
    """

    rows: int
    vectors: int
    by_tiles: bool = False
    group: int = 0
    by_pairs: bool = False
    by_steps: bool = False

    @property
    def weight_bytes(self) -> int:
        """Bytes of a recurrent weight, unless a narrower type holds them all as they are."""
        return 2 if self.by_tiles or self.by_pairs else 4

    @property
    def task_rows(self) -> int:
        """Sequences of a task."""
        return self.group or self.rows

    @property
    def takes_turns(self) -> bool:
        """True if several tasks run together."""
        return self.task_rows < self.rows

    def width(self, lanes: int) -> int:
        """Hidden cells of a block."""
        return self.vectors * lanes


_TILE_ROWS, _TILE_SUMS = 16, 4  # of the matrix tiles of a target that has them


def default_recurrent_tile(shape: RecurrentShape, target: Target, by_tiles: bool = False, by_pairs: bool = False) -> RecurrentTile:
    """As many sequences as the registers hold; two vectors of cells where one would leave the multipliers waiting."""
    gates = max(len(phase) for phase in shape.phases)
    blocks = -(-shape.hidden // target.lanes)
    if by_tiles:
        fitting = [vectors for vectors in (4, 2, 1) if blocks % vectors == 0 and vectors * gates <= _TILE_SUMS]
        return RecurrentTile(max(1, min(shape.batch, _TILE_ROWS)), fitting[0], by_tiles=True)
    for vectors in (4, 2, 1):
        rows = min(max(1, shape.batch), _most_rows(target, gates * vectors))
        tile = RecurrentTile(max(1, rows), vectors, by_pairs=by_pairs)
        if vectors == 1 or _takes_vectors(shape, target, gates, tile):
            return _shared_out(shape, target, tile)
    raise AssertionError


_CHAINS = 8  # sums that keep two multiply-adds of four cycles busy


def _most_rows(target: Target, columns: int) -> int:
    """Sequences whose sums of so many registers of weights fit: beside them the weights and one state, or the states and one weight."""
    return max((target.registers - 1) // columns - 1, min(columns, (target.registers - 1) // (columns + 1)))


def _takes_vectors(shape: RecurrentShape, target: Target, gates: int, tile: RecurrentTile) -> bool:
    """True if half of the tile's vectors would leave the multipliers waiting for sums or operands, and all of them do not for memory.

    From the second-level cache comes a vector a cycle, for which few sums are enough: there smaller panels, of which more stay in the first
    one when the next step reads them the other way, are better. One sequence took 0.83 to 0.92 of the time with twice the vectors for 32
    and 64 cells, 1.06 for 96.
    """
    fewer, columns = gates * tile.vectors // 2, gates * tile.vectors
    rows, rows_of_fewer = (min(max(1, shape.batch), _most_rows(target, each)) for each in (columns, fewer))
    waits = rows_of_fewer * fewer < _CHAINS or rows_of_fewer * fewer < rows_of_fewer + fewer
    is_near = 2 * tile.weight_bytes * shape.hidden * columns * target.lanes <= target.l1_bytes
    holds_weights = rows <= (target.registers - 1) // columns - 1
    whole = -(-shape.hidden // target.lanes) % tile.vectors == 0
    return whole and rows >= min(shape.batch, 2) and waits and (holds_weights or is_near or rows > 1)


def _shared_out(shape: RecurrentShape, target: Target, most: RecurrentTile) -> RecurrentTile:
    """Tasks of at most the sequences of `most`; as many as a vector has lanes run together where weights come from behind the second-level
    cache: what is read for few sequences in every step takes longer than their products. 0.63 to 0.87 of the time; 1.0 to 1.1 from it."""
    group = _evenly(shape.batch, most.rows)
    is_near = most.weight_bytes * shape.gates * shape.hidden * shape.hidden <= target.l2_bytes
    together = 1 if is_near else min(-(-shape.batch // group), -(-target.lanes // group))
    return replace(most, rows=group * max(1, together), group=group)


def _evenly(count: int, most: int) -> int:
    """The size of parts, at most `most`, into which `count` is cut as evenly as it can be."""
    return max(1, -(-count // max(1, -(-count // most))))


def parse_activations(
    cell: Cell, directions: int, names: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = ()
) -> tuple[Activation, ...]:
    """ONNX's `activations`, `activation_alpha` and `activation_beta`: the numbers go in order to the functions that take one.

    Raises ModelError for a wrong number of names and UnsupportedError for a name that ONNX does not list.
    """
    expected = len(DEFAULT_ACTIVATIONS[cell]) * directions
    names = list(names) or list(DEFAULT_ACTIVATIONS[cell]) * directions
    if len(names) != expected:
        raise ModelError(f"{cell}: {len(names)} activations {list(names)}; {expected} are needed for {directions} direction(s)")
    rest_alpha, rest_beta = list(alphas), list(betas)
    found = []
    for name in names:
        key = name.lower()
        if key not in PARAMETERS:
            raise UnsupportedError(f"{cell}: activation {name!r} is not one of {', '.join(sorted(PARAMETERS))}")
        alpha, beta = PARAMETERS[key]
        if alpha is not None and rest_alpha:
            alpha = rest_alpha.pop(0)
        if beta is not None and rest_beta:
            beta = rest_beta.pop(0)
        found.append(Activation(key, alpha or 0.0, beta or 0.0))
    return tuple(found)
