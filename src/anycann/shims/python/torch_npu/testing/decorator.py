"""`torch_npu.testing.decorator`, by AnyCANN."""

from anycann.adapters.torch.testing.decorators import Dtypes, Formats, instantiate_tests

__all__ = ["Dtypes", "Formats", "instantiate_tests"]
