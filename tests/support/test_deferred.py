"""What is deferred is imported when it is used, and nobody but the package that defers it can tell."""

from __future__ import annotations

import subprocess
import sys

import pytest


def _printed(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_atc_is_imported_without_symbolic_algebra_and_without_what_draws_tables() -> None:
    assert _printed("import sys, anycann.tools.atc_convert; print(*sorted({'onnx_ir', 'sympy', 'rich'} & set(sys.modules)))") == ["onnx_ir"]


def test_onnx_ir_computes_with_open_sizes_all_the_same() -> None:
    code = "import sys, anycann, onnx_ir; size = onnx_ir.SymbolicDim('n') + 1; print(size.value, 'sympy' in sys.modules)"
    assert _printed(code) == ["n", "+", "1", "True"]


def test_others_get_the_module_itself() -> None:
    code = "import anycann, onnx_ir, sympy, onnx_ir._symbolic_shapes as s; print(type(sympy).__name__, sympy.__name__, type(s).__name__)"
    assert _printed(code) == ["module", "sympy", "module"]


@pytest.mark.parametrize("first", ["sympy", "onnx_ir"])
def test_what_was_imported_before_stays_as_it_is(first: str) -> None:
    assert _printed(f"import {first}, sympy; before = sympy; import anycann.compiler, sympy; print(sympy is before)") == ["True"]


def test_a_stand_in_is_a_package_with_submodules(tmp_path: object) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import pathlib
pathlib.Path({str(tmp_path)!r}, "user.py").write_text("import heavy; import heavy.part; found = heavy.part.answer")
pathlib.Path({str(tmp_path)!r}, "heavy").mkdir()
pathlib.Path({str(tmp_path)!r}, "heavy", "__init__.py").write_text("print('loaded')")
pathlib.Path({str(tmp_path)!r}, "heavy", "part.py").write_text("answer = 42")
from anycann.support.deferred import defer
defer("user", "heavy")
import user
print(user.found, type(sys.modules["heavy"]).__name__, user.__file__.endswith("user.py"))
"""
    assert _printed(code) == ["loaded", "42", "module", "True"]


def test_a_package_that_is_not_there_is_still_an_import_error() -> None:
    code = """
from anycann.support.deferred import defer
defer("no_such_package_here", "sympy")
try:
    import no_such_package_here
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert _printed(code) == ["no_such_package_here"]


def test_a_command_imports_of_onnx_what_it_uses() -> None:
    rare = "{'onnx.helper', 'onnx.utils', 'onnx.serialization', 'google.protobuf.text_format', 'tarfile'}"
    code = f"import sys, anycann.tools.cli, anycann.tools.atc_convert; print(*sorted({rare} & set(sys.modules)))"
    assert _printed(code) == []
    code = """
import io, anycann.tools.cli, onnx, onnx.helper
graph = onnx.parser.parse_graph("g (float[2] x) => (float[2] y) { y = Relu(x) }")
model = onnx.shape_inference.infer_shapes(onnx.helper.make_model(graph))
text = onnx.serialization.registry.get("textproto").serialize_proto(model)
print(onnx.load(io.BytesIO(text), format="textproto") == model, onnx.utils.Extractor.__name__, type(onnx.helper).__name__)
"""
    assert _printed(code) == ["True", "Extractor", "module"]


def test_a_command_leaves_out_texts_of_numpys_help_and_schemas_of_operators_until_they_are_used() -> None:
    late = "{'numpy._core._add_newdocs', 'numpy._core._add_newdocs_scalars', 'onnx_ir.schemas'}"
    code = f"import sys, anycann.tools.cli, anycann.tools.atc_convert; print(*sorted({late} & set(sys.modules)))"
    assert _printed(code) == []
    assert _printed("import anycann.tools.cli, onnx_ir; print(onnx_ir.schemas.OpSignature.__name__)") == ["OpSignature"]
    assert _printed("import numpy, anycann.tools.cli; print(numpy.arange.__doc__[:6])") == ["arange"]
