"""Gradient splitting: see hccl.split.api."""
