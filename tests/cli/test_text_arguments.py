"""Arguments that a function wants as text are the text as written, wherever they come from."""

import json
from typing import Any

import pytest

from sgpu_decl.model.jsonable import Spec
from sgpu_decl.planner.fingerprint import fingerprint
from tests.cli.conftest import Shell

CODE = """\
from typing import Literal, Optional


def main(
    s: str,
    n: int = 0,
    o: Optional[str] = None,
    p: "str | None" = None,
    l: list[str] = [],
    d: dict[str, list[str]] = {},
    m: Literal["1", "02"] = "1",
    u=None,
):
    print("GOT", [s, n, o, p, l, d, m, u])
"""
HEAD = "name: a\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\nentrypoint: t.py:main\n"


def arguments(sgpu: Shell, text: str, *options: str) -> list[dict[str, Any]]:
    """The arguments of each planned launch, in the order of the plan."""
    sgpu.write("run.yaml", HEAD + text)
    plan = sgpu.data("plan", "run.yaml", *options)
    return [
        {one["path"].removeprefix("args."): one["after"] for one in change["fields"]
         if one["path"].startswith("args.")}
        for change in plan["changes"]
    ]  # fmt: skip


@pytest.fixture
def code(sgpu: Shell) -> Shell:
    sgpu.write("t.py", CODE)
    return sgpu


def test_arguments_of_the_command_line_reach_the_function_as_written(code: Shell) -> None:
    done = code.here(
        "run", "-y", "--type", "CPU", "--set", "mlflow.enabled=false", "t.py:main",
        "s=01", "n=01", "o=695e0514", "p=true", "l=[01, 1e3]", "d={a: [010]}", "m=02",
        "u=695e0514",
    )  # fmt: skip
    expected = ["01", 1, "695e0514", "true", ["01", "1e3"], {"a": ["010"]}, "02", "695e0514"]
    assert f"GOT {expected}" in done.out


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("args: {s: 01, u: 01}", [], [{"s": "01", "u": 1}]),
        ("args: {s: 695e0514, o: null}", [], [{"s": "695e0514"}]),
        ("args: {s: 1}", ["--set", "args.s=0x1f"], [{"s": "0x1f"}]),
        ("args: {s: '${var.v}', u: '${var.v}'}\nvariables: {v: 1}", ["--var", "v=007"],
         [{"s": "007", "u": 7}]),
        ("matrix: {s: [01, 1e-3]}", [], [{"s": "1e-3"}, {"s": "01"}]),
        ("args: {s: '${matrix.x}'}\nmatrix: {x: [01]}", [], [{"s": "01"}]),
        ("args: {s: x}\nmatrix: {o: [01]}\ntags: {x: '${matrix.o}'}", [], [{"s": "x", "o": "01"}]),
    ],
)  # fmt: skip
def test_text_as_written_from_each_place(
    code: Shell, text: str, options: list[str], expected: list[dict[str, Any]]
) -> None:
    found = arguments(code, text + "\n", *options)
    assert [{k: v for k, v in one.items() if v is not None} for one in found] == expected


def test_the_source_decides_also_where_the_file_is_remembered(code: Shell) -> None:
    text = "args: {s: 01}\n"
    assert arguments(code, text) == arguments(code, text) == [{"s": "01"}]
    code.write("t.py", CODE.replace("s: str", "s: int"))
    assert arguments(code, text) == [{"s": 1}]


def test_what_succeeded_with_a_number_is_not_launched_again(code: Shell) -> None:
    """An earlier version gave the function numbers, and recorded them."""
    code.write("run.yaml", HEAD + "args: {s: 01, l: [1]}\n")
    code.done("apply", "-y")
    state = json.loads(code.here("state", "pull").out)
    (resource,) = (one for one in state["resources"] if one["kind"] == "run")
    (attempt,) = resource["attempts"]
    for holder in (resource, attempt):
        if holder["spec"] is not None:
            holder["spec"]["args"] = {"s": 1, "l": [1]}
    code_digest = attempt["code_digest"]
    attempt["fingerprint"] = fingerprint(Spec.of(resource["spec"]), code_digest)
    state["serial"] += 1
    older = code.folder.parent / "older.json"
    older.write_text(json.dumps(state))
    code.done("state", "push", str(older))
    assert actions(code, "args: {s: 01, l: [1]}\n") == ["no_op"]
    assert actions(code, "args: {s: 02, l: [1]}\n") == ["create"]
    assert actions(code, "args: {s: 01, l: [1], n: 1}\n") == ["create"]


def actions(sgpu: Shell, text: str) -> list[str]:
    sgpu.write("run.yaml", HEAD + text)
    plan = sgpu.data("plan")
    return [change["action"] for change in plan["changes"]]


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["--lr=1e-3 --wd=0"], True),
        (["--lr 1e-3"], True),
        (["lr=0.1 wd=0"], True),
        (["--prompt=two words", "-o A b", "two words", "--lr=1e-3"], False),
    ],
)
@pytest.mark.parametrize("field", ["args", "command"])
def test_several_words_in_one_are_a_warning(
    sgpu: Shell, words: list[str], field: str, *, joined: bool
) -> None:
    sgpu.write("t.py", "")
    lines = f"entrypoint: t.py\nargs: {json.dumps(words)}\n"
    if field == "command":
        lines = f"command: {json.dumps(['python', 't.py', *words])}\n"
        joined = joined and words[0].startswith("-")
    sgpu.write("run.yaml", HEAD.replace("entrypoint: t.py:main\n", "") + lines)
    found = sgpu.data("validate")["diagnostics"]
    assert [item["code"] for item in found] == ["joined_arguments"] * joined
