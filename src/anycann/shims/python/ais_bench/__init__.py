"""ais_bench, by AnyCANN: `python -m ais_bench` and `from ais_bench.infer.interface import InferSession`."""
