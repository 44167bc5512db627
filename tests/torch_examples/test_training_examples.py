"""examples/torch: networks that train, on small settings."""

from __future__ import annotations

from pathlib import Path
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from examples.torch import cifar, finetune_bert, train_resnet
from examples.torch.resnet import RESNET_50, resnet
from tests.torch_distributed.worlds import ROOT, environment, free_port

SMALL = ["--width", "8", "--layers", "1", "1", "1", "1", "--workers", "0", "--batch-size", "32", "--warm-up-epochs", "1"]

SMALL_BERT = ["--sentences", "256", "--width", "32", "--layers", "1", "--learning-rate", "3e-3"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data")
    cifar.make(folder)
    return str(folder)


def losses(*given: str) -> list[float]:
    return [epoch.loss for epoch in train_resnet.main(list(given))]


def test_the_network_is_resnet_50() -> None:
    assert sum(parameter.numel() for parameter in resnet(1000).parameters()) == 25_549_352  # 7_680 less than usual: the stem is 3 x 3
    assert RESNET_50 == (3, 4, 6, 3)
    assert resnet(width=4)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_learning_rate_rises_in_a_line_and_falls_as_a_cosine() -> None:
    rates = [train_resnet.learning_rate(step, 100, 10) for step in range(101)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert (rates[10], rates[55], rates[100]) == pytest.approx((1, 0.5, 0))


def test_pictures_are_read_as_cifar_10_for_python_is_written(tmp_path: Path) -> None:
    folder = tmp_path / cifar.FOLDER
    folder.mkdir()
    red = np.zeros((1, 3072), np.uint8)
    red[0, :1024] = 255
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        (folder / name).write_bytes(pickle.dumps({b"data": red, b"labels": [6], b"filenames": [b"frog.png"]}))
    picture, label = cifar.Cifar(tmp_path, train=True)[1]
    assert (label, picture.shape) == (6, (3, 32, 32))
    assert picture[0].unique().tolist() == pytest.approx([(1 - 0.4914) / 0.2470])
    augmented, _ = cifar.Cifar(tmp_path, train=True, augment=True)[0]
    assert augmented.shape == (3, 32, 32)
    with pytest.raises(FileNotFoundError, match="no CIFAR-10 in"):
        cifar.Cifar(tmp_path / "other", train=True)


def test_resnet_trains_on_one_npu(data: str) -> None:
    epochs = train_resnet.main(
        ["--data", data, "--device", "npu:1", "--epochs", "8", "--learning-rate", "0.2", *SMALL, "--batch-size", "16"]
    )
    assert epochs[-1].loss < 0.6 * epochs[0].loss
    assert epochs[-1].accuracy > 0.6


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_resnet_trains_in_mixed_precision(data: str, dtype: str) -> None:
    mixed = losses("--data", data, "--epochs", "3", "--amp", dtype, *SMALL)
    assert mixed[-1] < mixed[0]


def test_an_interrupted_run_goes_on_from_its_checkpoint(data: str, tmp_path: Path) -> None:
    whole = losses("--data", data, "--epochs", "2", "--amp", "fp16", *SMALL, "--checkpoint", str(tmp_path / "whole.pt"))
    checkpoint = ["--checkpoint", str(tmp_path / "part.pt")]
    losses("--data", data, "--epochs", "2", "--amp", "fp16", *SMALL, *checkpoint, "--stop-after", "1")
    resumed = losses("--data", data, "--epochs", "2", "--amp", "fp16", *SMALL, *checkpoint)
    assert resumed == pytest.approx(whole, rel=1e-5)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.slow
def test_resnet_trains_in_graph_mode_as_without(data: str) -> None:
    plain = losses("--data", data, "--epochs", "1", *SMALL)
    graph = losses("--data", data, "--epochs", "1", "--graph", *SMALL)
    assert graph == pytest.approx(plain, rel=2e-3)


@pytest.mark.slow
def test_two_ranks_train_one_model(data: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    done = subprocess.run(
        [*command, "-m", "examples.torch.train_resnet", "--data", data, "--epochs", "2", *SMALL],
        env=environment(),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("epoch")]
    assert [line.split(":")[0] for line in said] == ["epoch 0", "epoch 1"]
    first, second = (float(line.split("loss ")[1].split(",")[0]) for line in said)
    assert second < first


def test_bert_learns_what_sentences_mean() -> None:
    outcome = finetune_bert.main(["--epochs", "8", *SMALL_BERT])
    assert outcome.losses[-1] < 0.6 * outcome.losses[0]
    assert outcome.accuracy > 0.75


def test_bert_trains_in_mixed_precision() -> None:
    outcome = finetune_bert.main(["--epochs", "6", "--amp", "bf16", *SMALL_BERT])
    assert outcome.losses[-1] < 0.8 * outcome.losses[0]
