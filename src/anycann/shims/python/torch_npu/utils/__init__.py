"""`torch_npu.utils`, by AnyCANN."""
