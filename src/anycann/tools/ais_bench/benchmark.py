"""One process of ais_bench: a session, its warm-up, every sample, the results and the summary."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
import json
import os
from pathlib import Path
import time

import numpy as np

from anycann.acl.initialise import read_config
from anycann.runtime.dump.settings import parse_dump
from anycann.support.errors import UsageError, context
from anycann.tools.ais_bench.files import PURE, Sample, read_inputs, samples_of, split_output, write_output
from anycann.tools.ais_bench.interface import InferSession, MemorySummary
from anycann.tools.ais_bench.shapes import parse_shapes
from anycann.tools.ais_bench.summary import Summary, logger
from anycann.tools.ais_bench.tensors import Tensor

_DUMPED = "dump"  # the folder below --output


def run_benchmark(options: Namespace, arguments: list[str]) -> float:
    """Run everything, print and write the summary; answers with the throughput."""
    session = InferSession(options.device[0], options.model, configuration(options), options.debug, options.loop)
    try:
        return Benchmark(session, options, arguments).run()
    finally:
        session.finalize()


def configuration(options: Namespace) -> str | None:
    """The file for acl.init: the one that is named, or one written for --profiler or --dump."""
    if options.acl_json_path or not (options.profiler or options.dump):
        return options.acl_json_path  # type: ignore[no-any-return]
    place = Path(options.output) / ("profiler" if options.profiler else _DUMPED)
    place.mkdir(parents=True, exist_ok=True)
    path = Path(options.output) / "acl.json"
    path.write_text(json.dumps(_profile(place) if options.profiler else _dump(place, options.model), indent=4))
    return str(path)


def dump_folder(options: Namespace) -> Path:
    """Where --dump or the file for acl.init dumps. Raises UsageError for a file that does not say so."""
    if not options.acl_json_path:
        return Path(options.output) / _DUMPED
    with context(f"while looking for the dump in {options.acl_json_path}"):
        return Path(parse_dump(read_config(options.acl_json_path).get("dump")).path)


def _profile(place: Path) -> dict[str, object]:
    return {"profiler": {"switch": "on", "aicpu": "on", "output": str(place), "aic_metrics": ""}}


def _dump(place: Path, model: str) -> dict[str, object]:
    return {"dump": {"dump_list": [{"model_name": Path(model).stem}], "dump_mode": "all", "dump_path": str(place), "dump_op_switch": "off"}}


class Benchmark:
    """The runs of one session."""

    def __init__(self, session: InferSession, options: Namespace, arguments: list[str]):
        self._session, self._options = session, options
        self._summary = Summary(arguments)
        self._by_file = options.auto_set_dymshape_mode or options.auto_set_dymdims_mode
        self._choose_shapes()
        self._batch = options.batchsize or self._batch_of_model()
        if not options.batchsize:
            logger.info("try get model batchsize:%s", self._batch)

    def run(self) -> float:
        """Warm up, run, print; answers with the throughput."""
        self._folder = self._output_folder()
        samples = samples_of(self._options.input, self._session.get_inputs(), combine=not self._by_file)
        if self._options.run_mode == "files" and samples[0].files[0][0] == PURE:
            raise UsageError("--run_mode files needs --input")
        self._warm_up(samples[0])
        for number, (sample, outputs) in enumerate(self._runs(samples)):
            self._keep(number, sample, outputs)
        return self._report()

    # ---- before
    def _choose_shapes(self) -> None:
        options, session = self._options, self._session
        if options.dymBatch:
            session.set_dynamic_batchsize(options.dymBatch)
        elif options.dymHW:
            session.set_dynamic_hw(*_height_and_width(options.dymHW))
        elif options.dymDims:
            session.set_dynamic_dims(options.dymDims)
        elif options.dymShape:
            session.set_dynamic_shape(options.dymShape)
        elif not self._by_file:
            session.set_staticbatch()
        if options.aipp_config:
            session.load_aipp_config_file(options.aipp_config)
        if options.outputSize:
            session.set_custom_outsize([int(size) for size in options.outputSize.split(",")])

    def _batch_of_model(self) -> int:
        first = self._session.get_inputs()[0]
        text = self._options.dymDims or self._options.dymShape
        shape = parse_shapes(text)[first.name] if text else first.shape
        return self._options.dymBatch or (shape[0] if shape else 1)

    def _output_folder(self) -> Path | None:
        if not self._options.output:
            return None
        folder = Path(self._options.output) / (self._options.output_dirname or time.strftime("%Y_%m_%d-%H_%M_%S"))
        folder.mkdir(parents=True, exist_ok=True)
        logger.info("output path:%s", folder)
        return folder

    def _warm_up(self, sample: Sample) -> None:
        feeds = self._feeds(sample)
        self._session.set_loop_count(1)
        for _ in range(self._options.warmup_count):
            self._infer(feeds)
        self._session.set_loop_count(self._options.loop)
        self._session.reset_sumaryinfo()
        self._summary.reset()
        MemorySummary.reset()
        logger.info("warm up %s done", self._options.warmup_count)

    # ---- runs
    def _runs(self, samples: Sequence[Sample]) -> Iterator[tuple[Sample, list[Tensor]]]:
        if self._options.run_mode == "full":
            feeds_of_all = [self._on_device(self._feeds(sample)) for sample in samples]
            done = [self._infer(feeds) for feeds in feeds_of_all]
            yield from zip(samples, done, strict=True)
        elif self._options.pipeline:
            yield from self._side_by_side(samples)
        else:
            for sample in samples:
                feeds = self._feeds(sample)
                yield sample, self._infer(self._on_device(feeds) if self._options.run_mode != "array" else feeds)

    def _side_by_side(self, samples: Sequence[Sample]) -> Iterator[tuple[Sample, list[Tensor]]]:
        """The next samples are read while one runs; at most so many wait as there are threads, and one."""
        with ThreadPoolExecutor(self._options.threads) as readers:
            waiting: list[tuple[Sample, Future[list[np.ndarray]]]] = []
            for sample in samples:
                waiting.append((sample, readers.submit(self._feeds, sample)))
                if len(waiting) > self._options.threads:
                    first, feeds = waiting.pop(0)
                    yield first, self._infer(feeds.result())
            for sample, feeds in waiting:
                yield sample, self._infer(feeds.result())

    def _feeds(self, sample: Sample) -> list[np.ndarray]:
        return read_inputs(sample, self._session.get_inputs(), self._options.pure_data_type)

    def _on_device(self, feeds: Sequence[np.ndarray]) -> Sequence[Tensor]:
        return [self._session.create_tensor_from_arrays_to_device(feed) for feed in feeds]

    def _infer(self, feeds: Sequence[np.ndarray | Tensor]) -> list[Tensor]:
        if self._by_file:
            names = [description.name for description in self._session.get_inputs()]
            arrays = [feed if isinstance(feed, np.ndarray) else feed.data for feed in feeds]
            shapes = [self._session.session.shape_behind(number, array) for number, array in enumerate(arrays)]
            text = ";".join(f"{name}:{','.join(map(str, shape))}" for name, shape in zip(names, shapes, strict=True))
            choose = self._session.set_dynamic_shape if self._options.auto_set_dymshape_mode else self._session.set_dynamic_dims
            choose(text)
            self._summary.add_batchsize(next(iter(feeds[0].shape)))
        return self._session.run(feeds)

    # ---- after
    def _keep(self, number: int, sample: Sample, outputs: Sequence[Tensor]) -> None:
        """Bring the outputs of a run to the host, and write those of each sample to a file of their own."""
        self._session.convert_tensors_to_host(outputs)
        if self._folder is None:
            return
        for index, output in enumerate(outputs):
            parts = split_output(np.array(output), sample.per_run, self._options.output_batchsize_axis)
            for place, part in enumerate(parts):
                names = sample.names(place)
                if names is not None:
                    path = self._folder / f"{Path(names[0]).name.split('.')[0]}_{index}.{self._options.outfmt.lower()}"
                    write_output(path, part)
                    self._summary.add_sample_id_infiles(number * sample.per_run + place, names)
                    self._summary.append_sample_id_outfile(number * sample.per_run + place, str(path))

    def _report(self) -> float:
        summary = self._summary
        summary.npu_compute_time_list = self._session.sumary().exec_time_list
        summary.h2d_latency_list, summary.d2h_latency_list = MemorySummary.get_H2D_time_list(), MemorySummary.get_D2H_time_list()
        summary.report(self._batch, None if self._folder is None else os.fspath(self._folder), self._options.display_all_summary)
        return summary.throughput(self._batch)


def _height_and_width(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise UsageError(f"--dymHW is {text!r}; accepted: height,width")
    return int(parts[0]), int(parts[1])
