"""AscendCL for Python: the names, handles and return codes of pyACL, on the engine."""
