"""examples/torch: CLIP, and inference that does not care about the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from examples.torch import clip, infer
from examples.torch.devices import best_device


def test_the_best_device_is_the_npu_and_what_is_not_there_is_refused() -> None:
    assert best_device() == torch.device("npu", 0)
    assert best_device("npu:2") == torch.device("npu", 2)
    assert best_device("cpu") == torch.device("cpu")
    with pytest.raises(RuntimeError, match="device cuda is not there; there are npu, cpu"):
        best_device("cuda")


def test_clip_names_pictures_it_has_not_seen(tmp_path: Path) -> None:
    model = tmp_path / "clip.pt"
    right = clip.main(["--model", str(model), "--make-model", "--steps", "60"])
    assert right > 0.5
    assert clip.main(["--model", str(model), "--device", "cpu"]) == pytest.approx(right, abs=0.05)


def test_inference_gives_what_the_model_gives_and_measures_it() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    inputs = torch.randn(3, 8)
    want = model(inputs).detach()
    inference = infer.Inference(model)
    assert inference.device.type == "npu"
    for _ in range(5):
        assert torch.allclose(inference(inputs), want, atol=1e-6)
    summary = inference.monitor.summary()
    assert summary["runs"] == 5
    assert 0 < summary["median_ms"] <= summary["p95_ms"]
    assert summary["peak_mib"] > 0
    assert infer.Monitor(torch.device("cpu")).summary() == {}
    assert torch.allclose(infer.Inference(model, half=True)(inputs), want, atol=1e-2)


class FailsOnDevice(nn.Module):
    """Takes few rows on the npu, or none."""

    def __init__(self, error: type[Exception], most: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.error, self.most = error, most

    def forward(self, values: Tensor) -> Any:
        if values.device.type == "npu" and len(values) > self.most:
            raise self.error("no")
        return values * self.weight * 2


@pytest.mark.parametrize(("error", "most", "device"), [(torch.OutOfMemoryError, 2, "npu"), (RuntimeError, 0, "cpu")])
def test_safe_inference_comes_to_a_result(error: type[Exception], most: int, device: str) -> None:
    said: list[str] = []
    inference = infer.SafeInference(FailsOnDevice(error, most), report=said.append)
    values = torch.arange(7.0)
    assert torch.equal(inference(values), values * 2)
    assert torch.equal(inference(values), values * 2)
    assert said
    assert (inference.host is not None) == (device == "cpu")


def test_input_that_the_host_refuses_too_is_an_error() -> None:
    inference = infer.SafeInference(nn.Linear(3, 3), report=lambda text: None)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        inference(torch.ones(2, 4))
    inference = infer.SafeInference(nn.Linear(3, 3), report=lambda text: None)
    assert inference(torch.ones(2, 3)).shape == (2, 3)


def test_resnet_50_is_measured() -> None:
    assert infer.main(["--batch-size", "2", "--runs", "3", "--width", "16"])["runs"] == 3
