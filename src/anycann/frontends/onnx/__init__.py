"""ONNX models in: load (checked, weights memory-mapped), then upgrade to the one opset that is used inside."""
