"""Small offline models, made by hand, for the tests of the file format."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from anycann.om.constants import ConstantPool
from anycann.om.metadata import specs_to_json
from anycann.om.model import OfflineModel, Region, input_key
from anycann.om.plan import Buffer, HostStep, Location, NativeStep, Program, RegionStep, Task, TensorSpec

TARGET = "x86_64-unknown-linux-gnu|x86-64-v3|+avx2|8"
WEIGHTS = np.arange(3000, dtype=np.float32).reshape(30, 100)
SYMBOLS: Mapping[str, bytes] = {"add_1": b"\x7fELF add" * 40, "mul_2": b"\x7fELF mul" * 30}


def program(batch: int, weights: Buffer) -> Program:
    """y = weights applied to x on two kernels, then a host node and a region."""
    x, y = TensorSpec("x", "float32", (batch, 100)), TensorSpec("y", "float32", (batch, 30))
    hidden = Buffer("arena", 0, batch * 400)
    tasks = (
        Task("add_1", (Buffer("input", 0, batch * 400, 0), weights, hidden), batch, 64, ("first",), ("Add",), ("h",), 100 * batch),
        Task("mul_2", (hidden, Buffer("output", 0, batch * 120, 0)), 1, 0, ("second",), ("Mul",), ("y",)),
    )
    steps = (
        NativeStep(tasks),
        HostStep(b"\x00\xffnode", 26, "odd", "Unique", ("h", ""), ("u",)),
        RegionStep(
            "if", "choice", ("then", "else"), ("u",), (("h",), ()), ("r",), {"axis": -1, "scale": (0.5, float("inf")), "raw": b"\x80"}
        ),
    )
    values = {"h": Location(replace(x, name="h"), hidden), "y": Location(y, Buffer("output", 0, batch * 120, 0))}
    return Program((x,), (y,), batch * 448, steps, values)


def small_model(constants: ConstantPool | None = None) -> OfflineModel:
    """Two gears, two regions, two kernels for one target."""
    pool = ConstantPool() if constants is None else constants
    weights = pool.add(WEIGHTS)
    programs = {input_key(p.inputs): p for p in (program(1, weights), program(4, weights))}
    empty = Program((), (), 0, (), {})
    return OfflineModel(
        metadata={
            "name": "small ✓",
            "producer": "anycann 0.1.0",
            "soc_version": "host",
            "precision": "must_keep_origin_dtype",
            "atc_arguments": {"framework": "5"},
            "inputs": specs_to_json((TensorSpec("x", "float32", ("batch", 100)),)),
            "outputs": specs_to_json((TensorSpec("y", "float32", ("batch", 30)),)),
            "gears": [{"key": key} for key in programs],
        },
        graph=b"\x08\x0agraph",
        constants=pool if constants is not None else pool.finish(),
        programs=programs,
        regions={"then": Region(b"then graph", {"": empty}), "else": Region(b"else graph")},
        code={TARGET: SYMBOLS},
    )
