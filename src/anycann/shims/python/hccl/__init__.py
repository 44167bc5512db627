"""HCCL for Python, as CANN ships it."""
