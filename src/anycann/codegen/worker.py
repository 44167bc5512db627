"""The compiling process: `python -m anycann.codegen.worker` reads kernels from its input and writes objects to its output.

They come in frames (`frames.py`). The first one is the target as JSON; each one after it is IR text and
is answered by one frame: b"o" and the object, or b"e" and the text of the error. End of input ends the process.
"""

from __future__ import annotations

import json
import os

from anycann.codegen.frames import read_frame, write_frame
from anycann.codegen.objects import emit_object
from anycann.support.errors import AnyCANNError
from anycann.support.interruption import left_to_the_parent
from anycann.target.target import Target


def answer(ir_text: bytes, target: Target) -> bytes:
    """The reply to one request."""
    try:
        return b"o" + emit_object(ir_text.decode(), target)
    except AnyCANNError as error:
        return b"e" + str(error).encode()


def main() -> None:
    """Serve until the input ends."""
    left_to_the_parent()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints may get between the frames
    header = read_frame(requests)
    if header is None:
        return
    target = Target(**json.loads(header))
    try:
        while (request := read_frame(requests)) is not None:
            write_frame(replies, answer(request, target))
    except BrokenPipeError:
        os._exit(1)  # the parent is gone


if __name__ == "__main__":
    main()
