"""What converters build graphs of."""

from anycann.adapters.torch.torchair.ge import Cast, Clone, Const, DataType, Format, Tensor, TensorSpec, attr, custom_op

__all__ = ["Cast", "Clone", "Const", "DataType", "Format", "Tensor", "TensorSpec", "attr", "custom_op"]
