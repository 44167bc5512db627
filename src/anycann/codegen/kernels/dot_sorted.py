"""Groups of an input, sorted for each register tile by their size: vpmaddubsw multiplies small ones with any weights as they are.

It adds two products in 16 bits. Two unsigned bytes that sum to 256 at most are in range with any signed weights, four in two groups too:
then five instructions serve 64 products, three 32 where only each group is small. Inputs mostly are: a quantised tensor has its largest
element at 255, and few near it. One whose zero point is not near 0 lies around it: that is taken off, which leaves signed bytes, and
weights become unsigned ones, 128 higher. Bytes whose magnitudes sum to 127 at most are in range with those, and 128 times the sum of a
pixel's bytes is what its sums start from less. What is large in one of the pixels of a tile is multiplied as words, by four instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_lists import COUNTS, NUMBER_BYTES, WORD_NUMBERS, entry_numbers, list_bytes, list_starts
from anycann.codegen.kernels.dot_magnitudes import add_direct, as_bytes, as_signed
from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.codegen.kernels.dot_sums import along_depth
from anycann.codegen.values import Value, first_lanes, vector_type

MOST_UNSIGNED, MOST_SIGNED = 256, 127  # -256 * 128 and 127 * 255 are in range, and 128 is no signed byte
LIFT = 128  # what unsigned weights are higher

_NEAR = 32  # zero points up to here are near 0
_LEAST_DEPTH, _LEAST_COLUMNS = 16, 48
_FARTHEST = (1 << 31) - 1  # what a list holds


def around_of(zero_point: int | None) -> int | None:
    """What most of an input lies around, by its zero point, counted from the least byte."""
    return 0 if zero_point is not None and zero_point <= _NEAR else zero_point


def gains_by_sorting(plan: DotPlan) -> bool:
    """True if the products of a plan by magnitudes repay that its input is sorted."""
    shape = plan.shape
    if not plan.magnitudes or plan.is_narrow or shape.group > 1 or plan.window:
        return False
    reach = plan.planes * plan.plane_pixels * plan.channels + plan.depth * plan.width * GROUP_BYTES
    return plan.depth >= _LEAST_DEPTH and shape.out_channels >= _LEAST_COLUMNS and reach <= _FARTHEST


def tile_lists(e: Emitter, plan: DotPlan, number: Value) -> Value:
    """Where what is listed of a register tile of a task begins."""
    nbytes = list_bytes(plan.depth, plan.is_one_run, plan.tile.pixels)
    return e.gep(e.scratch, e.add(e.mul(number, nbytes), plan.sums_bytes), "i8")


def emit_lists(e: Emitter, plan: DotPlan, pixels: int, rows: Value, lists: Value) -> None:
    """Sort the groups that so many pixels read, the first from `rows` on."""
    lanes = plan.target.lanes
    sums = [e.zero(vector_type("i32", lanes))] * (pixels if plan.around else 0)
    groups = plan.runs[-1]
    whole = groups - groups % lanes

    def run(offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
        with e.loop(0, whole, lanes, carried=totals) as loop:
            at = e.add(offset, e.mul(loop.index, GROUP_BYTES))
            loop.carry(_Block(e, plan, pixels, lists, lanes).sort(rows, at, e.add(k, loop.index), loop.values))
        if whole == groups:
            return list(loop.values)
        at = e.add(offset, whole * GROUP_BYTES)
        return _Block(e, plan, pixels, lists, groups - whole).sort(rows, at, e.add(k, whole), loop.values)

    counts = [e.const(0)] * COUNTS
    found = along_depth(e, plan, groups, [*counts, *sums], run)
    for number, count in enumerate(found[:COUNTS]):
        e.store(e.cast("trunc", count, "i32"), e.gep(lists, number, "i32"), NUMBER_BYTES)
    blocks = plan.depth // groups * -(-groups // lanes)
    for pixel, total in enumerate(found[COUNTS:]):
        less = (plan.around or 0) * GROUP_BYTES * lanes * blocks
        start = e.mul(e.sub(e.reduce("add", total), less), -LIFT)
        e.store(start, e.gep(lists, COUNTS + pixel, "i32"), NUMBER_BYTES)


class _Block:
    """Up to a vector of neighbouring groups of a tile."""

    def __init__(self, e: Emitter, plan: DotPlan, pixels: int, lists: Value, count: int):
        self.e, self.plan, self.pixels, self.count = e, plan, pixels, count
        self.words = vector_type("i16", 2 * plan.target.lanes)
        starts = list_starts(plan.depth, plan.is_one_run, plan.tile.pixels)
        self.lists = [e.gep(lists, start, "i32") for start in starts]

    def sort(self, rows: Value, offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
        """Counts and sums of pixels behind these groups, which lie so many bytes behind the first; number `k` of the weights."""
        e = self.e
        one = two = e.zero(self.words)
        sums = list(totals[COUNTS:])
        for pixel in range(self.pixels):
            data = self._load(e.gep(e.gep(rows, offset, "i8"), pixel * self.plan.pixel_stride, "i8"))
            raw = self._raw(data)
            if sums:
                sums[pixel] = add_direct(e, sums[pixel], [(e.bitcast(raw, data.type), e.const(0x01010101, data.type))])
            single, pair = self._sizes(raw)
            one, two = (e.intrinsic("smax", [a, b]) for a, b in ((one, single), (two, pair)))
        pairs, singles, words = totals[:COUNTS]
        large, apart = self._larger(one), self._larger(two)
        words = e.either(e.compare("ne", large, e.const(0)), lambda: self._list_words(large, rows, offset, k, words), lambda: words)
        return [*self._list(large, apart, offset, k, pairs, singles), words, *sums]

    def _load(self, place: Value) -> Value:
        """Groups, with zeros behind the last."""
        e, lanes = self.e, self.plan.target.lanes
        type_ = vector_type("i32", lanes)
        mask = first_lanes(self.count, lanes)
        return e.load(place, type_, 1) if mask is None else e.masked_load(place, type_, 1, mask, e.zero(type_))

    def _raw(self, data: Value) -> Value:
        """Groups as bytes of the input as they were, with what it lies around."""
        bytes_ = as_bytes(self.e, data)
        return self.e.binary("add", bytes_, self._middle(bytes_.type)) if self.plan.around else bytes_

    def _middle(self, type_: str) -> Value:
        return self.e.const(as_signed(self.plan.around or 0), type_)

    def _neighbours(self, bytes_: Value) -> Value:
        """What two neighbours sum to."""
        return self.e.call("llvm.x86.avx2.pmadd.ub.sw", self.words, [bytes_, self.e.const(1, bytes_.type)])

    def _sizes(self, raw: Value) -> tuple[Value, Value]:
        """What two neighbours of a group sum to, and with those of the group beside it, in 16 bits."""
        e, lanes, bytes_ = self.e, self.plan.target.lanes, raw
        if self.plan.around:
            middle = self._middle(raw.type)
            bytes_ = e.binary("or", e.intrinsic("usub.sat", [raw, middle]), e.intrinsic("usub.sat", [middle, raw]))
        single = self._neighbours(bytes_)
        groups = e.bitcast(single, vector_type("i32", lanes))
        beside = e.shuffle(groups, groups, [lane ^ 1 for lane in range(lanes)])
        return single, e.binary("add", single, e.bitcast(beside, self.words))

    def _larger(self, sizes: Value) -> Value:
        """A bit a group, whether its sizes are out of range."""
        e, lanes = self.e, self.plan.target.lanes
        most = MOST_SIGNED if self.plan.around else MOST_UNSIGNED
        beyond = e.cast("sext", e.compare("sgt", sizes, e.const(most, self.words)), "i16")
        groups = e.compare("ne", e.bitcast(beyond, vector_type("i32", lanes)), e.zero(vector_type("i32", lanes)))
        return e.cast("zext", e.bitcast(groups, f"i{lanes}"), "i64")

    def _list(self, large: Value, apart: Value, offset: Value, k: Value, pairs: Value, singles: Value) -> tuple[Value, Value]:
        """How many pairs and single groups are listed then, by the bits of groups that are large, and of those that are no pairs."""
        e = self.e
        if self.count % 2:
            apart = e.binary("or", apart, e.const(1 << (self.count - 1)))
        alone = e.binary("and", apart, e.binary("xor", large, e.const(-1)))
        together = e.binary("xor", apart, e.const(-1))
        for first in range(0, self.count - 1, 2):
            pairs = self._append(0, pairs, together, e.const(first), offset, k)
        for group in range(self.count):
            singles = self._append(1, singles, alone, e.const(group), offset, k)
        return pairs, singles

    def _list_words(self, large: Value, rows: Value, offset: Value, k: Value, words: Value) -> Value:
        """How many groups of words are listed then."""
        e = self.e
        with e.loop(0, self.count, carried=[words]) as group:
            (count,) = group.values
            bit = e.binary("and", e.binary("lshr", large, group.index), e.const(1))
            with e.when(e.compare("ne", bit, e.const(0))):
                self._append(2, count, large, group.index, offset, k)
                self._widen(e.gep(e.gep(rows, offset, "i8"), group.index, "i32"), count)
            group.carry([e.add(count, bit)])
        return group.values[0]

    def _widen(self, source: Value, number: Value) -> None:
        """The group that the first pixel reads at `source`, of all pixels, as words less what they lie around."""
        e, around = self.e, self.plan.around or 0
        to = e.gep(self.lists[3], e.mul(number, self.pixels * WORD_NUMBERS), "i32")
        for pixel in range(self.pixels):
            data = e.load(e.gep(source, pixel * self.plan.pixel_stride, "i8"), vector_type("i8", GROUP_BYTES), 1)
            raw = e.binary("add", data, e.const(as_signed(around), data.type)) if around else data
            wide = e.cast("zext", e.shuffle(raw, raw, [0, 2, 1, 3]), "i16")
            wide = e.binary("sub", wide, e.const(around, wide.type)) if around else wide
            e.store(wide, e.gep(to, pixel * WORD_NUMBERS, "i32"), NUMBER_BYTES)

    def _append(self, number: int, count: Value, bits: Value, group: Value, offset: Value, k: Value) -> Value:
        """Write a group behind a list, where it stays if its bit is set; returns how many stay."""
        e, size = self.e, entry_numbers(self.plan.is_one_run)
        place = e.gep(self.lists[number], e.mul(count, size), "i32")
        e.store(e.cast("trunc", e.add(offset, e.mul(group, GROUP_BYTES)), "i32"), place, NUMBER_BYTES)
        if size > 1:
            weights = e.mul(e.add(k, group), self.plan.width * GROUP_BYTES)
            e.store(e.cast("trunc", weights, "i32"), e.gep(place, 1, "i32"), NUMBER_BYTES)
        return e.add(count, e.binary("and", e.binary("lshr", bits, group), e.const(1)))
