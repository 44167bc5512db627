"""torch_npu.contrib.module.channel_shuffle, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import ChannelShuffle

__all__ = ["ChannelShuffle"]
