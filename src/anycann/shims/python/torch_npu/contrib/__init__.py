"""torch_npu.contrib, by AnyCANN."""
