"""What tests written for torch_npu import: a test case with tolerances, inputs for both devices, and decorators."""
