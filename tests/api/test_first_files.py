"""`sgpu init --from`: what it writes validates, and gives a script the arguments that it has by
itself."""

import argparse
import ast
import keyword
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu_decl.api.first_files import write_first_files
from sgpu_decl.code.script_arguments import entry_arguments
from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.script_argument import PLACEHOLDER, EntryArguments
from sgpu_decl.rendering.first_file import first_file, first_project
from sgpu_decl.text.yaml_format import formatted
from tests.reading import read

_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name not in ("h", "help")
)
_TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "true", "null", "1e3", "a: b", "# x", "-x", "--y=1", "${var.x}", "$HOME", "~/x", "{a}",
     "[1", "é", "hf_" + "a" * 34, "*", "yes", "0x10", "a\nb", "'\"", "…"]
)  # fmt: skip
_INTS = st.integers(-(10**20), 10**20)
_FLOATS = st.floats()
_VALUES = _INTS | _FLOATS | _TEXTS | st.booleans() | st.none()
_TYPED = {"int": _INTS, "float": _FLOATS | _INTS, "str": _TEXTS, "": _TEXTS}


@st.composite
def added_arguments(draw: st.DrawFn) -> str:
    """The arguments of one call of `add_argument`."""
    name = draw(_NAMES)
    positional = draw(st.integers(0, 4)) == 0
    words = [repr(name if positional else f"--{name}")]
    if draw(st.integers(0, 4)) == 0 and not positional:
        action = draw(st.sampled_from(["'store_true'", "'store_false'", "'count'", "'append'"]))
        return ", ".join([*words, f"action={action}"])
    kind = draw(st.sampled_from(sorted(_TYPED)))
    if kind:
        words.append(f"type={kind}")
    nargs = draw(st.sampled_from(["", "", "", "'?'", "'*'", "'+'", "2"]))
    if nargs:
        words.append(f"nargs={nargs}")
    values = draw(st.lists(_TYPED[kind], min_size=1, max_size=3))
    default = values if nargs and draw(st.booleans()) else values[0]
    if draw(st.booleans()):
        words.append(f"default={_source(draw(st.sampled_from([default, None])))}")
    if draw(st.integers(0, 3)) == 0:
        words.append(f"choices={_source(values)}")
    if not positional and draw(st.integers(0, 3)) == 0:
        words.append("required=True")
    return ", ".join(words)


def _source(value: object) -> str:
    return repr(value).replace("inf", "1e999").replace("nan", "float('n' 'an')")


def _written(entry: EntryArguments) -> LoadedRun:
    """The run that the written file holds; the project file must be valid, too."""
    schema = "schemas/run.v1.schema.json"
    text = first_file(schema=schema, name="x", gpus=1, type_="CPU", path="x.py", entry=entry)
    of_project = first_project(schema=schema, name="x", run="x", path="x.py", entry=entry)
    for target, one in ((None, text), ("dev", of_project), ("prod", of_project)):
        loaded, findings = read(
            one, "x.yml", target=target, variables=(), sets=(), environ={}, git=dict
        )
        assert loaded is not None, one
        assert not findings, one
        assert formatted(one, "x.yml") == (one, ())
        if one is text:
            run = loaded.runs[0]
    return run


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(added_arguments(), max_size=6))
def test_what_is_written_for_argparse_validates_and_gives_the_defaults(calls: list[str]) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    kept: dict[str, str] = {}
    for call in calls:
        dest = call.partition(",")[0].strip("'-")
        if dest in kept:
            continue
        try:
            eval(f"parser.add_argument({call})")
        except (argparse.ArgumentError, ValueError, TypeError):
            continue  # no such argument can be
        kept[dest] = call
    source = "import argparse\np = argparse.ArgumentParser()\n"
    source += "".join(f"p.add_argument({call})\n" for call in kept.values())
    entry = entry_arguments(ast.parse(source))
    run = _written(entry)
    words = [str(word) for word in run.config.args or []]
    needed = [word for one in entry.arguments if one.required for word in one.words]
    try:
        by_itself = parser.parse_args(needed)
    except (SystemExit, argparse.ArgumentError):
        return  # no text but a certain one, or a number, is a value that it needs
    assert vars(parser.parse_args(words)) == vars(by_itself)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(_NAMES | st.just("null"), st.none() | st.tuples(_VALUES), max_size=5))
def test_what_is_written_for_a_function_validates_and_gives_the_defaults(
    parameters: dict[str, tuple[object] | None],
) -> None:
    ordered = sorted(parameters.items(), key=lambda item: item[1] is not None)
    words = [f"{name}={_source(one[0])}" if one else name for name, one in ordered]
    entry = entry_arguments(ast.parse(f"def main({', '.join(words)}): pass\n"))
    assert entry.function == "main"
    args = _written(entry).config.args or {}
    assert isinstance(args, dict)
    for name, one in ordered:
        if one is None:
            assert args[name] == PLACEHOLDER
        elif name in args:
            assert args[name] == one[0]
            assert type(args[name]) is type(one[0])


@pytest.mark.parametrize("default", ["~/data", "$HOME/data", "${var.data}", "hf_" + "a" * 34])
def test_a_default_that_a_run_file_cannot_hold_stays_in_the_source(default: str) -> None:
    entry = entry_arguments(ast.parse(f"def main(data={default!r}): pass\n"))
    assert _written(entry).config.args is None
    option = f"argparse.ArgumentParser().add_argument('--data', default={default!r})"
    assert _written(entry_arguments(ast.parse(f"import argparse\n{option}"))).config.args is None


@pytest.mark.parametrize(
    ("source", "function", "names"),
    [
        ("def main(lr: float = 0.1): ...", "main", ["lr"]),
        ("def train(lr=0.1): ...\ndef _help(): ...", "train", ["lr"]),
        ("def f(a): ...\nif __name__ == '__main__':\n    f()", "f", ["a"]),
        ("def main(): ...\nif __name__ == '__main__':\n    main()", None, []),
        ("def main(cfg): ...\nif __name__ == '__main__':\n    main(load())", None, []),
        ("import click\n@click.command()\ndef main(lr): ...", None, []),
        ("def main(a, /): ...", None, []),
        ("print('hello')\ndef main(lr=1): ...", None, []),
        ("def train(lr=1): ...\nresult = train()", None, []),
        ("def train(lr=1): ...\nlosses: list = [train(lr) for lr in (1, 2)]", None, []),
        ("def train(lr=1): ...\nstep = compiled(train)", "train", ["lr"]),
        ("import argparse\nargparse.ArgumentParser().add_argument('--a')\ndef main(x): ...", None,
         ["--a"]),
    ],
)  # fmt: skip
def test_how_a_script_is_started(source: str, function: str | None, names: list[str]) -> None:
    entry = entry_arguments(ast.parse(source))
    assert entry.function == function
    assert [one.name for one in entry.arguments] == names


@pytest.mark.parametrize(
    "source",
    [
        "g = p.add_mutually_exclusive_group()\ng.add_argument('--a', default='x')",
        "p.add_mutually_exclusive_group().add_argument('--a', default='x')",
        "p.add_argument('--a', default='x')\np.set_defaults(a='y')",
        "p.add_argument('--a', default='x', **more)",
        "p.add_argument('--a', default='x', type=lower)",
        "p.add_argument('--a', default=True, type=bool)",
        "p.add_argument('--a', default=5)",
        "p.add_argument('--a', default=find())",
        "p.add_argument('--a', default=['x'], nargs=COUNT)",
        "p.add_argument('--a', default='x', choices=models())",
    ],
)
def test_an_argument_whose_words_may_do_something_else_is_a_comment(source: str) -> None:
    entry = entry_arguments(ast.parse(f"p = argparse.ArgumentParser()\n{source}\n"))
    assert [(one.name, one.given) for one in entry.arguments] == [("--a", False)]


def test_the_words_of_a_run_file_for_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "p = argparse.ArgumentParser()\n"
        "p.add_argument('data')\n"
        "p.add_argument('-b', '--batch-size', type=int, default=64)\n"
        "p.add_argument('--model', choices=('small', 'large'), default='small')\n"
        "p.add_argument('--betas', type=float, nargs=2, default=[0.9, 0.999])\n"
        "p.add_argument('--workers', type=int, default=os.cpu_count())\n"
        "p.add_argument('--amp', action='store_true')\n"
        "p.add_argument('--out', required=True)\n"
    )
    first = write_first_files(tmp_path, name=None, script=str(tmp_path / "train.py"), project=False)
    assert first.required == ("data", "--out")
    assert first.file.read_text().partition("args:")[2] == (
        """ # its command line
  - CHANGE_ME # required: `data`, text
  - --batch-size=64 # integer
  - --model=small # one of: small, large
  - --betas
  - "0.9"
  - "0.999" # number
  # - --workers=... # integer; default os.cpu_count()
  # - --amp # on or off
  - --out=CHANGE_ME # required: text
"""
    )


def test_nothing_is_written_where_a_file_stands_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "schemas").touch()
    with pytest.raises(SgpuError, match="cannot be written") as refused:
        write_first_files(tmp_path, name="x", script=None, project=False)
    assert (refused.value.code, refused.value.hint) == (
        "unwritable",
        "something else stands there already: move it away",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["schemas"]
