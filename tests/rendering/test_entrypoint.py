"""`_air.py`: deterministic, valid Python of old and new versions, and free of the user's text."""

import ast
import os
from pathlib import Path

import pytest

from sgpu_decl.agent.errorfile import COLLATERAL
from sgpu_decl.rendering.entrypoint import render_air

GOLDEN = Path(__file__).parent / "golden" / "_air.py.txt"


def test_the_rendered_entrypoint_is_the_golden_one() -> None:
    text = render_air("0" * 64)
    if os.environ.get("SGPU_GOLDEN") == "write":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    assert text == render_air("0" * 64)


def test_it_is_python_from_3_10_on_and_does_nothing_when_imported() -> None:
    tree = ast.parse(render_air("a" * 64), feature_version=(3, 10))
    quiet = (ast.Expr, ast.Import, ast.Assign, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    assert all(isinstance(node, quiet) for node in tree.body[:-1])
    assert isinstance(tree.body[-1], ast.If)


def test_it_has_the_same_list_of_collateral_exceptions_as_the_agent() -> None:
    namespace: dict[str, object] = {"__name__": "air"}
    exec(compile(render_air("a" * 64), "_air.py", "exec"), namespace)
    assert namespace["COLLATERAL"] == COLLATERAL


@pytest.mark.parametrize("checksum", ["", "a" * 63, "A" * 64, 'x"; import os #'.ljust(64)])
def test_what_is_no_checksum_never_reaches_the_source(checksum: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        render_air(checksum)


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="windows"):
        render_air("a" * 64, "windows")
