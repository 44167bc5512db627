"""Tensor expressions: what a kernel computes, before anyone decides how."""
