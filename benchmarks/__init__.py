"""Measurements: models, layers, operators, convolutions, tuning, memory, peak and bandwidth, each `python -m benchmarks.<name>`."""
