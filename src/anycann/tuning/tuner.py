"""The tuner: rounds of proposing, compiling and measuring for all tasks, then the best of each measured once more beside the default."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
import math
import random
import time

from anycann.codegen.kernel_cache import KernelCache, compile_kernels
from anycann.codegen.space import Point
from anycann.codegen.tail import Generated
from anycann.support.errors import AnyCANNError, InternalError
from anycann.support.logging import get_logger
from anycann.support.processors import available_processors
from anycann.support.records import dataclass
from anycann.tuning.cost_model import CostModel
from anycann.tuning.identity import key_of
from anycann.tuning.journal import BETTER, Journal, Line, candidates_since_better
from anycann.tuning.measuring import Candidate, Job, Measurer, Measuring, Timing
from anycann.tuning.operands import inputs_of, outputs_of
from anycann.tuning.search import propose, searches
from anycann.tuning.study import Key, Study
from anycann.tuning.task import TuningTask

BATCH = 8  # candidates of a task in one round
AT_ONCE = 4  # tasks whose candidates are compiled together
WORTHWHILE = 0.95  # a ratio that is no noise, and that the model will see
FINALISTS, CONFIRMATIONS = 3, 2
LEAST_SECONDS = 1e-6


@dataclass(frozen=True)
class TuningOptions:
    """mode: "RL", "GA" or both. candidates: most for each task. seconds: the time budget. threads: that kernels are measured with."""

    mode: str = "RL,GA"
    candidates: int = 48
    seconds: float = math.inf
    threads: int = field(default_factory=available_processors)
    workers: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What tuning a task came to. before, after: seconds of a run with the default and with `point`, measured in turn.

    finished: the search ended by itself, so that another one would find no more.
    """

    task: TuningTask
    point: Point
    before: float
    after: float
    tried: int
    lost: int
    finished: bool = True

    @property
    def improved(self) -> bool:
        return self.after < self.before

    @property
    def speedup(self) -> float:
        """Time before / time after; 1 if the default stays."""
        return self.before / self.after if self.after else 1.0


Progress = Callable[[str, int, int], None]  # what is done, candidates measured, at most so many


class Tuner:
    """Tunes `tasks`, writing every measurement into `journal` and going on from what it holds already."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        options: TuningOptions,
        journal: Journal,
        cache: KernelCache,
        progress: Progress | None = None,
        measuring: Callable[[], AbstractContextManager[Measuring]] = Measurer,
    ):
        self.options = options
        self.studies = {key_of(task.space): Study(task) for task in tasks}
        self._journal, self._cache, self._measuring = journal, cache, measuring
        self._progress = progress or (lambda text, done, total: None)
        self._searches = searches(options.mode)
        self._rng = random.Random(options.seed)
        self._models: dict[str, CostModel] = {}
        self._stale: dict[str, int] = {}  # rounds without a better point
        self._confirmed: dict[str, Outcome] = {}
        self.interrupted = False
        self._deadline = time.monotonic() + options.seconds
        self._remember()

    def run(self) -> list[Outcome]:
        """Search until the budget is used or nothing better is found. Ctrl-C ends it, and what was found is kept."""
        try:
            with self._measuring() as measurer:
                while (live := self._live()) and time.monotonic() < self._deadline:
                    for chunk in _chunks(live, AT_ONCE * measurer.places):
                        self._round(measurer, chunk)
                        if time.monotonic() > self._deadline:
                            break
                    self._confirm(measurer, self.studies.keys() - self._live())
                self._confirm(measurer, self.studies.keys())
        except KeyboardInterrupt:
            self.interrupted = True
            get_logger("tuning").warning("interrupted; what was found so far is kept")
        return self.outcomes()

    def outcomes(self) -> list[Outcome]:
        """One for each task that was measured; confirmed, or as it was measured last."""
        return [self._confirmed.get(key) or self._provisional(study) for key, study in self.studies.items() if len(study.ratios) > 1]

    def _remember(self) -> None:
        lines = [line for line in self._journal.lines() if (s := self.studies.get(line.task)) and line.point.keys() == set(s.names)]
        # Ratios are to the default of then; what the bank has learned since may be another one.
        unit = {line.task: line.ratio for line in lines if line.ratio and line.point == self.studies[line.task].task.default}
        for line in lines:
            study = self.studies[line.task]
            study.add(study.key(line.point), math.inf if line.ratio is None else line.ratio / unit.get(line.task, 1.0))
            study.seconds = line.default_seconds * unit.get(line.task, 1.0)
        self._stale = {key: candidates_since_better([line for line in lines if line.task == key]) // BATCH for key in self.studies}

    def _live(self) -> list[str]:
        """Tasks worth another round, those that take longest first."""
        live = [key for key in self.studies if self._is_live(key)]
        return sorted(live, key=lambda key: -_or_zero(self.studies[key].seconds))

    def _is_live(self, key: str) -> bool:
        """Whether another candidate may be measured; not of kernels whose launch takes as long as they do."""
        study = self.studies[key]
        return self._stale.get(key, 0) < 2 and len(study.ratios) <= self.options.candidates and not study.seconds < LEAST_SECONDS

    def _round(self, measurer: Measuring, keys: Sequence[str]) -> None:
        """Propose for each task, compile all, measure all."""
        batches = {}
        for key in keys:
            study = self.studies[key]
            model = self._model(study.space.family)
            count = min(BATCH, self.options.candidates + 1 - len(study.ratios))
            batches[key] = [study.default, *propose(study, model, self._searches, count, self._rng)]
        made = {key: _generated(self.studies[key], points) for key, points in batches.items()}
        best = {key: self.studies[key].best()[1] for key in made}
        self._measure(measurer, made, 9)
        for key, generated in made.items():
            improved = self.studies[key].best()[1] < BETTER * best[key]
            self._stale[key] = 0 if improved else self._stale.get(key, 0) + (2 if len(generated) < 2 else 1)
        self._say("searching")

    def _model(self, family: str) -> CostModel:
        model = self._models.setdefault(family, CostModel())
        model.fit(study for study in self.studies.values() if study.space.family == family)
        return model

    def _compile(self, kernels: Sequence[Generated]) -> dict[str, bytes]:
        texts = {g.kernel.symbol: g.kernel.ir for g in kernels}
        target = next(iter(self.studies.values())).space.target
        try:
            return compile_kernels(texts, target, self.options.workers, cache=self._cache)
        except InternalError as error:
            get_logger("tuning").info("a candidate was refused by the compiler: %s", error)
        found: dict[str, bytes] = {}
        for symbol, text in texts.items():
            try:
                found |= compile_kernels({symbol: text}, target, 1, cache=self._cache)
            except InternalError:
                continue
        return found

    def _measure(self, measurer: Measuring, made: dict[str, dict[Key, Generated]], rounds: int) -> dict[str, dict[Key, Timing]]:
        """Compile the candidates of each task, time them beside its default, and write it down."""
        code = self._compile([g for each in made.values() for g in each.values()])
        distinct = {key: _distinct(generated, code) for key, generated in made.items()}
        keys = [key for key, points in distinct.items() if points and points[0] == self.studies[key].default]
        jobs = [self._job(key, distinct[key], made[key], code, rounds) for key in keys]
        found = {}
        for number, timings in measurer.measure_all(jobs):
            key = keys[number]
            found[key] = dict(zip(distinct[key], timings, strict=True))
            self._write_down(key, made[key], found[key])
        return found

    def _job(self, key: str, points: Sequence[Key], generated: dict[Key, Generated], code: dict[str, bytes], rounds: int) -> Job:
        study = self.studies[key]
        return Job(
            tuple(candidate_of(generated[point], code) for point in points),
            inputs_of(study.task.recipe, study.task.constants),
            outputs_of(study.task.recipe),
            study.space.target,
            self.options.threads,
            rounds,
        )

    def _write_down(self, key: str, generated: dict[Key, Generated], timings: dict[Key, Timing]) -> None:
        """Every candidate's time into the study and the journal; points with the same kernel have the same time."""
        study, unasked = self.studies[key], timings[self.studies[key].default].seconds
        timed = {generated[point].kernel.symbol: timing for point, timing in timings.items()}
        lines = []
        for point, kernel in generated.items():
            timing = timed.get(kernel.kernel.symbol, Timing(problem="the compiler refused it"))
            ratio = timing.ratio(timings[study.default])
            study.add(point, ratio)
            told = ratio if math.isfinite(ratio) else None
            lines.append(Line(key, dict(study.point(point)), told, _or_zero(unasked), timing.problem))
        study.seconds = unasked
        self._journal.add(lines)

    def _confirm(self, measurer: Measuring, keys: Collection[str]) -> None:
        """The best points of each of these tasks again, longer, and the one that stays faster once more; else the default is kept."""
        ranked = {
            key: sorted((k for k, r in study.measured() if r < WORTHWHILE), key=lambda k: study.ratios[k])[:FINALISTS]
            for key, study in self.studies.items()
            if key in keys and key not in self._confirmed
        }
        for chunk in _chunks([key for key, points in ranked.items() if points], AT_ONCE * measurer.places):
            self._say("confirming")
            left = {key: ranked[key] for key in chunk}
            for _ in range(CONFIRMATIONS):
                made = {key: _generated(self.studies[key], [self.studies[key].default, *points]) for key, points in left.items()}
                for key, timings in self._measure(measurer, made, 21).items():
                    self._confirmed[key] = self._decided(self.studies[key], timings)
                promising = {key: self._confirmed[key] for key in left if key in self._confirmed and self._confirmed[key].improved}
                left = {key: [self.studies[key].key(outcome.point)] for key, outcome in promising.items()}

    def _decided(self, study: Study, timings: dict[Key, Timing]) -> Outcome:
        before = timings[study.default]
        best = min(timings, key=lambda point: timings[point].ratio(before))
        ratio = timings[best].ratio(before)
        return self._outcome(study, *((best, ratio) if ratio < WORTHWHILE else (study.default, 1.0)), _or_zero(before.seconds))

    def _provisional(self, study: Study) -> Outcome:
        best, ratio = study.best()
        chosen = (best, ratio) if ratio < WORTHWHILE else (study.default, 1.0)
        return replace(self._outcome(study, *chosen, _or_zero(study.seconds)), finished=not self._is_live(key_of(study.space)))

    def _outcome(self, study: Study, chosen: Key, ratio: float, before: float) -> Outcome:
        lost = sum(not math.isfinite(ratio) for ratio in study.ratios.values())
        return Outcome(study.task, study.point(chosen), before, before * ratio, len(study.ratios) - 1, lost)

    def _say(self, text: str) -> None:
        done = sum(len(study.ratios) - 1 for study in self.studies.values())
        self._progress(text, done, self.options.candidates * len(self.studies))


def _generated(study: Study, points: Sequence[Key]) -> dict[Key, Generated]:
    """The kernels of points; one that its generator refuses is left out."""
    found = {}
    for point in points:
        try:
            found[point] = study.task.generate(study.point(point))
        except AnyCANNError as error:
            get_logger("tuning").info("candidate %s was refused: %s", study.point(point), error)
    return found


def _distinct(generated: dict[Key, Generated], code: dict[str, bytes]) -> list[Key]:
    """The points whose kernels were compiled, one for each kernel."""
    unique: dict[str, Key] = {}
    for point, kernel in generated.items():
        if kernel.kernel.symbol in code:
            unique.setdefault(kernel.kernel.symbol, point)
    return list(unique.values())


def candidate_of(generated: Generated, code: Mapping[str, bytes]) -> Candidate:
    """A kernel with its object code, ready to be measured."""
    kernel = generated.kernel
    packed = {p.name: p.array for p in generated.packed}
    return Candidate(kernel.symbol, code[kernel.symbol], kernel.arguments, kernel.tasks, kernel.scratch_bytes, packed)


def _chunks(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for first in range(0, len(keys), size):
        yield keys[first : first + size]


def _or_zero(number: float) -> float:
    return number if math.isfinite(number) else 0.0
