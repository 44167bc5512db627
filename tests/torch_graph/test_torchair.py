from __future__ import annotations

import csv
import importlib
from pathlib import Path
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from anycann.adapters.torch.graph.report import reports
from anycann.session import InferenceSession
from tests.torch_graph.networks import ResNet, images

SHIMS = str(Path(__file__).parents[2] / "src" / "anycann" / "shims" / "python")


@pytest.fixture
def torchair() -> Any:
    if SHIMS not in sys.path:
        sys.path.insert(0, SHIMS)
    import torchair

    return torchair


def test_a_model_is_compiled_with_a_configuration(torchair: Any) -> None:
    import torch_npu  # noqa: F401

    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    config.experimental_config.frozen_parameter = True
    config.ge_config.oo_level = "O1"
    model = ResNet().eval()
    x = images()[0]
    with torch.no_grad():
        wanted = model(x)
        run = torch.compile(model.npu(), backend=torchair.get_npu_backend(compiler_config=config), dynamic=True, fullgraph=True)
        torch.testing.assert_close(run(x.npu()).cpu(), wanted, rtol=1e-4, atol=1e-5)


def test_options_are_checked(torchair: Any) -> None:
    config = torchair.CompilerConfig()
    with pytest.raises(ValueError, match=r"no option 'debg'; accepted: mode, debug, .*"):
        config.debg = 1
    with pytest.raises(ValueError, match=r"option 'type': value 'json' \(str\); accepted: 'txt', 'pbtxt', 'py'"):
        config.debug.graph_dump.type = "json"
    with pytest.raises(ValueError, match=r"option 'static_model_ops_lower_limit': .* accepted: integers from -1 to"):
        config.experimental_config.static_model_ops_lower_limit = -2
    with pytest.raises(ValueError, match=r"option 'dump_path': value '/nowhere' \(str\); accepted: the path of a folder"):
        config.dump_config.dump_path = "/nowhere"
    assert config.experimental_config.keep_inference_input_mutations.value == "1"
    assert config == torchair.CompilerConfig()
    config.debug.run_eagerly = True
    assert config != torchair.CompilerConfig()


def test_options_of_torch_compile_go_into_the_configuration(torchair: Any) -> None:
    config = torchair.CompilerConfig()
    before = len(reports())
    backend = torchair.get_npu_backend(compiler_config=config)
    torch.compile(lambda x: x + 1, backend=backend, options={"force_eager": True, "inplace_pass": False})(torch.ones(2))
    assert config.debug.run_eagerly.value == "1"
    assert config.debug.aclgraph.disable_reinplace_inplaceable_ops_pass.value == "1"
    assert len(reports()) == before  # nothing was compiled
    with pytest.raises(Exception, match="no option 'speed'"):
        torch.compile(lambda x: x + 2, backend=backend, options={"speed": 1})(torch.ones(2))


@pytest.mark.parametrize(("kind", "says"), [("txt", "MatMul"), ("pbtxt", 'op_type: "MatMul"'), ("py", "torch.ops.aten.addmm")])
def test_graphs_are_written_out(torchair: Any, kind: str, says: str, tmp_path: Path) -> None:
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = kind
    config.debug.graph_dump.path = str(tmp_path)
    with torch.no_grad():
        torch.compile(nn.Linear(3, 4), backend=torchair.get_npu_backend(compiler_config=config))(torch.ones(2, 3))
    (written,) = tmp_path.iterdir()
    assert written.suffix == f".{kind}"
    assert "_rank_0_pid_" in written.name
    assert says in written.read_text()


def test_a_table_says_which_operators_are_there(torchair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = torchair.CompilerConfig()
    config.debug.fx_summary.type = "csv"
    x = torch.randn(2, 3, 3)
    run = torch.compile(lambda x: torch.linalg.det(x.relu()), backend=torchair.get_npu_backend(compiler_config=config))
    torch.testing.assert_close(run(x), torch.linalg.det(x.relu()))
    (table,) = tmp_path.glob("*.csv")
    with table.open(encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["目标函数", "函数类型", "支持状态", "调用次数", "输入统计", "输出统计"]
    assert rows[1] == ["aten.relu.default", "call_function", "支持", "1", "float32[2, 3, 3]", "float32[2, 3, 3]"]
    assert rows[2][:3] == ["aten._linalg_det.default", "call_function", "未支持: no translation"]


def test_values_are_written_out(torchair: Any, tmp_path: Path) -> None:
    config = torchair.CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = str(tmp_path)
    x = torch.randn(4)
    torch.compile(lambda x: x.relu() * 2, backend=torchair.get_npu_backend(compiler_config=config))(x)
    values = {path.name.split("-")[0]: np.load(path) for path in tmp_path.iterdir()}
    np.testing.assert_array_equal(values["relu"], x.relu().numpy())
    np.testing.assert_array_equal(values["mul"], (x.relu() * 2).numpy())


@pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\).*:FutureWarning")
def test_a_model_is_exported_for_atc(torchair: Any, tmp_path: Path) -> None:
    model, x = ResNet().eval(), images()[0]
    torchair.dynamo_export(x, model=model, export_path=str(tmp_path / "there"), export_name="net")
    session = InferenceSession(tmp_path / "there" / "net.air")
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_method_is_compiled_and_its_sizes_come_in_gears(torchair: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 4)
            self.quick = torchair.inference.cache_compile(self.step)

        def step(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).relu()

    model = Model().eval()
    with torch.no_grad():
        for count in (2, 4):
            x = torch.randn(count, 3)
            torchair.inference.set_dim_gears(x, {0: [2, 4]})
            torch.testing.assert_close(model.quick(x), model.step(x))
    with pytest.raises(ValueError, match="dimension 0 has size 3; accepted: its gears"):
        torchair.inference.set_dim_gears(torch.ones(3), {0: [2, 4]})


def test_operators_of_a_program_run_in_torch(torchair: Any) -> None:
    @torch.library.custom_op("anycann_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @torchair.register_fx_node_ge_converter(torch.ops.anycann_test.twice.default)
    def convert(x: Any, meta_outputs: Any = None) -> Any:
        raise AssertionError("nothing asks")

    x = torch.randn(5)
    run = torch.compile(lambda x: twice(x.relu()) + 1, backend=torchair.get_npu_backend())
    torch.testing.assert_close(run(x), x.relu() * 2 + 1)


def test_other_names_and_scopes(torchair: Any) -> None:
    from torch_npu.dynamo import torchair as other
    from torchair.configs.compiler_config import CompilerConfig
    from torchair.core.utils import logger

    assert other.CompilerConfig is CompilerConfig is torchair.CompilerConfig
    assert logger is torchair.logger

    def function(x: torch.Tensor) -> torch.Tensor:
        with torchair.scope.npu_stream_switch("1"):
            y = x.relu()
        return torchair.scope.npu_wait_tensor(y, x) + 1

    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(function, backend=torchair.get_npu_backend(), fullgraph=True)(x), function(x))


def test_a_program_with_converters_of_its_own_runs(torchair: Any) -> None:
    from torchair.ge import Cast, Clone, Const, DataType, Format, Tensor, TensorSpec, attr, custom_op

    @torch.library.custom_op("anycann_test::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @thrice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @torchair.register_fx_node_ge_converter(torch.ops.anycann_test.thrice.default)
    def convert(x: Tensor, meta_outputs: TensorSpec = None) -> Any:
        return custom_op("Thrice", inputs={"x": x}, outputs=["y"], attrs={"by": attr.Int(3)})

    assert (DataType.DT_FLOAT, DataType.DT_BF16, DataType.DT_INT64, Format.FORMAT_FRACTAL_NZ.value) == (0, 27, 9, 29)
    for build in (lambda: convert(None), lambda: Const(1), lambda: Cast(None, dst_type=DataType.DT_FLOAT), lambda: Clone(None)):
        with pytest.raises(NotImplementedError, match="the operator's own PyTorch kernel computes it"):
            build()
    x = torch.randn(5)
    run = torch.compile(lambda x: thrice(x.relu()), backend=torchair.get_npu_backend(), fullgraph=True)
    torch.testing.assert_close(run(x), x.relu() * 3)


@pytest.mark.parametrize("root", ["_ge_concrete_graph", "ge_concrete_graph"])
def test_modules_that_converters_import_from_are_there_by_both_names(torchair: Any, root: str) -> None:
    module = importlib.import_module
    graph, registry = module(f"torchair.{root}.ge_graph"), module(f"torchair.{root}.fx2ge_converter")
    assert [graph.torch_type_to_ge_type(dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.qint8)] == [0, 1, 27, 18]
    with pytest.raises(RuntimeError, match="uint7 has no number"):
        graph.torch_type_to_ge_type(torch.uint7)
    assert graph.Tensor is torchair.ge.Tensor
    apis = getattr(torchair, root).ge_apis

    @registry.register_fx_node_ge_converter(torch.ops.aten.add.Tensor)
    def convert(x: Any, y: Any, meta_outputs: Any = None) -> Any:
        return apis.Add(x, y)

    for call in (lambda: convert(1, 2), graph.get_default_ge_graph, module(f"torchair.{root}.utils").dtype_promote):
        with pytest.raises(NotImplementedError, match="converters are kept and not called here"):
            call()
    with pytest.raises(AttributeError, match="no attribute 'add'"):
        apis.add  # noqa: B018  # asked for, as programs ask
    with module(f"torchair.{root}.ge_converter.experimental.hcom_allreduce").functional_collectives_context():
        module(f"torchair.{root}.ge_converter.experimental.patch_for_hcom_allreduce")


def test_streams_events_and_limits_of_operators_change_nothing(torchair: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        event = torchair.ops.npu_create_tagged_event("first")
        with (
            torchair.scope.npu_stream_switch("1", 3, enable_inner_parallel=False),
            torchair.scope.op_never_timeout(),
            torchair.scope.data_dump(),
        ):
            y = x.exp()
            torchair.ops.npu_tagged_event_record(event)
        torchair.ops.npu_tagged_event_wait(event)
        torchair.ops.npu_record_tagged_stream(y, "1")
        torchair.ops.wait([torchair.ops.record()])
        return y + 1

    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(function, backend=torchair.get_npu_backend(), fullgraph=True)(x), function(x))
    with pytest.raises(TypeError, match=r"op_never_timeout\(\) argument 'enable' must be bool, but got str"):
        torchair.scope.op_never_timeout("yes")
    with pytest.raises(NotImplementedError, match="register_replacement"):
        torchair.register_replacement(lambda x: x, lambda x: x, (x,))


def test_tensors_are_printed_as_the_program_runs(torchair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    torchair.ops.npu_print("values", torch.arange(9), summarize_size=2)
    assert capsys.readouterr().out == "values tensor([0, 1,  ..., 7, 8])\n"
    torchair.ops.npu_print(torch.zeros(1), tensor_detail=True)
    assert capsys.readouterr().out == "tensor([0.], device='cpu', shape=(1,), dtype=torch.float32)\n"
