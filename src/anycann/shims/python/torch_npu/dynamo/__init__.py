"""`torch_npu.dynamo.torchair`, another name of torchair."""
