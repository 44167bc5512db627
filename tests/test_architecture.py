"""Imports go only along the arrows of docs/map.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "anycann"
EVERYTHING = frozenset({"*"})

# package -> what it may import besides itself and the standard library's like
MAY_IMPORT: dict[str, frozenset[str]] = {
    "support": frozenset(),
    "target": frozenset({"support"}),
    "te": frozenset({"target", "support"}),
    "graph": frozenset({"te", "support"}),
    # om: single operators are data there, which their models carry
    "frontends": frozenset({"graph", "om", "te", "support"}),
    "passes": frozenset({"graph", "te", "support"}),
    "codegen": frozenset({"te", "target", "support"}),
    "om": frozenset({"support"}),
    # the loader takes objects as codegen.objects makes them; AiCpu steps carry ONNX nodes
    "runtime": frozenset({"om", "codegen", "target", "support"}),
    "assembly": frozenset({"passes", "graph", "codegen", "om", "te", "target", "support"}),
    # measuring runs kernels; compiling only asks its knowledge banks
    "tuning": frozenset({"runtime", "codegen", "te", "target", "support"}),
    "compiler": frozenset({"assembly", "frontends", "passes", "graph", "tuning", "codegen", "om", "te", "target", "support"}),
    "single_operator": frozenset({"compiler", "frontends", "om"}),
    "just_in_time": frozenset({"compiler", "assembly", "frontends", "passes", "graph", "tuning", "codegen", "om", "target", "support"}),
    "host_regions": frozenset({"passes", "graph", "runtime", "om", "support"}),
    "open_programs": frozenset({"just_in_time", "graph", "runtime", "om", "target", "support"}),
    # the compiler only when a program is missing: an offline model runs without it
    "model_programs": frozenset(
        {"just_in_time", "host_regions", "open_programs", "assembly", "graph", "runtime", "om", "target", "support"}
    ),
    "session": frozenset({"model_programs", "just_in_time", "assembly", "runtime", "om", "support"}),
    "explain": frozenset({"compiler", "assembly", "passes", "om", "te", "support"}),
    "aoe": frozenset({"tuning", "session", "compiler", "assembly", "codegen", "om", "runtime", "target", "support"}),
    "onnx_backend": frozenset({"session", "frontends", "graph", "support"}),
    # picture kernels are compiled like the others
    "picture_input": frozenset({"frontends", "te", "support"}),
    "media": frozenset({"runtime", "codegen", "target", "support"}),
    "collective": frozenset({"support"}),
    "acl": frozenset({"media", "single_operator", "picture_input", "model_programs", "runtime", "om", "target", "support"}),
    "adapters": frozenset({"model_programs", "frontends", "collective", "runtime", "codegen", "om", "target", "support"}),
    "tools": EVERYTHING,
    "shims": EVERYTHING,
    "__init__": EVERYTHING,
}


def test_imports_go_only_along_the_arrows() -> None:
    wrong = [violation for path in sorted(SOURCE.rglob("*.py")) for violation in _violations(path)]
    assert not wrong, "\n".join(wrong)


def test_every_package_is_in_the_table() -> None:
    entries = [path.name for path in SOURCE.iterdir() if not path.name.startswith(".") and path.name not in ("__pycache__", "py.typed")]
    packages = {name.removesuffix(".py") for name in entries}
    assert packages == set(MAY_IMPORT)


def _violations(path: Path) -> Iterator[str]:
    package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    allowed = MAY_IMPORT[package] | {package}
    for line, imported in _imports(path):
        if allowed != EVERYTHING | {package} and imported not in allowed:
            yield f"{path.relative_to(SOURCE.parent)}:{line} imports anycann.{imported}; {package} may import {', '.join(sorted(allowed))}"


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and package of every import of ours, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "anycann":
            names = [f"anycann.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.startswith("anycann.") and name != "anycann.__version__":
                yield node.lineno, name.split(".")[1]
