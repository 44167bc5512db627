"""Operators by Ascend's names, as `atc --singleop` and acl.op know them, to ONNX graphs."""
