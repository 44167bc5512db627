"""One row for each engine, and opening all of them for a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anycann.tools.engines import Engine
from benchmarks.engines.job import PRECISIONS, Absent, Job, Precision
from benchmarks.engines.onnx_runtime import open_onnx_runtime
from benchmarks.engines.open_vino import open_openvino
from benchmarks.engines.ours import open_ours
from benchmarks.engines.torch_network import open_compiled, open_eager


@dataclass(frozen=True)
class Contender:
    """An engine: its name in results, its title in tables, the precisions it computes in here, and how it is opened."""

    name: str
    title: str
    open: Callable[[Job], Engine]
    precisions: tuple[Precision, ...] = PRECISIONS


OURS = Contender("anycann", "AnyCANN", open_ours)
PEERS = (
    Contender("onnxruntime", "ONNX Runtime", open_onnx_runtime, ("fp32", "int8")),
    Contender("openvino", "OpenVINO", open_openvino),
    Contender("torch", "torch eager", open_eager, ("fp32",)),
    Contender("torch.compile", "torch.compile", open_compiled, ("fp32",)),
)
TITLES = {contender.name: contender.title for contender in (OURS, *PEERS)}


def peers_of(precision: Precision, names: Sequence[str] = ()) -> list[Contender]:
    """The peers that compute in a precision: those called `names`, or all. Raises ValueError for an unknown name."""
    unknown = [name for name in names if name not in TITLES]
    if unknown:
        raise ValueError(f"engine {unknown[0]!r} is not on the list; accepted: {', '.join(peer.name for peer in PEERS)}")
    return [peer for peer in PEERS if precision in peer.precisions and (not names or peer.name in names)]


def open_peers(job: Job, names: Sequence[str] = ()) -> tuple[list[Engine], dict[str, str]]:
    """The peers that run the job, after one call each, and why the others do not, by name."""
    opened, absent = list[Engine](), dict[str, str]()
    for peer in peers_of(job.precision, names):
        try:
            engine = peer.open(job)
            engine.run(job.feeds)
        except Absent as reason:
            absent[peer.name] = str(reason)
        except Exception as failure:  # whatever a peer raises is its own affair, and no reason to measure nothing
            absent[peer.name] = f"{type(failure).__name__}: {_reason(str(failure))}"
        else:
            opened.append(engine)
    return opened, absent


def _reason(text: str) -> str:
    """The line that says most of a failure which may be pages long: the longest of the first ones."""
    return max((line.strip() for line in text.strip().splitlines()[:8]), key=len, default="no reason given")[:200]
