"""`torch_npu.testing.testcase`, by AnyCANN."""

from anycann.adapters.torch.testing.case import TestCase, run_tests

__all__ = ["TestCase", "run_tests"]
