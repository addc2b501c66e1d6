import pytest

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.staging.signatures import check_entrypoint


@pytest.fixture
def check(plant):
    def _check(source, entrypoint="train.py:main", args=None, **files):
        root = plant({"train.py": source, **files})
        lines = {"entrypoint": 4, "args": 5, "args.n": 6, "args.epohcs": 7}
        place = {key: Place("run.yaml", line, 1) for key, line in lines.items()}
        return check_entrypoint(
            root, entrypoint, None, args, place.get, installed=lambda top: top == "json"
        )

    return _check


def _codes(findings):
    return [found.code for found in findings]


def test_arguments_that_fit_say_nothing(check):
    source = "def main(a, b=1, *, c, d=2): pass"
    assert check(source, args={"a": 1, "c": 2}) == ()


def test_an_unknown_argument_is_named_with_its_place_and_the_nearest(check):
    (found,) = check("def main(epochs=1): pass", args={"epohcs": 5})
    assert found.code == "argument_unknown"
    assert found.place == Place("run.yaml", 7, 1)
    assert found.hint == "did you mean `epochs`?"


def test_a_missing_argument_is_named(check):
    (found,) = check("def main(a, b=1, *, c): pass", args={"b": 2})
    assert found.code == "argument_missing"
    assert "`a`, `c`" in found.summary
    (found,) = check("def main(a): pass")
    assert found.place == Place("run.yaml", 5, 1)


def test_an_argument_that_only_a_position_can_give_is_refused(check):
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
        "class main: pass",
    ],
)
def test_what_the_source_cannot_tell_is_not_guessed(check, source):
    assert check(source, args={"n": 1}) == ()


def test_a_function_that_is_not_there_has_a_nearest_name(check):
    (found,) = check("def mian(): pass")
    assert found.code == "function_missing"
    assert found.hint == "did you mean `mian`?"
    assert _codes(check("class C:\n    def main(self): pass")) == ["function_missing"]


def test_an_async_function_is_refused(check):
    assert _codes(check("async def main(): pass")) == ["function_async"]


def test_a_function_takes_a_mapping_and_a_script_a_list(check):
    assert _codes(check("def main(): pass", args=[1])) == ["args_not_a_mapping"]
    assert _codes(check("", "train.py", args={"n": 1})) == ["args_not_a_list"]
    assert check("", "train.py", args=["--n", "1"]) == ()


def test_a_missing_file_has_a_nearest_name(check):
    (found,) = check("", "tarin.py")
    assert found.code == "entrypoint_missing"
    assert "`train.py`" in found.hint
    assert found.place == Place("run.yaml", 4, 1)


def test_a_syntax_error_has_its_place_in_the_users_file(check):
    (found,) = check("x = 1\ndef main(:\n")
    assert found.code == "python_syntax"
    assert found.place.file == "train.py"
    assert found.place.line == 2


@pytest.mark.parametrize("source", ["x = '\0'", "-" * 100_000 + "1", "(" * 5_000])
def test_a_file_that_no_parser_can_hold_is_an_error_not_a_crash(check, source):
    (found,) = check(source)
    assert found.code in {"python_syntax", "python_unreadable"}


def test_an_odd_escape_in_the_users_file_prints_no_warning(check, recwarn):
    assert check("def main(): return '\\d'") == ()
    assert not recwarn


def test_a_file_outside_of_the_root_is_warned_of(check, tmp_path):
    (tmp_path / "away.py").write_text("def main(): pass")
    (found,) = check("", "../away.py:main")
    assert found.severity is Severity.WARNING
    assert found.code == "entrypoint_unpinned"


def test_a_module_of_the_tree_is_checked_and_an_installed_one_is_not(check):
    files = {"pkg/__init__.py": "", "pkg/train.py": "def main(a): pass"}
    assert _codes(check("", "pkg.train:main", **files)) == ["argument_missing"]
    assert _codes(check("", "pkg.trian:main", **files)) == ["module_missing"]
    assert check("", "json.tool:main", **files) == ()


def test_a_module_that_is_nowhere_is_warned_of_with_the_nearest_name(check):
    files = {"package/train.py": "def main(): pass", "tools.py": ""}
    (found,) = check("", "pakcage.train:main", **files)
    assert (found.code, found.severity) == ("module_not_found", Severity.WARNING)
    assert found.place == Place("run.yaml", 4, 1)
    assert found.hint == "did you mean `package`?"
    (found,) = check("", "no.such.module:main", **files)
    assert "installed" in found.hint


def test_code_is_never_run(check):
    assert check("raise SystemExit('ran')\ndef main(): pass") == ()


def test_a_changed_file_is_read_again(check):
    assert check("def main(): pass") == ()
    assert _codes(check("def other_name(): pass")) == ["function_missing"]


def test_a_command_takes_no_list_of_arguments(plant):
    place = {"args": Place("run.yaml", 5, 1)}
    findings = check_entrypoint(
        plant({}), None, ("true",), ["x"], place.get, installed=lambda _: False
    )
    assert _codes(findings) == ["args_of_command"]
