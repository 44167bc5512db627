"""TensorFlow's frozen graphs: GraphDef files to an `onnx_ir` model, without TensorFlow."""
