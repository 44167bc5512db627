"""Detection and recognition together, on any engine with ONNX Runtime's `run`, and the time each step takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import time
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from examples.ocr import detect, recognise
from examples.ocr.geometry import Rectangle
from examples.ocr.recognise import Text


class Session(Protocol):
    """What the reader asks of an engine; `anycann.InferenceSession` and `onnxruntime.InferenceSession` both have it."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> Any: ...

    def get_inputs(self) -> Sequence[Any]: ...


@dataclass(frozen=True)
class Found:
    """One line of text and where it stands in the picture."""

    text: Text
    box: Rectangle


@dataclass(frozen=True)
class Reading:
    """The lines of a picture in reading order, and the seconds it took: in all, and of that in the two models."""

    lines: tuple[Found, ...]
    seconds: float
    detection_seconds: float
    recognition_seconds: float


@dataclass(frozen=True)
class Reader:
    """Reads pictures with a detection model, a recognition model and its alphabet."""

    detection: Session
    recognition: Session
    alphabet: list[str]

    def read(self, picture: Image.Image) -> Reading:
        """The text of an RGB picture."""
        started = time.perf_counter()
        canvas = detect.prepare(picture)
        probability, detection_seconds = _timed(self.detection, canvas.data)
        lines, recognition_seconds = [], 0.0
        for box in detect.boxes(probability, canvas):
            answer, seconds = _timed(self.recognition, recognise.prepare(recognise.cut_out(picture, box)))
            recognition_seconds += seconds
            text = recognise.decode(answer, self.alphabet)
            if text.text:
                lines.append(Found(text, box))
        return Reading(tuple(lines), time.perf_counter() - started, detection_seconds, recognition_seconds)


def _timed(session: Session, data: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    name = session.get_inputs()[0].name
    started = time.perf_counter()
    answer = session.run(None, {name: data})[0]
    return answer, time.perf_counter() - started
