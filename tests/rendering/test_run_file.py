"""A command line as the run file that says the same."""

from collections.abc import Sequence

import pytest

from sgpu_decl.errors import Usage
from sgpu_decl.rendering.run_file import name_of, run_file
from tests.reading import read


def spec(*words: str, **options: object) -> dict[str, object]:
    """What the run file of a command says, as a plan would read it."""
    given: dict[str, object] = {"name": "a", "gpus": 1, "type_": "CPU", **options}
    text = run_file(words, **given)  # type: ignore[arg-type]
    loaded, found = read(
        text.encode(), "run.yaml", target=None, variables=(), sets=(), environ={}, git=dict
    )
    assert loaded is not None, found
    (run,) = loaded.runs
    return run.config.model_dump(mode="json", exclude_defaults=True)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["python", "train.py", "--lr", "1e-3"],
         {"entrypoint": "train.py", "args": ["--lr", "1e-3"]}),
        (["train.py"], {"entrypoint": "train.py"}),
        (["./sub/train.py", "--flag", "a b", "", "no", "1"],
         {"entrypoint": "sub/train.py", "args": ["--flag", "a b", "", "no", "1"]}),
        (["train.py:main", "lr=0.1", "n=3", "name=a b", "on=on", "xs=[1, 2]", "t=true", "e="],
         {"entrypoint": "train.py:main", "args": {"lr": 0.1, "n": 3, "name": "a b", "on": "on",
                                                  "xs": [1, 2], "t": True, "e": ""}}),
        (["pkg.module:main", "x=1:30"], {"entrypoint": "pkg.module:main", "args": {"x": "1:30"}}),
        (["python", "-m", "pkg", "--x"], {"command": ["python", "-m", "pkg", "--x"]}),
        (["bash", "-c", "echo $RANK; # 'x' \"y\""],
         {"command": ["bash", "-c", "echo $RANK; # 'x' \"y\""]}),
        (["true"], {"command": ["true"]}),
        (["echo", "null", "~", "- a", "é", "a: b", "line\nline"],
         {"command": ["echo", "null", "~", "- a", "é", "a: b", "line\nline"]}),
    ],
)  # fmt: skip
def test_words_become_fields(words: Sequence[str], fields: dict[str, object]) -> None:
    assert spec(*words) == {"name": "a", "gpus": 1, "type": "CPU", **fields}


def test_other_fields_are_put_where_they_belong() -> None:
    found = spec(
        "python", "train.py", gpus=2, type_="H100", python="/opt/py/bin/python",
        sets=[("timeout", "2h"), ("env.variables.LR", "0.1"), ("gpus", "4"), ("mlflow.enabled",
              "false"), ("description", "a b: c")],
    )  # fmt: skip
    assert found == {
        "name": "a", "gpus": 4, "type": "H100", "entrypoint": "train.py", "timeout": "2h",
        "description": "a b: c", "mlflow": {"enabled": False},
        "env": {"python": "/opt/py/bin/python", "variables": {"LR": "0.1"}},
    }  # fmt: skip


def test_a_function_takes_names_with_values() -> None:
    with pytest.raises(Usage, match="`--lr` is no argument of a function"):
        run_file(["train.py:main", "--lr"], name="a", gpus=1, type_="CPU")


def test_any_text_reaches_the_run() -> None:
    words = ["echo", "a\x7fb", "\x85\x9f\u2028", "\ufeff\uffff", "\x01", "\U0001f600"]
    assert spec(*words)["command"] == words


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("{a} {b}", "{a} {b}"),
        ("[1], z: [2]", "[1], z: [2]"),
        ("[1] # ]", "[1] # ]"),
        ("[a\x7f]", "[a\x7f]"),
        ("{a: [1, {b: c}]}", {"a": [1, {"b": "c"}]}),
        ("[[1], [2]]", [[1], [2]]),
    ],
)
def test_brackets_that_are_no_yaml_are_text(value: str, taken: object) -> None:
    assert spec("train.py:main", f"y={value}")["args"] == {"y": taken}


@pytest.mark.parametrize("words", [["run.py", "a\udcff"], ["run.py:main", "y=[\udcff]"]])
def test_a_word_that_is_no_utf_8_is_refused(words: list[str]) -> None:
    with pytest.raises(Usage, match=r"\\xff\]?` is not UTF-8 text"):
        run_file(words, name="a", gpus=1, type_="CPU")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "train.py", "eval.py"], "train"),
        (["src/my train.py:main"], "my-train"),
        (["package.module:main"], "module"),
        (["bash", "scripts/run_all.sh"], "run_all"),
        (["/usr/bin/env", "x"], "env"),
        (["[", "-f", "x"], "run"),
    ],
)
def test_a_run_is_named_after_its_script(words: list[str], name: str) -> None:
    assert name_of(words) == name
