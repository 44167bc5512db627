"""torch_npu.contrib.module.bidirectional_lstm, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import BiLSTM

__all__ = ["BiLSTM"]
