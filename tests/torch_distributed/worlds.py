"""Starts a program on several ranks, each a process of its own, and collects what each check of it said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import contextlib
import json
import os
from pathlib import Path
import random
import socket
import subprocess
import sys
import traceback
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
RESULT = "RESULT "


def environment(**variables: object) -> dict[str, str]:
    """This process's environment without ranks, with our modules to be found, and `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "HCCL_"))}
    path = os.pathsep.join(map(str, (SOURCE, SOURCE / "anycann" / "shims" / "python", ROOT)))
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in variables.items()}}


def free_port() -> int:
    """A port that nobody listens at now, and that no system gives to a connection that asks for any."""
    for port in random.Random().sample(range(20_000, 32_000), 1000):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise OSError("none of 1000 ports is free")


def torch_variables(rank: int, size: int, port: int) -> dict[str, object]:
    """What torchrun would set."""
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def ascend_variables(rank: int, size: int, port: int) -> dict[str, object]:
    """What scripts for Ascend export."""
    return {"RANK_ID": rank, "RANK_SIZE": size, "MASTER_PORT": port}


def run(
    program: str,
    size: int,
    *arguments: str,
    variables: Callable[[int, int, int], Mapping[str, object]] = torch_variables,
    timeout_seconds: float = 600,
    **more: object,
) -> list[subprocess.CompletedProcess[str]]:
    """Run the module `program` of this folder on `size` ranks; the outputs by rank. What still runs after the timeout is ended."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", f"tests.torch_distributed.programs.{program}", *arguments]
    processes = [
        subprocess.Popen(
            command,
            env=environment(**variables(rank, size, port), **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=timeout_seconds)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [subprocess.CompletedProcess(command, process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def results(done: list[subprocess.CompletedProcess[str]]) -> list[dict[str, str]]:
    """What each check said, for each rank; the whole output where a rank said nothing."""
    said = []
    for rank, process in enumerate(done):
        lines = [line for line in process.stdout.splitlines() if line.startswith(RESULT)]
        assert lines, f"rank {rank} ended with {process.returncode}:\n{process.stdout[-4000:]}"
        said.append(json.loads(lines[-1][len(RESULT) :]))
    return said


def checks(module: Mapping[str, Any]) -> dict[str, Callable[[], None]]:
    """The functions of `module` whose names begin with check_, by the rest of their names."""
    return {name.removeprefix("check_"): value for name, value in module.items() if name.startswith("check_")}


def main(*modules: Mapping[str, Any]) -> None:
    """Join the world, run each check of the modules, print what came of it. All ranks run all checks in the same order."""
    import torch
    import torch.distributed as dist

    device = torch.device("npu", int(os.environ["LOCAL_RANK"]))
    torch.npu.set_device(device)
    dist.init_process_group("hccl", device_id=device)
    said = {}
    for name, check in (pair for module in modules for pair in checks(module).items()):
        assert name not in said, f"two checks are called {name}"
        try:
            check()
            said[name] = "ok"
        except Exception:
            said[name] = traceback.format_exc(limit=-4)
    print(RESULT + json.dumps(said), flush=True)
    dist.destroy_process_group()
