"""What `torch_npu.utils` has for programs."""
