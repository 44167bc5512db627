"""--input_shape and the gear options."""

from __future__ import annotations

import sys

import pytest

from anycann.support.errors import UsageError
from anycann.tools.atc_errors import AtcUsageError
from anycann.tools.atc_shapes import GearOptions, format_shape, gear_shapes, is_dynamic, parse_input_shape, parse_input_shape_range


def code_of(error: pytest.ExceptionInfo[AtcUsageError]) -> str:
    return error.value.code.code


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("", {}),
        ("a:1,3,224,224", {"a": (1, 3, 224, 224)}),
        ("a:1,3;b:2", {"a": (1, 3), "b": (2,)}),
        (" a : 1 , 3 ; ", {"a ": (1, 3)}),
        ("a:-1,3,-1,-1", {"a": (-1, 3, -1, -1)}),
        ("a:1~10,3", {"a": (range(1, 11), 3)}),
        ("a:2~-1", {"a": (range(2, sys.maxsize),)}),
        ("scalar:;b:1", {"scalar": (), "b": (1,)}),
        ("x:0:1,2", {"x:0": (1, 2)}),
        ("a/b.c-d:7", {"a/b.c-d": (7,)}),
        ("a:[1~10, 3];b:[-1];scalar:[]", {"a": (range(1, 11), 3), "b": (-1,), "scalar": ()}),
    ],
)
def test_every_form_of_input_shape_is_read(text: str, shapes: dict[str, object]) -> None:
    assert parse_input_shape(text) == shapes


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("1,3,224,224", "E10002", "has no `name:`"),
        (":1,3", "E10002", "has no `name:`"),
        ("a:1;a:2", "E10002", "input a is given twice"),
        ("a:1,x", "E10002", "x is not an integer"),
        ("a:1,,3", "E10002", "an empty size is not an integer"),
        ("a:1.5", "E10002", "1.5 is not an integer"),
        ("a:0", "E10011", "The error value in the shape is 0"),
        ("a:1,-2", "E10011", "The error value in the shape is -2"),
        ("a:5~2", "E10002", "from a smaller to a larger"),
        ("a:[1,3", "E10002", "[1 is not an integer"),
        ("a:-3~2", "E10002", "from a smaller to a larger"),
    ],
)
def test_a_wrong_input_shape_is_refused_with_its_code(text: str, code: str, part: str) -> None:
    with pytest.raises(AtcUsageError) as error:
        parse_input_shape(text)
    assert code_of(error) == code
    assert part in str(error.value)


def test_the_old_range_option_means_the_same_as_ranges_in_input_shape() -> None:
    assert parse_input_shape_range("a:[1~8,3];b:[-1];c:[]") == parse_input_shape("a:1~8,3;b:-1;c:")


def test_the_old_range_option_needs_brackets() -> None:
    with pytest.raises(AtcUsageError) as error:
        parse_input_shape_range("a:1~8,3")
    assert code_of(error) == "E10048"


def test_a_shape_prints_as_it_was_written() -> None:
    text = "1,-1,1~10,2~-1"
    assert format_shape(parse_input_shape(f"a:{text}")["a"]) == text


@pytest.mark.parametrize(("text", "dynamic"), [("a:1,2", False), ("a:1,2;b:-1", True), ("a:1~2", True), ("a:", False)])
def test_a_model_is_dynamic_if_a_size_is_open(text: str, dynamic: bool) -> None:
    assert is_dynamic(parse_input_shape(text)) is dynamic


def test_batch_gears_fill_every_leading_size() -> None:
    shapes = parse_input_shape("a:-1,3;b:5;c:-1")
    gears = gear_shapes(shapes, GearOptions(dynamic_batch_size="1,8"))
    assert gears == ({"a": (1, 3), "b": (5,), "c": (1,)}, {"a": (8, 3), "b": (5,), "c": (8,)})


def test_image_gears_fill_height_and_width_where_the_format_has_them() -> None:
    nchw = gear_shapes(parse_input_shape("a:1,3,-1,-1;b:4"), GearOptions(dynamic_image_size="10,20;30,40"))
    assert nchw == ({"a": (1, 3, 10, 20), "b": (4,)}, {"a": (1, 3, 30, 40), "b": (4,)})
    nhwc = gear_shapes(parse_input_shape("a:1,-1,-1,3"), GearOptions(dynamic_image_size="10,20;30,40", input_format="NHWC"))
    assert nhwc[1] == {"a": (1, 30, 40, 3)}


def test_dims_gears_fill_the_open_sizes_in_order() -> None:
    gears = gear_shapes(parse_input_shape("a:-1,7;b:2,-1,-1"), GearOptions(dynamic_dims="1,2,3;4,5,6", input_format="ND"))
    assert gears == ({"a": (1, 7), "b": (2, 2, 3)}, {"a": (4, 7), "b": (2, 5, 6)})


def test_without_a_gear_option_there_are_no_gears() -> None:
    assert gear_shapes(parse_input_shape("a:-1"), GearOptions()) == ()


@pytest.mark.parametrize(
    ("shape", "options", "code"),
    [
        ("a:-1", GearOptions(dynamic_batch_size="1,2", dynamic_dims="1;2"), "E10009"),
        ("a:1~4", GearOptions(dynamic_batch_size="1,2"), "E10040"),
        ("a:-1,-1", GearOptions(dynamic_batch_size="1,2"), "E10018"),
        ("a:1,2", GearOptions(dynamic_batch_size="1,2"), "E10031"),
        ("a:-1", GearOptions(dynamic_batch_size="1"), "E10035"),
        ("a:-1", GearOptions(dynamic_batch_size=",".join(map(str, range(1, 102)))), "E10036"),
        ("a:-1", GearOptions(dynamic_batch_size="2,2"), "E10039"),
        ("a:-1", GearOptions(dynamic_batch_size="0,2"), "E10038"),
        ("a:-1", GearOptions(dynamic_batch_size="1,x"), "E10038"),
        ("a:-1", GearOptions(dynamic_batch_size="1,2049"), "E10014"),
        ("a:1,-1,3,4", GearOptions(dynamic_image_size="1,2;3,4"), "E10019"),
        ("a:1,3,4,-1", GearOptions(dynamic_image_size="1,2;3,4"), "E10019"),
        ("a:1,3,4,5", GearOptions(dynamic_image_size="1,2;3,4"), "E10040"),
        ("a:1,3,-1,-1", GearOptions(dynamic_image_size="1,2,3;4,5,6"), "E10020"),
        ("a:1,3,-1,-1", GearOptions(dynamic_image_size="1,2;3,4", input_format="ND"), "E10001"),
        ("a:-1,-1", GearOptions(dynamic_dims="1;2"), "E10045"),
        ("a:-1", GearOptions(dynamic_dims="1,2;3,4"), "E10046"),
        ("a:-1,-1", GearOptions(dynamic_dims="1,2;3"), "E10037"),
        ("a:3", GearOptions(dynamic_dims="1;2"), "E10040"),
    ],
)
def test_wrong_gears_are_refused_with_their_code(shape: str, options: GearOptions, code: str) -> None:
    with pytest.raises(AtcUsageError) as error:
        gear_shapes(parse_input_shape(shape), options)
    assert code_of(error) == code
    assert isinstance(error.value, UsageError)


def test_a_chip_with_more_gears_accepts_them() -> None:
    options = GearOptions(dynamic_batch_size=",".join(map(str, range(1, 202))), max_gears=256)
    assert len(gear_shapes(parse_input_shape("a:-1"), options)) == 201
