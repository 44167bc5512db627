"""torch_npu.contrib.module.crossentropy, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import LabelSmoothingCrossEntropy

__all__ = ["LabelSmoothingCrossEntropy"]
