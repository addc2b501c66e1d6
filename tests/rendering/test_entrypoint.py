"""The entrypoints of ranks: deterministic, Python of old versions, free of the user's text."""

import ast
import os
from pathlib import Path

import pytest

from sgpu_decl.agent.errorfile import COLLATERAL
from sgpu_decl.rendering.entrypoint import render_air, render_call, render_warm
from sgpu_decl.rendering.pools import HARMLESS

GOLDEN = Path(__file__).parent / "golden"
TEXTS = {
    "_air.py": lambda: render_air("0" * 64),
    "_call.py": render_call,
    "_warm.py": render_warm,
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_rendered_entrypoint_is_the_golden_one(name: str) -> None:
    text, golden = TEXTS[name](), GOLDEN / f"{name}.txt"
    if os.environ.get("SGPU_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()
    assert text == TEXTS[name]()


def test_every_pool_that_a_fork_may_meet_is_rendered_and_has_a_source() -> None:
    namespace: dict[str, object] = {"__name__": "_warm"}
    exec(compile(render_warm(), "_warm.py", "exec"), namespace)
    for pool in HARMLESS:
        known, name = (
            (namespace["LIBRARIES"], pool.library)
            if pool.library is not None
            else (namespace["THREADS"], pool.thread)
        )
        assert name in known  # type: ignore[operator]
        assert pool.source.startswith("https://")


def test_it_is_python_from_3_10_on_and_does_nothing_when_imported() -> None:
    ast.parse(render_call(), feature_version=(3, 10))
    ast.parse(render_warm(), feature_version=(3, 10))
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
