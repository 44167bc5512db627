"""The GE graph: an `onnx_ir` model, what each operator is, and what it means."""
