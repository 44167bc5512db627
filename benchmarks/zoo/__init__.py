"""Published models that the tests and benchmarks run: where they come from, and real inputs for them."""
