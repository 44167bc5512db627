"""ais_bench.infer.common."""
