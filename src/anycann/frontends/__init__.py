"""Foreign graphs in: each front end gives an `onnx_ir` model of one opset, with source names on every node."""
