"""Loops to LLVM IR text, kernel generators, and IR text to object code."""
