from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
import numpy as np
import pytest
import torch
from torch import nn

from anycann.session import InferenceSession
from anycann.support.errors import ModelError, UnsupportedError
from anycann.tools.cli import main
from tests.torch_graph.networks import NETWORKS
from tests.torch_graph.test_inference import tensors

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\).*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def saved(model: nn.Module, args: tuple[torch.Tensor, ...], path: Path) -> str:
    torch.export.save(torch.export.export(model.eval(), args), path)
    return str(path)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_exported_program_is_a_model(name: str, tmp_path: Path) -> None:
    make, feed = NETWORKS[name]
    model, args = make(), feed()
    session = InferenceSession(saved(model, args, tmp_path / "net.pt2"))
    names = [value.name for value in session.get_inputs()]
    assert names == {"bert": ["ids", "mask"], "sentences": ["ids"]}.get(name, ["x"])
    got = session.run(None, {name: arg.numpy() for name, arg in zip(names, args, strict=True)})
    for one, wanted in zip(got, tensors(model(*args)), strict=True):
        np.testing.assert_allclose(one, wanted.detach().numpy(), rtol=1e-3, atol=1e-5)


def test_a_checkpoint_is_none(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ModelError, match=r"not an ONNX model, but a zip archive \(a PyTorch checkpoint, perhaps\)"):
        InferenceSession(tmp_path / "weights.pt")


def test_an_operator_without_translation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Eigen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvalsh(x)

    path = saved(Eigen(), (torch.eye(3),), tmp_path / "eigen.pt2")
    with pytest.raises(UnsupportedError, match=r"cannot be translated \(aten\._linalg_eigh\.default: no translation\)"):
        InferenceSession(path)


def test_atc_compiles_it(tmp_path: Path) -> None:
    make, feed = NETWORKS["vit"]
    model, args = make(), feed()
    path = saved(model, args, tmp_path / "net.pt2")
    result = CliRunner().invoke(main, ["atc", f"--model={path}", "--framework=5", f"--output={tmp_path / 'net'}", "--soc_version=host"])
    assert result.exit_code == 0, result.output
    session = InferenceSession(tmp_path / "net.om")
    (got,) = session.run(None, {"x": args[0].numpy()})
    np.testing.assert_allclose(got, model(*args).detach().numpy(), rtol=1e-3, atol=1e-5)
