"""Measurements: `python -m benchmarks.models`, `python -m benchmarks.memory`."""
