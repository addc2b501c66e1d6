"""The names of modules, classes and variables: a stranger finds a thing by its name, and only it.

The emulator and other helps for tests (`testing/`) are left out: they carry the names of what they
stand for. To parse the whole package takes seconds, so that is done only where a text can have the
variable.
"""

import ast
import collections
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sgpu_decl"
# A file of `cli` is named by its command, one of `config` by its block of the YAML.
NAMED_BY_USERS = ("cli", "config")
# What each program has.
ENTRY_POINTS = frozenset({"__init__", "__main__", "main", "program"})


_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
_DOCSTRING = re.compile(r'\A(?:#.*\n|\s)*"""(.*?)"""', re.DOTALL)
_MAY_BIND_IT = re.compile(
    r"\bit\s*:?=(?!=)|\bit in\b|\bas it\b|lambda[^:\n]*\bit\b|\bdef [^)]*\bit\b"
)


@functools.cache
def _sources() -> dict[Path, str]:
    paths = [path for path in PACKAGE.rglob("*.py") if "testing" not in path.parts]
    return {path: path.read_text() for path in paths}


def _same_part(paths: list[Path]) -> bool:
    """Whether these are what each backend has in one place, or the same part of several stores."""
    rooms = {path.relative_to(PACKAGE).parts[:1] for path in paths}
    each = all(path.parent.parent.name == "backends" for path in paths)
    return each or rooms == {("storing",)}


def test_a_module_has_its_name_alone() -> None:
    found = collections.defaultdict(list)
    for path in _sources():
        room = path.relative_to(PACKAGE).parts[0]
        if path.stem not in ENTRY_POINTS and room not in NAMED_BY_USERS:
            found[path.stem].append(path)
    twice = [paths for paths in found.values() if len(paths) > 1 and not _same_part(paths)]
    assert [[str(path.relative_to(PACKAGE)) for path in paths] for paths in twice] == []


def test_a_module_is_named_by_what_it_gives() -> None:
    """By a noun: a room may be a verb."""
    verbs = {path.stem for path in _sources() if path.stem.rpartition("_")[2].endswith("ing")}
    assert verbs <= NOUNS, sorted(verbs - NOUNS)


NOUNS = frozenset({"caller_tracking", "doctor_finding", "environment_staging", "log_forwarding"})


def test_a_class_has_its_name_alone() -> None:
    found = collections.defaultdict(list)
    for path, text in _sources().items():
        for name in _CLASS.findall(text):
            found[name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_no_variable_is_called_it() -> None:
    assert sorted(_called_it()) == []


def _called_it() -> Iterator[str]:
    for path, text in _sources().items():
        for node in ast.walk(ast.parse(text)) if _MAY_BIND_IT.search(text) else ():
            if isinstance(node, ast.Name) and node.id == "it":
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_text_names_files_that_are_there() -> None:
    """In docstrings of modules, ARCHITECTURE and its pages, `room/module` is a file or a folder."""
    pages = [ROOT / "ARCHITECTURE.md", *(ROOT / "docs/contributing").glob("*.md")]
    texts = {page: page.read_text() for page in pages}
    for path, text in _sources().items():
        docstring = _DOCSTRING.match(text)
        texts[path] = docstring[1] if docstring else ""
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    gone = []
    for path, text in texts.items():
        for named in re.findall(r"`((?:\w+/)+\w*(?:\.py)?)`", text):
            beside = [PACKAGE, ROOT, path.parent]
            known = [root / f"{named}{end}" for root in beside for end in ("", ".py")]
            ours = named.partition("/")[0] in rooms and named != "runs/submit"  # of the Jobs API
            if ours and not any(map(Path.exists, known)):
                gone.append(f"{path.relative_to(ROOT)}: {named}")
    assert gone == []
