"""Peaks, the roofline, the tables and the page that are made of what was measured."""

from __future__ import annotations

from dataclasses import replace
import json
from pathlib import Path
import time

import pytest

from anycann.codegen.objects import emit_assembly
from anycann.om.plan import Buffer, Location, NativeStep, Program, Task, TensorSpec
from anycann.target.target import by_name
from anycann.te import dtypes
from anycann.tools.measure import summary
from benchmarks.bandwidth import Bandwidth, bandwidth
from benchmarks.engines.arithmetic import Arithmetic
from benchmarks.layers import Layer, Layers, layers_from, table, to_json
from benchmarks.machine import Machine
from benchmarks.measuring import Speed, paired_ratio
from benchmarks.page import page
from benchmarks.peak import dot_products, peak_rates, tile_products
from benchmarks.report import best_peer, mean_times_faster, missing, speed_table, times_faster
from benchmarks.results import Report, Result, joined, other_machines, read
from benchmarks.results import to_json as results_to_json
from benchmarks.roofline import Ceilings, Work, works
from benchmarks.scaling import scaling_table
from tests.models.test_benchmarks import run

CEILINGS = Ceilings({"fp32": 100.0, "int8": 800.0}, Bandwidth(((1000, 50.0), (100_000, 10.0))))
AVX512 = by_name("avx512")
WITH_ALL = replace(AVX512, features=AVX512.features + ",+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8")


def speed(absent: dict[str, str] | None = None, **milliseconds: float) -> Speed:
    latency = {name: summary([value * 1e-3]) for name, value in milliseconds.items()}
    return Speed(latency, dict.fromkeys(latency, 1e-06), True, absent or {}, 2_000_000)


def machine(processor: str = "Some Processor") -> Machine:
    rates = {"fp32": {"multiply-adds": 100e9}, "int8": {"dot products": 400e9, "matrix tiles": 800e9}}
    return Machine(processor, 2, 8, ("avx2",), "Linux", {"numpy": "2"}, {1: 100e9}, {1: rates}, {1: Bandwidth(((1 << 20, 5e10),))})


def report(*results: Result, command: str = "python -m benchmarks.models") -> Report:
    return Report((command,), machine(), results)


# ---- peaks
def test_peaks_use_the_instructions_of_the_processor_and_only_those_it_has() -> None:
    dots, tiles = dot_products(WITH_ALL, dtypes.uint8), tile_products(WITH_ALL, dtypes.bfloat16)
    assert dots is not None
    assert tiles is not None
    assert dots.operations == 2 * 24 * 16 * 4
    assert tiles.operations == 4 * 2 * 16 * 16 * 32
    assert emit_assembly(dots.ir, WITH_ALL).count("vpdpbusd") == 24
    assert emit_assembly(tiles.ir, WITH_ALL).count("tdpbf16ps") == 4
    assert dot_products(AVX512, dtypes.uint8) is None
    assert tile_products(AVX512, dtypes.uint8) is None


def test_every_measured_peak_is_a_rate_and_fp32_is_always_there() -> None:
    rates = peak_rates(1)
    assert set(rates["fp32"]) == {"multiply-adds", "multiply-adds in one long run"}
    assert all(1e8 < rate < 1e14 for kinds in rates.values() for rate in kinds.values())


@pytest.mark.slow
def test_the_bandwidth_of_a_working_set_is_that_of_the_smallest_measured_that_holds_it() -> None:
    measured = bandwidth(1)
    assert [nbytes for nbytes, _ in measured.levels] == sorted(nbytes for nbytes, _ in measured.levels)
    assert all(1e8 < rate < 1e12 for _, rate in measured.levels)
    assert CEILINGS.bandwidth.rate(1000) == 50.0
    assert CEILINGS.bandwidth.rate(1001) == CEILINGS.bandwidth.rate(10**9) == 10.0


def test_the_page_names_a_working_set_below_a_mebibyte() -> None:
    small = Bandwidth(((512 << 10, 5e10), (32 << 20, 2e10)))
    text = page(replace(report(), machine=replace(machine(), bandwidth={1: small})))
    assert "GB/s read again and again from: 512 KiB 50.0, 32 MiB 20.0." in text


# ---- the roofline
def test_the_least_time_is_that_of_the_arithmetic_or_of_the_bytes() -> None:
    assert CEILINGS.seconds(Work(1000, 100, 0, 500, "fp32")) == 10.0
    assert CEILINGS.seconds(Work(1000, 100, 0, 500, "int8")) == 2.0  # 100 bytes at 50
    assert CEILINGS.seconds(Work(0, 100, 40, 50_000, "fp32")) == pytest.approx(60 / 50 + 40 / 10)  # constants come from farther away
    assert CEILINGS.seconds(Work(1000, 0, 0, 0, "bf16")) == 10.0  # no instruction for it: as float32


def test_a_launch_counts_its_operands_once_and_gathers_read_no_more_than_they_write() -> None:
    x, w, y = Buffer("arena", 0, 400), Buffer("constants", 0, 4000), Buffer("arena", 400, 80)
    values = {name: Location(TensorSpec(name, "uint8", (1,)), buffer) for name, buffer in (("x", x), ("y", y))}
    tasks = tuple(
        Task(f"k_{n}", (x, w, x, y), 1, 0, (f"n{n}",), (op_type,), ("y",), 7) for n, op_type in enumerate(("ConvInteger", "Gather", "Relu"))
    )
    program = Program((), (), 480, (NativeStep(tasks),), values)
    product, gather, other = (work for _, work in works(program))
    assert product == Work(7, 4480, 4000, 4480, "int8")
    assert (gather.bytes, gather.constant_bytes) == (240, 80)
    assert other.kind == "fp32"


def test_layers_are_told_the_longest_first_with_their_share_and_come_back_from_json() -> None:
    work = Work(2_000_000, 1_000_000, 500_000, 1_000_000, "fp32")
    quick = Layer("a_1", ("n0",), ("Relu",), 1e-6)
    slow = Layer("b_2", ("n1", "n2"), ("Conv", "Relu"), 4e-5, work, 2e-5)
    found = Layers("net", "fp32", 1, 5e-5, (quick, slow))
    lines = table(found)
    assert lines[2] == "| n1 and 1 more (Conv+Relu) | 40.0 | 80.0% | 2.00 | 1.00 | 2.0 | 50 | 50% |"
    assert lines[3] == "| n0 (Relu) | 1.0 | 2.0% |  |  |  |  |  |"
    assert lines[4] == "| all 2 | 50.0 |  | 2.00 | 1.00 | 2.0 | 40 | 40% |"
    assert layers_from(json.loads(to_json(machine(), found, "x"))) == found


@pytest.mark.models
@pytest.mark.slow
def test_the_kernels_of_a_model_are_timed_and_written_down(tmp_path: Path) -> None:
    data = tmp_path / "layers.json"
    done = run("benchmarks.layers", "mnist", "--seconds", "0.2", "--json", str(data))
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(data.read_text())
    assert "| Convolution28" in done.stdout
    kernels = [layer for layer in facts["layers"] if layer["work"]]
    assert kernels
    assert all(layer["seconds"] > 0 and layer["floor_seconds"] > 0 and layer["nodes"] for layer in kernels)
    assert sum(layer["seconds"] for layer in facts["layers"]) < 1.5 * facts["seconds"]
    assert max(layer["work"]["flops"] for layer in kernels) > 2 * 8 * 28 * 28 * 25


# ---- tables and the page
def test_times_faster_is_the_best_peers_time_over_ours() -> None:
    measured = speed(anycann=2.0, onnxruntime=5.0, openvino=3.0)
    assert best_peer(measured) == ("openvino", pytest.approx(1.5))
    assert times_faster(measured) == pytest.approx(1.5)
    assert times_faster(speed(anycann=2.0)) is None
    assert mean_times_faster([("a", measured), ("b", speed(anycann=3.0, openvino=2.0)), ("c", speed(anycann=1.0))]) == pytest.approx(1.0)


def test_times_faster_is_of_rounds_where_another_program_came_between() -> None:
    ours, theirs = [1.0, 1.0, 1.0, 2.0, 2.0], [1.5, 1.5, 3.0, 3.0, 3.0]
    ratio = paired_ratio(theirs, ours)
    assert ratio == pytest.approx(1.5)
    measured = replace(speed(anycann=1000.0, openvino=3000.0, onnxruntime=2900.0), ratios={"openvino": ratio, "onnxruntime": 1.9})
    assert best_peer(measured) == ("openvino", ratio)
    assert times_faster(measured) == ratio


def test_a_table_has_a_column_for_each_engine_that_ran_anything() -> None:
    results = [Result("a", {"fp32": {1: speed(anycann=2.0, openvino=3.0)}}), Result("b", {"fp32": {1: speed(anycann=1.0)}})]
    lines = speed_table(results, "fp32", 1, 100e9)
    assert lines[0] == "| model | AnyCANN ms | OpenVINO ms | times faster | than | GFLOP/s | of peak |"
    assert lines[2] == "| a | 2.00 (2.00) | 3.00 (3.00) | 1.50 | OpenVINO | 1 | 1% |"
    assert lines[3] == "| b | 1.00 (1.00) |  |  |  | 2 | 2% |"
    assert lines[4].startswith("| geometric mean |  |  | **1.50** |")
    between = Result("a", {"fp32": {1: replace(speed(anycann=2.0), share=0.93)}})
    assert speed_table([between], "fp32", 1, 100e9)[2].endswith("| 1 | 93% |"), "multiply-adds between the kernels count, not the peak"


def test_the_gain_of_threads_stands_beside_that_of_multiply_adds() -> None:
    one, two = (replace(speed(anycann=ms, onnxruntime=6.0), arithmetic=rate) for ms, rate in ((2.0, 4e9), (1.0, 6e9)))
    two = replace(two, flag=(70.4, 195.2))
    results = [Result("a", {"fp32": {1: one, 2: two}}), Result("b", {"fp32": {1: speed(anycann=1.0), 2: speed(anycann=0.5)}})]
    lines = scaling_table(results, "fp32", 1, 2)
    shares = "share of multiply-adds, 1 thread | share of multiply-adds, 2 threads"
    assert lines[0] == f"| model | AnyCANN | ONNX Runtime | multiply-adds | {shares} | a flag's way, ns |"
    assert lines[2] == "| a | 2.00 | 1.00 | 1.50 | 25% | 33% | 70 and 195 |"
    assert lines[3] == "| b | 2.00 |  |  |  |  |  |"
    assert lines[4] == "| geometric mean | **2.00** | **1.00** | **1.50** |  |  |  |"
    assert scaling_table(results, "bf16", 1, 2) == []
    both = {name: dict.fromkeys((1, 2), getattr(machine(), name)[1]) for name in ("peak", "rates", "bandwidth")}
    text = page(replace(report(*results), machine=replace(machine(), **both)))
    assert "### float32, times faster with 2 threads than with 1 thread" in text


@pytest.mark.parametrize("threads", [1, 2])
def test_multiply_adds_run_as_an_engine(threads: int) -> None:
    engine = Arithmetic(threads)
    started = time.perf_counter()
    assert engine.run({}) == {}
    seconds = time.perf_counter() - started
    assert 1e7 < engine.operations / seconds < 1e13
    assert engine.operations > 1e8, "as long as a model runs: waking a thread must not count"


def test_reasons_for_missing_numbers_are_told_once_with_their_models() -> None:
    why = {"torch": "not installed"}
    results = [
        Result("a", {"fp32": {1: speed(why, anycann=1.0)}}),
        Result("b", {"fp32": {1: speed({**why, "openvino": "no If"}, anycann=1.0)}}),
    ]
    assert missing(results, "fp32", 1) == ["- torch eager: not installed (all)", "- OpenVINO: no If (b)"]


def test_reports_of_one_machine_join_and_survive_their_file(tmp_path: Path) -> None:
    wide = report(Result("a", {"fp32": {1: speed(anycann=1.0, openvino=2.0)}}, failures={"int8": "no"}), command="one")
    narrow = report(Result("a", {"int8": {1: speed(anycann=2.0, openvino=1.0)}}), Result("b"), command="two")
    both = joined([wide, narrow])
    assert both.commands == ("one", "two")
    assert [(result.model, sorted(result.speed)) for result in both.results] == [("a", ["fp32", "int8"]), ("b", [])]
    faster = replace(machine(), peak={1: 9e9, 2: 200e9})
    assert joined([wide, replace(narrow, machine=faster)]).machine.peak == {1: 100e9, 2: 200e9}
    file = tmp_path / "both.json"
    file.write_text(results_to_json(both))
    assert read(file) == both
    assert other_machines([wide, replace(wide, machine=machine("Another"))]) == ["Another"]
    file.write_text("{}")
    with pytest.raises(ValueError, match="holds no results"):
        read(file)


def test_the_page_names_machine_commands_means_what_is_slower_and_what_failed() -> None:
    one = Result("a", {"fp32": {1: speed(anycann=1.0, openvino=2.0)}, "int8": {1: speed(anycann=2.0, openvino=1.0)}})
    text = page(report(one, Result("b", failures={"fp32": "ModelError: no"}), command="the command"))
    assert "the command" in text
    assert "on Some Processor, 2 cores" in text
    assert "- float32, 1 thread: 2.00 times the speed of the best peer, on none slower than it." in text
    assert "- 8-bit integers, 1 thread: 0.50 times the speed of the best peer, slower than it: `a` (0.50)." in text
    assert "int8 dot products 400; int8 matrix tiles 800" in text
    assert text.endswith("- `b`, fp32: ModelError: no\n")


def test_pictures_are_small(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'anycann[bench]'")
    from benchmarks.plots import draw_ratios, draw_roofline

    results = [Result(f"model{n}", {"fp32": {1: speed(anycann=1.0, openvino=1.0 + n / 10)}}) for n in range(24)]
    assert draw_ratios(report(*results), tmp_path / "ratios.png")
    assert not draw_ratios(report(), tmp_path / "nothing.png")
    layers = tuple(Layer(f"k_{n}", ("n",), ("Conv",), 1e-5, Work(10**6 * (n + 1), 10**5, 0, 10**5, "fp32"), 1e-6) for n in range(50))
    draw_roofline(Layers("net", "fp32", 1, 1e-3, layers), machine().ceilings(1), tmp_path / "roofline.png")
    for name in ("ratios.png", "roofline.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / name).stat().st_size < 100_000
