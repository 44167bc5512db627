"""`from ais_bench.infer.interface import InferSession`."""

from anycann.tools.ais_bench.interface import InferSession, MemorySummary, MultiDeviceSession

__all__ = ["InferSession", "MemorySummary", "MultiDeviceSession"]
