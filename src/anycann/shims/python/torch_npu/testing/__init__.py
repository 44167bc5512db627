"""`torch_npu.testing`, by AnyCANN."""
