"""`aoe_result_opat_*.json` and `aoe_result_sgat_*.json`: what a tuning came to, in the fields that Ascend's AOE writes."""

from __future__ import annotations

from collections.abc import Sequence
import json
from pathlib import Path

from anycann.support.files import write_whole
from anycann.support.records import dataclass

SUCCEEDED, UNCHANGED, INTERRUPTED = "tuning successful", "tuning successful, but no better result was found", "tuning incomplete"


@dataclass(frozen=True)
class Modified:
    """An operator whose entry in the knowledge bank was written. what: "Schedule", "Algorithm" or "Fusion". times in seconds of a run."""

    name: str
    op_type: str
    what: str
    before: float
    after: float
    update_mode: str  # "add" or "update"


@dataclass(frozen=True)
class Result:
    """A finished tuning. kind: "OPAT" or "SGAT". baseline, tuned: seconds of a run of the model."""

    kind: str
    model: str
    seconds: float
    baseline: float
    tuned: float
    status: str
    modified: tuple[Modified, ...]
    operators: int
    candidates: int
    lost: int
    interrupted: bool = False

    @property
    def improvement(self) -> str:
        """(before - after) / after, as Ascend counts."""
        return improvement(self.baseline, self.tuned)

    def to_json(self) -> list[dict[str, object]]:
        """The content of the file."""
        added = sum(m.update_mode == "add" for m in self.modified)
        return [
            {"basic": {"tuning_name": self.model, "tuning_time(s)": round(self.seconds, 2)}},
            {
                self.kind: {
                    "model_baseline_performance(ms)": round(self.baseline * 1e3, 4),
                    "model_performance_improvement": self.improvement,
                    "model_result_performance(ms)": round(self.tuned * 1e3, 4),
                    f"{self.kind.lower()}_tuning_result": self.status,
                    "repo_modified_operators": [_operator(m) for m in self.modified],
                    "repo_summary": {
                        "repo_add_num": added,
                        "repo_update_num": len(self.modified) - added,
                        "repo_unsatisfied_num": self.operators - len(self.modified),
                        "total_num": self.operators,
                        "candidate_num": self.candidates,
                        "lost_candidate_num": self.lost,
                    },
                }
            },
        ]


def _operator(modified: Modified) -> dict[str, object]:
    performance = {
        "performance_after_tune(us)": round(modified.after * 1e6, 3),
        "performance_before_tune(us)": round(modified.before * 1e6, 3),
        "performance_improvement": improvement(modified.before, modified.after),
        "update_mode": modified.update_mode,
    }
    return {"op_name": modified.name, "op_type": modified.op_type, "tune_performance": {modified.what: performance}}


def improvement(before: float, after: float) -> str:
    """`0.31%`: how much more often it runs in the same time."""
    return f"{(before - after) / after:.2%}" if after > 0 else "0.00%"


def write_result(path: Path, results: Sequence[Result]) -> None:
    """Write the file, whole or not at all. Raises DeviceError or UsageError."""
    content = [part for result in results for part in result.to_json()]
    write_whole(path, json.dumps(content, indent=2).encode())
