"""`from torch_npu.utils.profiler import Profile`."""

from anycann.adapters.torch.utils.step_profile import Profile

__all__ = ["Profile"]
