"""A graph and the shapes of its inputs in, a program and its kernels out: every stage between the front end and the file."""

from anycann.assembly.compiled import Apart, Compiled, NodeReport
from anycann.assembly.graph_compiler import GraphCompiler, type_of
from anycann.assembly.graph_space import ASSEMBLY_SWITCHES, GRAPH_SWITCHES, GraphSpace
from anycann.assembly.kernels import Planned, Watch
from anycann.assembly.known_regions import KnownRegions

__all__ = [
    "ASSEMBLY_SWITCHES",
    "GRAPH_SWITCHES",
    "Apart",
    "Compiled",
    "GraphCompiler",
    "GraphSpace",
    "KnownRegions",
    "NodeReport",
    "Planned",
    "Watch",
    "type_of",
]
