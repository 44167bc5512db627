"""The optimizers of torch_npu."""

from anycann.adapters.torch.optim import *  # noqa: F403
from anycann.adapters.torch.optim import __all__  # noqa: F401
