"""What new shapes cost: a decoder whose cache grows with every token, or a model with open sizes that is fed one size after the other.

python -m benchmarks.open_shapes --layers 4 --width 256 --tokens 60
python -m benchmarks.open_shapes --model all_minilm_l6_v2.onnx --sizes 16 20 23 31 37 12
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
import tempfile
import time
from typing import Any, TypeAlias

import numpy as np

from anycann import InferenceSession, SessionOptions

Feeds: TypeAlias = dict[str, np.ndarray]
Run: TypeAlias = Callable[[None, Mapping[str, np.ndarray]], Sequence[Any]]
WORDS, PLACES, HEAD = 2000, 1024, 64
PROMPT = 8


def export_decoder(path: Path, layers: int, width: int) -> None:
    """A decoder like GPT-2 with random weights: ids and a cache of keys and values of any length."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, mask: Any, key: Any, value: Any) -> Any:
            q, k, v = (t.view(1, -1, width // HEAD, HEAD).transpose(1, 2) for t in self.three(self.before(x)).split(width, 2))
            k, v = torch.cat([key, k], 2), torch.cat([value, v], 2)
            weights = (q @ k.transpose(-1, -2) / HEAD**0.5 + mask).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(1, -1, width))
            return x + self.down(nn.functional.gelu(self.up(self.between(x)), approximate="tanh")), k, v

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(PLACES, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))

        def forward(self, ids: Any, *past: Any) -> Any:
            before, now = past[0].shape[2], ids.shape[1]
            x = self.words(ids) + self.places.weight[before : before + now]
            mask, kept = torch.ones(PLACES, PLACES).triu(1)[before : before + now, : before + now] * -1e9, []
            for number, block in enumerate(self.blocks):
                x, *cache = block(x, mask, *past[2 * number : 2 * number + 2])
                kept += cache
            return x @ self.words.weight.T, *kept

    torch.manual_seed(0)
    caches = [f"past.{number}" for number in range(2 * layers)]
    feeds = (torch.zeros(1, 3, dtype=torch.long), *(torch.zeros(1, width // HEAD, 5, HEAD) for _ in caches))
    axes = {"ids": {1: "now"}, **{name: {2: "before"} for name in caches}}
    names = {"input_names": ["ids", *caches], "output_names": ["logits", *(f"next.{name}" for name in caches)], "dynamic_axes": axes}
    torch.onnx.export(Decoder().eval(), feeds, str(path), dynamo=False, opset_version=17, **names)


def generated(run: Run, layers: int, width: int, tokens: int) -> Iterator[float]:
    """Milliseconds of the prompt and of each token, always the most probable one."""
    ids = np.arange(PROMPT)[None]
    caches = [np.zeros((1, width // HEAD, 0, HEAD), np.float32)] * (2 * layers)
    for _ in range(tokens):
        feeds: Feeds = {"ids": ids, **{f"past.{number}": cache for number, cache in enumerate(caches)}}
        start = time.perf_counter()
        logits, *caches = run(None, feeds)
        yield (time.perf_counter() - start) * 1e3
        ids = logits[:, -1:].argmax(-1)


def sized(session: InferenceSession, size: int) -> Feeds:
    """Feeds whose open sizes are `size`, but for the first one of each input, the batch."""
    feeds: Feeds = {}
    for each in session.get_inputs():
        shape = [known if isinstance(known, int) else 1 if axis == 0 else size for axis, known in enumerate(each.shape)]
        feeds[each.name] = np.ones(shape, np.float32 if each.type == "tensor(float)" else np.int64)
    return feeds


def fed(run: Run, feeds: Sequence[Feeds]) -> Iterator[float]:
    """Milliseconds of each run."""
    for each in feeds:
        start = time.perf_counter()
        run(None, each)
        yield (time.perf_counter() - start) * 1e3


def report(name: str, measure: Callable[[], Iterator[float]], memory: Callable[[], float]) -> None:
    """Print what new sizes cost, and the same sizes in a second turn."""
    before = memory()
    new, again = (np.array(list(measure())) for _ in range(2))
    first = " ".join(f"{each:.1f}" for each in new[:3])
    taken = memory() - before
    print(f"{name:>22}: first {first} ms, then new sizes {_quartiles(new[3:])} ms, again {_quartiles(again[3:])} ms, {taken:.0f} MB")


def _quartiles(values: np.ndarray) -> str:
    low, middle = np.percentile(values, (25, 50))
    return f"{middle:.2f} (lower quartile {low:.2f})"


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help=f"a multiple of {HEAD}")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--model", type=Path, help="an ONNX file with open sizes, instead of the decoder")
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 20, 23, 31, 37, 12])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile-all", action="store_true", help="also with a program compiled for every shape")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or Path(folder) / "decoder.onnx"
        if arguments.model is None:
            export_decoder(path, arguments.layers, arguments.width)
        ours = InferenceSession(path, num_threads=arguments.threads)
        runs: dict[str, Run] = {"AnyCANN": ours.run, "ONNX Runtime": _peer(path, arguments.threads)}
        if arguments.compile_all:
            options = SessionOptions(num_threads=arguments.threads, switched_off=frozenset({"open sizes"}))
            runs["every shape compiled"] = InferenceSession(path, options).run
        feeds = [sized(ours, size) for size in arguments.sizes] if arguments.model else []
        for name, run in runs.items():
            if arguments.model:
                report(name, lambda run=run: fed(run, feeds), _resident_mb)  # type: ignore[misc]
            else:
                measure = lambda run=run: generated(run, arguments.layers, arguments.width, arguments.tokens)  # noqa: E731
                report(name, measure, _resident_mb)


def _peer(path: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    run: Run = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run
    return run


if __name__ == "__main__":
    main()
