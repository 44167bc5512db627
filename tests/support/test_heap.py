"""Free memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import gc
from pathlib import Path
import numpy as np
from anycann.support.heap import give_back

def resident_kib():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))

class Node:
    pass

gc.disable()  # nothing is collected before it is to be
kept = []
for _ in range(300):  # each below the size that the C library maps by itself, with something that stays behind it
    node = Node()
    node.itself, node.data, behind = node, np.ones(12_000), np.ones(10)
    kept.append(behind)
del node
before = resident_kib()
give_back()
print(before - resident_kib())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_what_cycles_held_leaves_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20 * 1024  # of 28 MB
