from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.code.signatures import EntrypointChecks
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from tests.code.conftest import Plant


@pytest.fixture
def check(plant: Plant) -> Callable[..., tuple[Diagnostic, ...]]:
    def _check(
        source: str,
        entrypoint: str = "train.py:main",
        args: Any = None,
        **files: str,
    ) -> tuple[Diagnostic, ...]:
        root = plant({"train.py": source, **files})
        lines = {"entrypoint": 4, "args": 5, "args.n": 6, "args.epohcs": 7}
        place = {key: Place("run.yaml", line, 1) for key, line in lines.items()}
        return EntrypointChecks(root).findings(
            entrypoint, None, args, place.get, installed=lambda top: top == "json"
        )

    return _check


def _codes(findings: Sequence[Diagnostic]) -> list[str]:
    return [found.code for found in findings]


def test_arguments_that_fit_say_nothing(check: Callable[..., tuple[Diagnostic, ...]]) -> None:
    source = "def main(a, b=1, *, c, d=2): pass"
    assert check(source, args={"a": 1, "c": 2}) == ()


def test_an_unknown_argument_is_named_with_its_place_and_the_nearest(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    (found,) = check("def main(epochs=1): pass", args={"epohcs": 5})
    assert found.code == "argument_unknown"
    assert found.place == Place("run.yaml", 7, 1)
    assert found.hint == "did you mean `epochs`?"


def test_a_missing_argument_is_named(check: Callable[..., tuple[Diagnostic, ...]]) -> None:
    (found,) = check("def main(a, b=1, *, c): pass", args={"b": 2})
    assert found.code == "argument_missing"
    assert "`a`, `c`" in found.summary
    (found,) = check("def main(a): pass")
    assert found.place == Place("run.yaml", 5, 1)


def test_an_argument_that_only_a_position_can_give_is_refused(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    assert _codes(check("def main(a, /): pass", args={"a": 1})) == ["argument_positional"]
    assert check("def main(a=1, /): pass") == ()
    assert check("def main(a=1, /, b=2): pass", args={"b": 1}) == ()


@pytest.mark.parametrize(
    "source",
    [
        "def main(**options): pass",
        "@wrapped\ndef main(a): pass",
        "from elsewhere import main",
        "from elsewhere import *",
        "main = make()",
        "if x:\n    def main(a): pass",
        "def __getattr__(name): pass",
        "@wrapped\nclass main: pass",
        "main = lambda n: n",
        "main = 1\nif x:\n    def main(n): pass",
        "main = 1\ndef make():\n    global main\n    main = print",
        "def main(): pass\nmain = wrapped(main)",
        "exec(open('settings.py').read())",
        "from helper import main",
        "try:\n    from elsewhere import main\nexcept ImportError:\n    main = None",
        "with here() as main: pass",
    ],
)
def test_what_the_source_cannot_tell_is_not_guessed(
    check: Callable[..., tuple[Diagnostic, ...]], source: str
) -> None:
    assert check(source, args={"n": 1}, **{"helper.py": "def main(n): pass"}) == ()


def test_what_a_class_has_is_known_where_it_runs(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    assert check("class C:\n    def main(self): pass", "train.py:C.main") == ()
    assert _codes(check("class C: pass", "train.py:D.main")) == ["function_missing"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class main: pass", "a class"),
        ("main = 3", "a number"),
        ("main = None", "`None`"),
        ("main: dict = {'a': 1}", "a mapping"),
        ("if x:\n    main = 'a'\nelse:\n    main = 'b'", "a text"),
        ("import json as main", "a module"),
        ("steps = [1]\nmain = steps", "a list"),
        ("from helper import main", "a number"),
        ("from helper import other as main", "a class"),
    ],
)
def test_an_entrypoint_that_is_no_function_is_named_with_its_kind(
    check: Callable[..., tuple[Diagnostic, ...]], source: str, words: str
) -> None:
    there = {"helper.py": "from deeper import main\nclass other: pass", "deeper.py": "main = 3"}
    (found,) = check(source, **there)
    assert found.code == "entrypoint_not_function"
    assert found.summary == f"`main` in `train.py` is {words}, not a function"


def test_a_name_that_only_a_function_binds_is_missing(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    assert _codes(check("def train():\n    main = 1")) == ["function_missing"]


def test_a_function_that_is_not_there_has_a_nearest_name(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    (found,) = check("def mian(): pass")
    assert found.code == "function_missing"
    assert found.hint == "did you mean `mian`?"
    assert _codes(check("class C:\n    def main(self): pass")) == ["function_missing"]


def test_an_async_function_is_checked_as_any_other(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    assert check("async def main(n=1): pass") == ()
    assert check("async def main(m=1): pass", args={"n": 1}) != ()


def test_a_function_takes_a_mapping_and_a_script_a_list(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    assert _codes(check("def main(): pass", args=[1])) == ["args_not_a_mapping"]
    assert _codes(check("", "train.py", args={"n": 1})) == ["args_not_a_list"]
    assert check("", "train.py", args=["--n", "1"]) == ()


def test_a_missing_file_has_a_nearest_name(check: Callable[..., tuple[Diagnostic, ...]]) -> None:
    (found,) = check("", "tarin.py")
    assert found.code == "entrypoint_missing"
    assert "`train.py`" in found.hint
    assert found.place == Place("run.yaml", 4, 1)


def test_a_syntax_error_has_its_place_in_the_users_file(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    (found,) = check("x = 1\ndef main(:\n")
    assert found.code == "python_syntax"
    assert found.place.file == "train.py"
    assert found.place.line == 2


@pytest.mark.parametrize("source", ["x = '\0'", "-" * 100_000 + "1", "(" * 5_000])
def test_a_file_that_no_parser_can_hold_is_an_error_not_a_crash(
    check: Callable[..., tuple[Diagnostic, ...]], source: str
) -> None:
    (found,) = check(source)
    assert found.code in {"python_syntax", "python_unreadable"}


def test_an_odd_escape_in_the_users_file_prints_no_warning(
    check: Callable[..., tuple[Diagnostic, ...]], recwarn: pytest.WarningsRecorder
) -> None:
    assert check("def main(): return '\\d'") == ()
    assert not recwarn


@pytest.mark.parametrize("folder", ["..", "{tmp_path}"], ids=["relative", "absolute"])
def test_a_file_outside_of_the_root_is_warned_of(
    check: Callable[..., tuple[Diagnostic, ...]], tmp_path: Path, folder: str
) -> None:
    (tmp_path / "away.py").write_text("def main(): pass")
    (found,) = check("", f"{folder.format(tmp_path=tmp_path)}/away.py:main")
    assert found.severity is Severity.WARNING
    assert found.code == "entrypoint_unpinned"


def test_a_module_of_the_tree_is_checked_and_an_installed_one_is_not(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    files = {"pkg/__init__.py": "", "pkg/train.py": "def main(a): pass"}
    assert _codes(check("", "pkg.train:main", **files)) == ["argument_missing"]
    assert _codes(check("", "pkg.trian:main", **files)) == ["module_missing"]
    assert check("", "json.tool:main", **files) == ()


def test_a_module_that_is_nowhere_is_warned_of_with_the_nearest_name(
    check: Callable[..., tuple[Diagnostic, ...]],
) -> None:
    files = {"package/train.py": "def main(): pass", "tools.py": ""}
    (found,) = check("", "pakcage.train:main", **files)
    assert (found.code, found.severity) == ("module_not_found", Severity.WARNING)
    assert found.place == Place("run.yaml", 4, 1)
    assert found.hint == "did you mean `package`?"
    (found,) = check("", "no.such.module:main", **files)
    assert "installed" in found.hint


def test_code_is_never_run(check: Callable[..., tuple[Diagnostic, ...]]) -> None:
    assert check("raise SystemExit('ran')\ndef main(): pass") == ()


def test_a_changed_file_is_read_again(check: Callable[..., tuple[Diagnostic, ...]]) -> None:
    assert check("def main(): pass") == ()
    assert _codes(check("def other_name(): pass")) == ["function_missing"]


def test_a_command_takes_no_list_of_arguments(plant: Plant) -> None:
    place = {"args": Place("run.yaml", 5, 1)}
    findings = EntrypointChecks(plant({})).findings(
        None, ("true",), ["x"], place.get, installed=lambda _: False
    )
    assert _codes(findings) == ["args_of_command"]
