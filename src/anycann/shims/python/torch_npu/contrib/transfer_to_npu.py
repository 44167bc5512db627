"""`from torch_npu.contrib import transfer_to_npu`: importing it is what does it."""

from anycann.adapters.torch.transfer import transfer
import torch_npu

transfer(torch_npu)
