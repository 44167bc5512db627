"""Tuning on many machines: real Ray nodes, as processes of this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
import warnings

import pytest

from anycann.codegen.kernel_cache import KernelCache
from anycann.support.errors import UsageError
from anycann.target.target import NAMED, host
from anycann.tuning.cluster import on_cluster
from anycann.tuning.journal import Journal
from anycann.tuning.tuner import Tuner, TuningOptions
from tests.tuning.cases import convolution_task, matmul_task
from tests.tuning.test_tuner import job_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray leaves sockets to the collector


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """Two nodes of a Ray cluster."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("ray")
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def test_two_machines_tune_together(machines: Any, tmp_path: Path, cache: KernelCache) -> None:
    tasks = [convolution_task(size=20), convolution_task(size=24), matmul_task()]
    options = TuningOptions(candidates=8, threads=1, workers=1)
    journal = Journal(tmp_path / "journal")
    with on_cluster(machines.address, host(), 1) as cluster:
        assert cluster.places == 2
    outcomes = Tuner(tasks, options, journal, cache, measuring=lambda: on_cluster(machines.address, host(), 1)).run()
    assert len(outcomes) == 3
    assert all(0 < outcome.after <= outcome.before for outcome in outcomes)
    assert len({line.task for line in journal.lines()}) == 3


def test_machines_of_another_processor_do_not_take_part(machines: Any) -> None:
    other = next(target for target in NAMED.values() if target != host())
    with pytest.raises(UsageError, match="its machine is"), on_cluster(machines.address, other, 1):
        pass


def test_an_address_without_a_cluster_is_refused() -> None:
    pytest.importorskip("ray")
    with pytest.raises(UsageError, match=r"no Ray cluster answers at '127\.0\.0\.1:9'"), on_cluster("127.0.0.1:9", host(), 1):
        pass


def test_the_jobs_of_a_lost_machine_are_measured_by_another(machines: Any, cache: KernelCache) -> None:
    jobs = [job_of(convolution_task(size=size), cache) for size in (20, 22)] * 40  # long enough to be lost in the middle
    with on_cluster(machines.address, host(), 1) as cluster:
        assert cluster.places == 2
        measured = cluster.measure_all(jobs)
        done = [next(measured)]
        machines.remove_node(sorted(machines.worker_nodes, key=str)[0], allow_graceful=False)
        done += measured
        assert sorted(number for number, _ in done) == list(range(len(jobs)))
        assert all(timing.seconds < 60 for _, timings in done for timing in timings)
        assert cluster.places == 1
