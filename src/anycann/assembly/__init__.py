"""A graph and the shapes of its inputs in, a program and its kernels out: every stage between the front end and the file."""

from anycann.assembly.compiled import Apart, Compiled, NodeReport
from anycann.assembly.graph_compiler import GraphCompiler
from anycann.assembly.known_regions import KnownRegions

__all__ = ["Apart", "Compiled", "GraphCompiler", "KnownRegions", "NodeReport"]
