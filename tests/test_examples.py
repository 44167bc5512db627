"""The example that reads pictures: its geometry and decoding against plain cases, and the whole of it on the kept picture."""

from __future__ import annotations

import os
from pathlib import Path
import shutil
import subprocess

import numpy as np
from PIL import Image
import pytest

from benchmarks.zoo import packages
from examples.ocr import detect, recognise
from examples.ocr.compare import agreement, measure
from examples.ocr.geometry import Rectangle, components, convex_hull, mean_inside, smallest_rectangle
from examples.ocr.make_picture import LINES
from examples.ocr.reader import Found, Reader, Reading
from examples.ocr.recognise import Text

ROOT = Path(__file__).resolve().parents[1]
RECEIPT = ROOT / "examples" / "ocr" / "receipt.png"


def square(x: float, y: float, width: float, height: float) -> Rectangle:
    return Rectangle(np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]], np.float64))


def test_components_join_runs_that_touch_at_a_corner_and_keep_others_apart() -> None:
    mask = np.array([[1, 1, 0, 0, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 1, 1]], bool)
    found = [sorted({(int(x), int(y)) for x, y in points}) for points in components(mask)]
    assert sorted(found) == [[(0, 0), (1, 0), (2, 1)], [(0, 3)], [(3, 3), (4, 3)], [(4, 0)]]


def test_components_join_a_fork_that_closes_further_down() -> None:
    mask = np.array([[1, 0, 1], [1, 0, 1], [1, 1, 1]], bool)
    assert len(components(mask)) == 1


def test_an_empty_mask_has_no_components_and_no_boxes() -> None:
    assert components(np.zeros((7, 5), bool)) == []
    assert detect.boxes(np.zeros((1, 1, 32, 32), np.float32), detect.Canvas(np.zeros((1, 3, 32, 32), np.float32), 1.0)) == []


def test_the_convex_hull_leaves_inner_points_and_points_on_edges_out() -> None:
    points = np.array([[0, 0], [2, 0], [4, 0], [4, 4], [0, 4], [2, 2], [0, 2]], np.float64)
    assert {tuple(p) for p in convex_hull(points)} == {(0, 0), (4, 0), (4, 4), (0, 4)}


@pytest.mark.parametrize("degrees", [-30.0, -3.0, 0.0, 12.0, 44.0])
def test_the_smallest_rectangle_finds_the_one_the_points_were_made_from(degrees: float) -> None:
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    corners = np.array([[-40, -9], [40, -9], [40, 9], [-40, 9]]) @ turn + 100
    inner = np.random.default_rng(1).uniform(-0.99, 0.99, (50, 2)) * [40, 9] @ turn + 100
    found = smallest_rectangle(np.concatenate([corners, inner]))
    assert np.allclose(found.corners, corners)
    assert found.width == pytest.approx(80)
    assert found.height == pytest.approx(18)


def test_growing_moves_every_edge_outwards_by_the_distance() -> None:
    assert np.allclose(square(10, 20, 30, 5).grown(2).corners, square(8, 18, 34, 9).corners)


def test_the_mean_inside_a_rectangle_counts_its_pixels_only() -> None:
    values = np.zeros((10, 10), np.float32)
    values[2:5, 3:7] = 1
    assert mean_inside(values, square(3, 2, 3, 2)) == 1
    assert mean_inside(values, square(0, 6, 3, 3)) == 0
    assert mean_inside(values, square(20, 20, 3, 3)) == 0


def test_lines_are_read_along_their_slope() -> None:
    slope = 0.1
    places = [(0, 0), (300, 0), (0, 40), (300, 40)]
    rectangles = []
    for x, y in places:
        across, down = np.array([80, 80 * slope]), np.array([-20 * slope, 20])
        corner = np.array([x - y * slope, y + x * slope])
        rectangles.append(Rectangle(np.array([corner, corner + across, corner + across + down, corner + down])))
    assert detect.reading_order(rectangles[::-1]) == rectangles


def test_decoding_takes_repetitions_once_and_leaves_blanks_out() -> None:
    classes = [0, 1, 1, 0, 1, 2, 2, 3, 0]
    probabilities = np.full((1, len(classes), 4), 0.01, np.float32)
    probabilities[0, np.arange(len(classes)), classes] = [0.9, 0.8, 0.7, 0.9, 0.6, 0.5, 0.9, 0.7, 0.9]
    assert recognise.decode(probabilities, ["", "a", "b", " "]) == Text("aab ", pytest.approx((0.8 + 0.6 + 0.5 + 0.7) / 4))
    assert recognise.decode(probabilities[:, :1], ["", "a", "b", " "]) == Text("", 0.0)


def test_a_line_goes_into_the_narrowest_gear_that_holds_it_and_too_long_ones_are_squeezed() -> None:
    widths = [recognise.prepare(Image.new("RGB", (width, 48))).shape[3] for width in (10, 160, 161, 960, 3000)]
    assert widths == [160, 160, 320, 960, 960]


def test_a_picture_goes_into_the_gear_that_it_fills_best() -> None:
    sizes = {size: detect.prepare(Image.new("RGB", size)).data.shape[2:] for size in ((300, 400), (400, 300), (96, 100), (2000, 2000))}
    assert sizes == {(300, 400): (960, 736), (400, 300): (736, 960), (96, 100): (736, 736), (2000, 2000): (736, 736)}


def test_what_is_cut_out_of_a_turned_rectangle_is_upright() -> None:
    picture = Image.new("RGB", (120, 80), (255, 255, 255))
    picture.paste((0, 0, 0), (30, 20, 90, 40))
    box = smallest_rectangle(np.array([[30, 20], [90, 20], [90, 40], [30, 40]], np.float64))
    turned, angle = picture.rotate(-10, Image.Resampling.BICUBIC, fillcolor=(255, 255, 255)), np.deg2rad(10)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    line = recognise.cut_out(turned, Rectangle((box.corners - [60, 40]) @ turn + [60, 40]))
    assert line.size == (60, 20)
    assert np.asarray(line)[2:-2, 2:-2].mean() < 3


def test_a_difference_between_two_readings_is_said() -> None:
    box = square(0, 0, 1, 1)
    one, other = (Reading((Found(Text(text, 0.9), box),), 1.0, 0.5, 0.5) for text in ("tea", "tee"))
    assert agreement(one, other) == (False, "the readings differ: 1 and 1 lines, first difference 'tea' and 'tee'")
    assert agreement(one, one) == (True, "both read the same 1 lines; confidences differ by at most 0.000000")
    empty = Reading((), 1.0, 0.5, 0.5)
    assert agreement(one, empty)[0] is False
    assert agreement(empty, empty)[0] is True


def rapidocr() -> Path:
    """The folder of the fetched package."""
    (package,) = packages.by_name(["rapidocr"])
    if not packages.is_complete(package, packages.default_folder()):
        pytest.skip("rapidocr is not fetched: run scripts/fetch_models.py")
    return packages.location(package, package.files[0], packages.default_folder()).parent


def plain(text: str) -> str:
    """Without spaces, which the model sets by its own taste."""
    return text.replace(" ", "")


@pytest.mark.models
@pytest.mark.slow
def test_the_receipt_is_read_as_it_was_written() -> None:
    from anycann import InferenceSession

    folder = rapidocr()
    detection, recognition = (InferenceSession(folder / f"PP-OCRv6_{name}_small.onnx", num_threads=2) for name in ("det", "rec"))
    alphabet = recognise.characters(folder / "PP-OCRv6_rec_small.onnx")
    (measured,) = measure({"AnyCANN": lambda: Reader(detection, recognition, alphabet)}, Image.open(RECEIPT).convert("RGB"), runs=1)
    written = [plain(part) for line in LINES for part in (line.left, line.right) if part]
    assert [plain(line.text.text) for line in measured.reading.lines] == written
    assert [plain(line.text.text) for line in measured.warm[0].lines] == written


@pytest.mark.large
def test_the_demo_works_in_a_fresh_copy_and_from_any_folder(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, tracked):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    done = subprocess.run([copy / "scripts" / "demo"], cwd="/", capture_output=True, text=True, timeout=1800, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "云山茶馆" in done.stdout
    assert "both read the same 19 lines" in done.stdout
    assert (copy / "build" / "demo" / "receipt.png").is_file()
