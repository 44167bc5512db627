"""Kernels for processors that this machine is not, run instruction by instruction: `pytest --emulate sapphirerapids`."""
