"""The entrypoint of a rank: deterministic, Python of old versions, free of the user's text."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.model.jsonable import Json
from sgpu_decl.rank.fork_safety import HARMLESS
from sgpu_decl.rendering.spec import CallSpec, Entry
from sgpu_decl.rendering.templates import air_diff, render_air
from tests.support import check_golden

GOLDEN = Path(__file__).parent / "golden/_air.py.txt"
SCRIPT = Entry(kind="script", path="train.py")


def test_the_rendered_entrypoint_is_the_golden_one() -> None:
    text = render_air("0" * 64, SCRIPT)
    check_golden(GOLDEN, text)
    assert text == render_air("0" * 64, SCRIPT)
    assert len(text.splitlines()) < 60


def test_every_pool_that_a_fork_may_meet_has_a_name_and_a_source() -> None:
    for pool in HARMLESS:
        assert (pool.thread is None) != (pool.library is None)
        assert pool.source.startswith("https://")


def test_it_is_python_from_3_10_on_and_does_nothing_when_imported() -> None:
    tree = ast.parse(render_air("a" * 64, SCRIPT), feature_version=(3, 10))
    assert all(isinstance(node, ast.Expr | ast.Import | ast.Assign) for node in tree.body[:-1])
    assert isinstance(tree.body[-1], ast.If)


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (Entry(kind="file_function", path="a/b.py", function="main"), "file_function a/b.py:main"),
        (Entry(kind="module_function", module="a.b", function="c"), "module_function a.b:c"),
        (Entry(kind="shell", shell='echo "'), "shell"),
        (replace(SCRIPT, path='"; import os; "'), "script"),
        (replace(SCRIPT, path="a\\"), "script"),
        (replace(SCRIPT, path="a\nb"), "script"),
        (replace(SCRIPT, path="é.py"), "script"),
        (
            Entry(
                kind="pickle",
                call=CallSpec(
                    name="f.<locals>.<lambda>", python="3.11", function_crc=0, inputs_crc=0
                ),
            ),
            "call f.<locals>.<lambda>",
        ),
    ],
)
def test_air_names_the_entry_if_its_name_is_plain(entry: Entry, shown: str) -> None:
    scope: dict[str, object] = {"__name__": "air"}
    exec(compile(render_air("a" * 64, entry), "_air.py", "exec"), scope)
    assert scope["ENTRY"] == shown


@pytest.mark.parametrize("checksum", ["", "a" * 63, "A" * 64, 'x"; import os #'.ljust(64)])
def test_what_is_no_checksum_never_reaches_the_source(checksum: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        render_air(checksum, SCRIPT)


def test_the_diff_of_two_configs_shows_what_the_ranks_run() -> None:
    script: dict[str, Json] = {"entrypoint": "train.py", "gpus": 2}
    assert air_diff(script, {**script, "gpus": 4}) == []
    assert air_diff(script, {"entrypoint": "train.py:main"}) == [
        '- ENTRY = "script train.py"',
        '+ ENTRY = "file_function train.py:main"',
    ]
    assert air_diff({"command": ["a"]}, {"command": "a | b"}) == [
        '- ENTRY = "command"',
        '+ ENTRY = "shell"',
    ]
