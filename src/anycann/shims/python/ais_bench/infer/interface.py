"""`from ais_bench.infer.interface import InferSession`."""

from anycann.tools.ais_bench.interface import InferSession, MemorySummary
from anycann.tools.ais_bench.several_devices import MultiDeviceSession

__all__ = ["InferSession", "MemorySummary", "MultiDeviceSession"]
