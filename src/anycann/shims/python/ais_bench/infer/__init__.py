"""ais_bench.infer."""
