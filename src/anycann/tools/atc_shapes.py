"""`--input_shape` and the three ways to ask for gears: text -> shapes by input name."""

from __future__ import annotations

import sys
from typing import TypeAlias

from anycann.support.records import dataclass
from anycann.tools.atc_errors import AtcUsageError

# a size, a range of sizes ("1~10" is range(1, 11)), or -1 for any size
Dim: TypeAlias = int | range
Shape: TypeAlias = tuple[Dim, ...]
Sizes: TypeAlias = tuple[int, ...]

ANY = -1
MIN_GEARS = 2
MAX_BATCH = 2048
_SAMPLE = '"input_name1:n1,c1,h1,w1;input_name2:n2~n3,c2,h2,w2"'
_RANGE_SAMPLE = '"input_name1:[n1~n2,c1,h1,w1];input_name2:[n3~n4,c2,h2,w2]"'
_IMAGE_AXES = {"NCHW": (2, 3), "NHWC": (1, 2)}


@dataclass(frozen=True)
class GearOptions:
    """The texts of the three gear options (at most one is not empty), and what they depend on."""

    dynamic_batch_size: str = ""
    dynamic_image_size: str = ""
    dynamic_dims: str = ""
    input_format: str = "NCHW"
    max_gears: int = 100

    @property
    def given(self) -> bool:
        return bool(self.dynamic_batch_size or self.dynamic_image_size or self.dynamic_dims)


def parse_input_shape(text: str) -> dict[str, Shape]:
    """`"a:1,3,-1,1~10;b:"` -> `{"a": (1, 3, -1, range(1, 11)), "b": ()}`, as is `"a:[1,3,-1,1~10];b:[]"`.

    The last colon ends a name, so names may contain colons.

    Raises UsageError (E10002, E10011) for another form, a size below 1, an empty range or a name given twice.
    """
    shapes: dict[str, Shape] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, colon, dims = item.rpartition(":")
        if not colon or not name:
            raise AtcUsageError("E10002", shape=item, reason="it has no `name:`", sample=_SAMPLE)
        if name in shapes:
            raise AtcUsageError("E10002", shape=item, reason=f"input {name} is given twice", sample=_SAMPLE)
        shapes[name] = _shape(dims.strip(), text)
    return shapes


def _shape(dims: str, text: str) -> Shape:
    """The sizes of one input, which may stand in square brackets."""
    if dims.startswith("[") and dims.endswith("]"):
        dims = dims[1:-1].strip()
    return tuple(_dim(word.strip(), text) for word in dims.split(",")) if dims else ()


def parse_input_shape_range(text: str) -> dict[str, Shape]:
    """The deprecated form `"a:[1~10,3,224,224];b:[1,2]"`. Raises UsageError (E10048) where brackets are missing."""
    for item in filter(None, (part.strip() for part in text.split(";"))):
        _, colon, dims = item.rpartition(":")
        if not (colon and dims.startswith("[") and dims.endswith("]")):
            raise AtcUsageError("E10048", shape_range=item, reason="the sizes must stand in square brackets", sample=_RANGE_SAMPLE)
    return parse_input_shape(text)


def is_dynamic(shapes: dict[str, Shape]) -> bool:
    """True if a size is -1 or a range."""
    return any(isinstance(dim, range) or dim == ANY for shape in shapes.values() for dim in shape)


def gear_shapes(shapes: dict[str, Shape], options: GearOptions) -> tuple[dict[str, Sizes], ...]:
    """The input shapes of every gear: `shapes` with each -1 replaced by its value in that gear; () without a gear option.

    Raises UsageError (E10009, E10018 .. E10046) as Ascend's check of the dynamic options does.
    """
    if not options.given:
        return ()
    chosen = [text for text in (options.dynamic_batch_size, options.dynamic_image_size, options.dynamic_dims) if text]
    if len(chosen) > 1:
        raise AtcUsageError("E10009")
    if any(isinstance(dim, range) for shape in shapes.values() for dim in shape):
        raise AtcUsageError("E10040")
    if options.dynamic_batch_size:
        gears = _batch_gears(shapes, options)
    elif options.dynamic_image_size:
        gears = _image_gears(shapes, options)
    else:
        gears = _dims_gears(shapes, options)
    return tuple(_filled(shapes, gear) for gear in gears)


def _batch_gears(shapes: dict[str, Shape], options: GearOptions) -> list[Sizes]:
    """One batch size for every -1, all of which lead their shape."""
    for index, (name, shape) in enumerate(shapes.items()):
        if ANY in shape[1:]:
            raise AtcUsageError("E10018", shape=f"{name}:{format_shape(shape)}", index=index)
    if not is_dynamic(shapes):
        raise AtcUsageError("E10031")
    gears = _profiles(options.dynamic_batch_size.replace(",", ";"), options)
    for (batch,) in gears:
        if batch > MAX_BATCH:
            raise AtcUsageError("E10014", value=batch, parameter=f"dynamic_batch_size (1..{MAX_BATCH})")
    return [gear * _unknown(shapes) for gear in gears]


def _image_gears(shapes: dict[str, Shape], options: GearOptions) -> list[Sizes]:
    """A height and a width for every input whose height and width are -1."""
    axes = _IMAGE_AXES.get(options.input_format)
    if axes is None:
        reason = "it needs --input_format NCHW or NHWC"
        raise AtcUsageError("E10001", value=options.dynamic_image_size, parameter="--dynamic_image_size", reason=reason)
    for shape in shapes.values():
        if ANY in shape and tuple(axis for axis, dim in enumerate(shape) if dim == ANY) != axes:
            raise AtcUsageError("E10019")
    if not is_dynamic(shapes):
        raise AtcUsageError("E10040")
    gears = _profiles(options.dynamic_image_size, options)
    if any(len(gear) != 2 for gear in gears):
        raise AtcUsageError("E10020", value=options.dynamic_image_size)
    return [gear * (_unknown(shapes) // 2) for gear in gears]


def _dims_gears(shapes: dict[str, Shape], options: GearOptions) -> list[Sizes]:
    """A value for every -1, in the order of --input_shape."""
    if not is_dynamic(shapes):
        raise AtcUsageError("E10040")
    gears = _profiles(options.dynamic_dims, options)
    if _unknown(shapes) > len(gears[0]):
        raise AtcUsageError("E10045")
    if _unknown(shapes) < len(gears[0]):
        raise AtcUsageError("E10046")
    return gears


def _profiles(text: str, options: GearOptions) -> list[Sizes]:
    """`"1,2;3,4"` -> [(1, 2), (3, 4)], counted and compared."""
    profiles = [tuple(_size(word.strip()) for word in part.split(",")) for part in text.split(";") if part.strip()]
    if len(profiles) < MIN_GEARS:
        raise AtcUsageError("E10035", count=len(profiles), minimum=MIN_GEARS)
    if len(profiles) > options.max_gears:
        raise AtcUsageError("E10036", count=len(profiles), maximum=options.max_gears)
    for profile in profiles:
        if len(profile) != len(profiles[0]):
            raise AtcUsageError("E10037", first=len(profiles[0]), second=len(profile))
    if len(set(profiles)) != len(profiles):
        raise AtcUsageError("E10039")
    return profiles


def _size(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise AtcUsageError("E10038", dim=word or "''")
    return int(word)


def _unknown(shapes: dict[str, Shape]) -> int:
    """How many sizes are -1."""
    return sum(dim == ANY for shape in shapes.values() for dim in shape)


def _filled(shapes: dict[str, Shape], gear: Sizes) -> dict[str, Sizes]:
    values = iter(gear)
    return {name: tuple(next(values) if dim == ANY else int(dim) for dim in shape) for name, shape in shapes.items()}  # type: ignore[arg-type]


def _dim(word: str, text: str) -> Dim:
    low, tilde, high = word.partition("~")
    if tilde:
        return _range(low.strip(), high.strip(), text)
    number = _integer(word, text)
    if number < 1 and number != ANY:
        raise AtcUsageError("E10011", shape=text, result=word)
    return number


def _range(low: str, high: str, text: str) -> range:
    first, last = _integer(low, text), _integer(high, text)
    if last == ANY:
        last = sys.maxsize - 1
    if first < 0 or last < max(first, 1):
        raise AtcUsageError("E10002", shape=f"{low}~{high}", reason="a range goes from a smaller to a larger size", sample=_SAMPLE)
    return range(first, last + 1)


def _integer(word: str, text: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise AtcUsageError("E10002", shape=text, reason=f"{word or 'an empty size'} is not an integer", sample=_SAMPLE) from None


def format_shape(shape: Shape) -> str:
    """The shape as --input_shape writes it: "1,-1,1~10"."""
    return ",".join(_format_dim(dim) for dim in shape)


def _format_dim(dim: Dim) -> str:
    if isinstance(dim, range):
        return f"{dim.start}~{-1 if dim.stop == sys.maxsize else dim.stop - 1}"
    return str(dim)
