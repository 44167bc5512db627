"""ais_bench: its options, files and lines, and the interface of Python."""

from __future__ import annotations

from collections.abc import Callable
import gc
import json
from pathlib import Path
import re
import threading

import numpy as np
import onnx
import pytest

from anycann.acl.model_loading import MODELS
from anycann.acl.process import PROCESS
from anycann.compiler import CompileOptions, compile_model
from anycann.om.writer import write_offline_model
from anycann.runtime.dump.records import read_record
from anycann.support.errors import UsageError
from anycann.tools.ais_bench.inference import InferenceSession, SessionOptions
from anycann.tools.ais_bench.interface import InferSession, MemorySummary
from anycann.tools.ais_bench.main import main, shapes_in
from anycann.tools.ais_bench.several_devices import MultiDeviceSession
from anycann.tools.ais_bench.shapes import parse_shapes
from anycann.tools.ais_bench.tensors import BaseTensor, Tensor
from tests.tools.conftest import Process

NUMBER = r"[0-9][0-9.e+-]*"
FIGURES = rf"\(ms\): min = {NUMBER}, max = {NUMBER}, mean = {NUMBER}, median = {NUMBER}, percentile\(99%\) = {NUMBER}"
NAMES = ("H2D_latency", "NPU_compute_time", "D2H_latency")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def write(folder: Path, shape: str, options: CompileOptions | None = None) -> str:
    """A model that doubles x."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g (float[{shape}] x) => (float[{shape}] y) {{ y = Add(x, x) }}'
    )
    model.graph.node[0].name = "add"
    path = str(folder / "model.om")
    write_offline_model(path, compile_model(model, options))
    return path


def gears(folder: Path, kind: str) -> str:
    given: dict[str, tuple[str, tuple[int, ...], list[tuple[int, ...]], dict[str, str]]] = {
        "batch": ("n, 3", (-1, 3), [(1, 3), (4, 3)], {"dynamic_batch_size": "1,4", "input_shape": "x:-1,3"}),
        "hw": ("1, 3, h, w", (1, 3, -1, -1), [(1, 3, 2, 4), (1, 3, 4, 2)], {"dynamic_image_size": "2,4;4,2", "input_shape": "x:1,3,-1,-1"}),
        "dims": ("n, m", (-1, -1), [(1, 6), (2, 5)], {"dynamic_dims": "1,6;2,5", "input_shape": "x:-1,-1"}),
    }
    shape, declared, sizes, arguments = given[kind]
    options = CompileOptions(gears=tuple({"x": size} for size in sizes), arguments=arguments, input_shapes={"x": declared})
    return write(folder, shape, options)


def test_the_lines_are_those_of_ais_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", write(tmp_path, "2, 3"), "--loop", "3", "--display_all_summary", "true"]) == 0
    lines = [
        r"\[INFO\] try get model batchsize:2",
        r"\[INFO\] warm up 1 done",
        r"\[INFO\] -----------------Performance Summary------------------",
        rf"\[INFO\] H2D_latency {FIGURES}",
        rf"\[INFO\] NPU_compute_time {FIGURES}",
        rf"\[INFO\] D2H_latency {FIGURES}",
        rf"\[INFO\] throughput 1000\*batchsize.mean\(2\)/NPU_compute_time.mean\({NUMBER}\): {NUMBER}",
        r"\[INFO\] ------------------------------------------------------",
    ]
    assert re.fullmatch("\n".join(lines) + "\n", capsys.readouterr().out)


@pytest.mark.parametrize("more", [[], ["--run_m", "tensor"], ["-rm", "full"], ["--pipeline", "1", "--threads", "2"]])
def test_files_become_batches_and_outputs_become_files_again(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "in").mkdir()
    for number in (0, 1, 10):  # a batch of two, and one file that does not fill the second
        np.save(tmp_path / "in" / f"s{number}.npy", np.full((1, 3), number, np.float32))
    words = ["-om", write(tmp_path, "2, 3"), "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "-od", "r", "--outfmt", "npy"]
    assert main([*words, *more]) == 0
    out = tmp_path / "out" / "r"
    assert sorted(path.name for path in out.iterdir()) == ["s0_0.npy", "s10_0.npy", "s1_0.npy"]
    assert all((np.load(out / f"s{number}_0.npy") == 2 * number).all() for number in (0, 1, 10))
    summary = json.loads((tmp_path / "out" / "r_summary.json").read_text())
    assert summary["filesinfo"]["2"] == {"infiles": [str(tmp_path / "in" / "s10.npy")], "outfiles": [str(out / "s10_0.npy")]}
    assert summary["NPU_compute_time"]["count"] == len(summary["npu_compute_time_list"]) == 2
    assert summary["throughput"] == pytest.approx(1000 * 2 / summary["NPU_compute_time"]["mean"])


def test_raw_files_and_text(tmp_path: Path) -> None:
    X.tofile(tmp_path / "x.bin")
    words = ["-m", write(tmp_path, "2, 3"), "-i", str(tmp_path / "x.bin"), "-o", str(tmp_path), "--output_dirname", "r"]
    assert main([*words, "--outfmt", "TXT", "--run_mode", "files"]) == 0
    assert (tmp_path / "r" / "x_0.txt").read_text() == "0.000000 2.000000 4.000000 \n6.000000 8.000000 10.000000 \n"


def test_several_devices_share_the_files(tmp_path: Path, process: Process) -> None:
    for number in range(3):
        (X + number).tofile(tmp_path / f"x{number}.bin")
    files = ",".join(str(tmp_path / f"x{number}.bin") for number in range(3))
    words = ["-m", "ais_bench", "--model", write(tmp_path, "2, 3"), "-i", files, "-o", tmp_path, "-od", "r", "--device", "0,1"]
    done = process("run", *words, ANYCANN_DEVICES="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[INFO] multidevice run end qsize:4 result:0" in done.stdout
    assert re.search(rf"^i:1 device_1 throughput:{NUMBER} start_time:{NUMBER} end_time:{NUMBER}$", done.stdout, re.MULTILINE)
    assert sorted(str(path.relative_to(tmp_path / "r")) for path in tmp_path.glob("r/device*/*")) == [
        "device0/x0_0.bin", "device0/x1_0.bin", "device1/x2_0.bin",
    ]  # fmt: skip
    assert (np.fromfile(tmp_path / "r/device1/x2_0.bin", np.float32) == 2 * (X + 2).ravel()).all()


def test_a_profile_is_written(tmp_path: Path, process: Process) -> None:
    done = process("run", "-m", "ais_bench", "--model", write(tmp_path, "2, 3"), "--profiler", "1", "-o", tmp_path / "out", "--loop", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    (table,) = (tmp_path / "out" / "profiler").rglob("op_summary*.csv")
    assert len(table.read_text().splitlines()) == 1 + 4  # a kernel of each run, and of the warm-up


def test_operators_are_dumped(tmp_path: Path, process: Process) -> None:
    done = process(
        "run", "-m", "ais_bench", "--model", write(tmp_path, "2, 3"), "--dump", "1", "--dump-npy", "1", "-o", tmp_path / "out",
        "--warmup_count", "0",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    files = [path for path in (tmp_path / "out" / "dump").rglob("*.*") if path.is_file()]
    (file,) = (path for path in files if path.suffix != ".npy")
    record = read_record(file)
    assert {path.name: np.load(path).shape for path in files if path != file} == {
        f"{file.name}.{role}.0.npy": (2, 3) for role in ("input", "output")
    }
    assert [(tensor.value, tensor.array.shape) for tensor in (*record.inputs, *record.outputs)] == [("x", (2, 3)), ("y", (2, 3))]


def test_a_range_of_shapes_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shapes_in("x:1~2,600-700;y:3") == ["x:1,600;y:3", "x:1,700;y:3", "x:2,600;y:3", "x:2,700;y:3"]
    assert shapes_in("x:1~5~2") == ["x:1", "x:3", "x:5"]
    assert main(["--model", write(tmp_path, "n, 3"), "--dymShape_range", "x:1~2,3", "--outputSize", "100"]) == 0
    assert "run_count:2 success_count:2" in capsys.readouterr().out


def test_what_cannot_be_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write(tmp_path, "2, 3")
    assert main(["--model", model, "--input", str(tmp_path / "none.bin")]) == 1
    assert "[ERROR] --input: " in capsys.readouterr().out
    assert main(["--model", gears(tmp_path, "batch")]) == 1
    assert "accepts 1, 4" in capsys.readouterr().out
    for words in (
        ["--backend", "trtexec"],
        ["--dump", "1"],
        ["--dump", "1", "--profiler", "1", "--output", "x"],
        ["--output_dirname", "x"],
        ["--device", "256"],
        ["--loop", "0"],
    ):
        with pytest.raises(SystemExit) as error:
            main(["--model", model, *words])
        assert error.value.code == 2


def test_a_session_takes_and_gives_arrays(tmp_path: Path) -> None:
    session = InferSession(0, write(tmp_path, "2, 3"), loop=2)
    (x,) = session.get_inputs()
    assert (x.name, x.datatype.name, x.shape, x.size, x.realsize) == ("x", "float32", [2, 3], 6, 24)
    assert (session.infer([X])[0] == 2 * X).all()
    assert len(session.sumary().exec_time_list) == 2
    outputs = session.run([session.create_tensor_from_arrays_to_device(X)])
    with pytest.raises(UsageError, match="call to_host"):
        np.array(outputs[0])
    session.convert_tensors_to_host(outputs)
    assert (session.convert_tensors_to_arrays(outputs)[0] == 2 * X).all()
    assert MemorySummary.get_D2H_time_list()
    with pytest.raises(UsageError, match="12 bytes"):
        session.run([X[:1]])
    with pytest.raises(UsageError, match="accepted: static, dymbatch"):
        session.infer([X], "dynamic")
    session.finalize()


@pytest.mark.parametrize(
    ("kind", "shapes"), [("batch", [(1, 3), (4, 3)]), ("hw", [(1, 3, 4, 2), (1, 3, 2, 4)]), ("dims", [(2, 5), (1, 6)])]
)
def test_gears_are_chosen_by_the_shapes_of_the_feeds(tmp_path: Path, kind: str, shapes: list[tuple[int, ...]]) -> None:
    session = InferSession(0, gears(tmp_path, kind))
    for shape in shapes:
        x = np.random.default_rng(1).random(shape, np.float32)
        (y,) = session.infer([x], f"dym{kind}")
        assert y.shape == shape
        assert (y == 2 * x).all()
    session.finalize()


def test_open_shapes_are_those_of_the_feeds(tmp_path: Path) -> None:
    session = InferSession(0, write(tmp_path, "n, 3"))
    assert (session.infer([X], "dynshape", custom_sizes=[24])[0] == 2 * X).all()
    with pytest.raises(UsageError, match="its custom size is 23"):
        session.infer([X], "dymshape", custom_sizes=23)
    session.finalize()


def test_a_number_of_numpy_is_the_feed_of_an_input_without_axes(tmp_path: Path) -> None:
    graph = "g (float[n] x, double factor) => (float[n] y) { f = Cast<to=1>(factor) y = Mul(x, f) }"
    path = str(tmp_path / "scaled.om")
    write_offline_model(path, compile_model(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {graph}')))
    session = InferSession(0, path)
    (factor,) = np.array([3.0])
    for count in (4, 5):
        x = np.arange(count, dtype=np.float32)
        assert np.array_equal(session.infer([x, factor], "dymshape")[0], x * 3)
    session.finalize()


def test_many_feeds_and_turns(tmp_path: Path) -> None:
    session = InferSession(0, write(tmp_path, "2, 3"))
    results = session.infer_pipeline([[X + number] for number in range(5)])
    assert all((result[0] == 2 * (X + number)).all() for number, result in enumerate(results))
    assert (session.infer_iteration([X], [0], 3)[0] == 8 * X).all()
    session.finalize()


def test_several_devices_at_once(tmp_path: Path) -> None:
    session = MultiDeviceSession(write(tmp_path, "2, 3"))
    results = session.infer({0: [[X], [X + 1]]})
    assert (results[0][1][0] == 2 * (X + 1)).all()
    assert [seconds > 0 for seconds in session.summary()[0]] == [True, True]
    ((first, second),) = session.infer_pipeline({0: [[[X], [X + 1]]]})[0]
    assert (first[0] == 2 * X).all()
    assert (second[0] == 2 * (X + 1)).all()
    assert (session.infer_iteration({0: [[X]]}, [0], 3)[0][0][0] == 8 * X).all()


def test_programs_fill_and_print_a_summary_of_their_own(tmp_path: Path, process: Process) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nimport numpy as np\nfrom ais_bench.infer.common.utils import logger_print\n"
        "from ais_bench.infer.summary import summary\n"
        "from ais_bench.infer.interface import InferSession, MemorySummary\nfrom ais_bench.infer.utils import logger\n"
        f"session = InferSession(0, {write(tmp_path, '2, 3')!r})\nsession.reset_summaryinfo()\nMemorySummary.reset()\n"
        "summary.reset()\nsummary.add_args(sys.argv)\nfor number in range(3):\n    session.infer([np.ones((2, 3), np.float32)])\n"
        "    summary.append_sample_id_outfile(number, f'{number}_0.bin')\n"
        "times = session.summary().exec_time_list\nsummary.npu_compute_time_list = times\n"
        "summary.h2d_latency_list, summary.d2h_latency_list = MemorySummary.get_h2d_time_list(), MemorySummary.get_d2h_time_list()\n"
        f"summary.report(2, output_prefix={str(tmp_path / 'out')!r}, display_all_summary=True, multi_threads=False)\n"
        "assert all(abs(end - start - time) < 1e-6 for time, (start, end) in zip(times, times))\nlogger.info('done')\n"
        "logger_print('twice')\n"
    )
    done = process("run", program, "word")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [bool(re.fullmatch(rf"\[INFO\] {word} {FIGURES}", line)) for word, line in zip(NAMES, lines[1:4], strict=True)] == [True] * 3
    assert lines[-2:] == ["[INFO] done", "[INFO] twice"]
    written = json.loads((tmp_path / "out_summary.json").read_text())
    assert (written["args"], written["NPU_compute_time"]["count"], written["filesinfo"]["2"]["outfiles"]) == (
        [str(program), "word"], 3, ["2_0.bin"]
    )  # fmt: skip


def test_aclruntime_runs_on_its_tensors(tmp_path: Path) -> None:
    session = InferenceSession(write(tmp_path, "2, 3"), 0)
    (output,) = session.run(["y"], [BaseTensor(X.ctypes.data, X.nbytes)])
    output.to_host()
    assert (np.array(output) == 2 * X).all()
    (again,) = session.run(["y"], [Tensor(X)])
    again.to_host()
    assert (np.array(again, copy=True) == 2 * X).all()
    (named,) = session.run(["y"], {"x": Tensor(np.frombuffer(X.tobytes()))})  # the bytes count, not their type
    named.to_host()
    assert (np.array(named) == 2 * X).all()
    with pytest.raises(UsageError, match=r"tensors are given for y; .* has the inputs x"):
        session.run(["y"], {"y": Tensor(X)})
    with pytest.raises(UsageError, match="output 'z' is not there"):
        session.run(["z"], [Tensor(X)])
    assert named.dtype.name == "float32"
    assert repr(session) == "<Model>\ndevice:\t0\ninput:\n  #0    x  (2, 3)  float32  6  24\noutput:\n  #0    y  (2, 3)  float32  6  24\n"
    session.finalize()


def test_a_run_in_three_steps(tmp_path: Path) -> None:
    session = InferenceSession(write(tmp_path, "2, 3"), 0)
    with pytest.raises(RuntimeError, match="run_setinputs"):
        session.run_execute()
    session.run_setinputs({"x": Tensor(X)})
    with pytest.raises(RuntimeError, match="run_execute"):
        session.run_getoutputs(["y"])
    session.run_execute(loop=3)
    assert len(session.sumary().exec_time_list) == 3
    for factor in (2, 6):
        (output,) = session.run_getoutputs(["y"])
        output.to_host()
        assert (np.array(output) == factor * X).all()
        session.run_setinputs([Tensor(3 * X)])
        session.run_execute()
    session.finalize()


def test_the_debug_level_prints_how_long_each_run_took(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for level in (2, 1):
        session = InferenceSession(write(tmp_path, "2, 3"), 0, SessionOptions(log_level=level, loop=2))
        session.run(["y"], [Tensor(X)])
        told = [float(line.rpartition(":")[2]) for line in capfd.readouterr().out.splitlines() if "model aclExec cost :" in line]
        assert told == ([pytest.approx(end - begin, abs=1e-6) for begin, end in session.sumary().exec_time_list] if level == 1 else [])
        session.finalize()


def test_only_tensors_on_devices_that_are_there_run(tmp_path: Path) -> None:
    session = InferenceSession(write(tmp_path, "2, 3"), 0)
    for feeds in ([X], {"x": X}):
        with pytest.raises(TypeError, match=r"input 'x' is a ndarray; accepted: Tensor, BaseTensor"):
            session.run(["y"], feeds)
    with pytest.raises(RuntimeError, match="device 100"):
        Tensor(X).to_device(100)
    session.finalize()


def test_a_model_goes_with_its_session(tmp_path: Path) -> None:
    path, before = write(tmp_path, "2, 3"), set(MODELS.live())
    session = InferSession(0, path)
    (loaded,) = set(MODELS.live()) - before
    assert (session.infer([X])[0] == 2 * X).all()
    del session
    assert loaded not in MODELS.live()


def test_element_types_are_indices_of_tables(tmp_path: Path) -> None:
    (given,) = InferSession(0, write(tmp_path, "2, 3")).get_inputs()
    assert (np.float32, np.float16)[given.datatype] is np.float32
    assert int(type(given.datatype).int64) == 9


def test_shapes_are_parsed() -> None:
    assert parse_shapes("a:0:1,2;b:3") == {"a:0": (1, 2), "b": (3,)}
    with pytest.raises(UsageError, match="accepted: 'name:1,3,224,224"):
        parse_shapes("a:x")


def test_a_session_may_go_as_garbage_at_any_moment(tmp_path: Path) -> None:
    """Also while its thread counts what is there: the interpreter collects where something is made."""
    path, before = write(tmp_path, "2, 3"), set(MODELS.live())

    def collect() -> None:
        session = InferSession(0, path)
        session.__dict__["itself"] = session
        device = PROCESS.context().device
        del session
        with PROCESS.lock, PROCESS.handles._lock, device._lock:
            gc.collect()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert set(MODELS.live()) == before


def test_errors_are_runtime_errors(tmp_path: Path) -> None:
    session = InferSession(0, write(tmp_path, "2, 3"))
    mistakes: list[Callable[[], object]] = [
        lambda: InferSession(100, write(tmp_path, "2, 3")),
        lambda: InferSession(0, "not_there.om"),
        lambda: session.infer([np.zeros((4, 3), np.float32)]),
        lambda: session.session.set_dynamic_batchsize(7),
    ]
    for mistake in mistakes:
        with pytest.raises(RuntimeError, match=r"."):
            mistake()
    session.free_resource()
    with pytest.raises(RuntimeError, match="unloaded"):
        session.infer([np.zeros((2, 3), np.float32)])


def test_the_names_of_ascend_are_there(tmp_path: Path, process: Process) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import aclruntime\nfrom ais_bench.infer.interface import InferSession, MultiDeviceSession, MemorySummary\n"
        "options = aclruntime.session_options()\noptions.loop = 2\nassert aclruntime.dtype.double is aclruntime.dtype.float64\n"
        f"session = aclruntime.InferenceSession({write(tmp_path, '2, 3')!r}, 0, options)\nprint(session.get_inputs()[0].datatype)\n"
        "import numpy\nprint(aclruntime.Tensor(numpy.ones((2, 3), numpy.float32)))\n"
    )
    done = process("run", program)
    tensor = "<Tensor>\nshape:\t(2, 3)\ndtype:\tfloat32\ndevice:\t-1\n"
    assert (done.returncode, done.stdout) == (0, f"dtype.float32\n{tensor}"), done.stderr
    assert process("run", "msit", "benchmark", "-om", tmp_path / "model.om").returncode == 0
