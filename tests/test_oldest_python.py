"""What runs on nodes and in ranks is Python 3.10, though it is developed with a newer one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sgpu_decl

OLDEST = (3, 10)
ROOT = Path(sgpu_decl.__file__).parent
PROGRAMS = [
    path
    for modules in ("agent/**/*.py", "content/*.py", "rank/**/*.py", "backends/ray/cluster/*.py")
    for path in sorted(ROOT.glob(modules))
]

# https://docs.python.org/3/whatsnew/3.11.html and 3.12.html; `""` are builtins.
NEWER = {
    "": {"BaseExceptionGroup", "ExceptionGroup"},
    "asyncio": {"Runner", "TaskGroup", "timeout", "timeout_at"},
    "contextlib": {"chdir"},
    "datetime": {"UTC"},
    "enum": {"EnumCheck", "FlagBoundary", "ReprEnum", "StrEnum", "member", "nonmember", "verify"},
    "hashlib": {"file_digest"},
    "inspect": {"getmembers_static"},
    "itertools": {"batched"},
    "locale": {"getencoding"},
    "logging": {"getHandlerByName", "getHandlerNames", "getLevelNamesMapping"},
    "math": {"cbrt", "exp2", "sumprod"},
    "operator": {"call"},
    "os": {"listdrives", "unshare", "setns", "PIDFD_NONBLOCK"},
    "re": {"NOFLAG"},
    "sys": {"activate_stack_trampoline", "exception", "monitoring"},
    "threading": {"setprofile_all_threads", "settrace_all_threads"},
    "types": {"get_original_bases"},
    "typing": {
        "LiteralString", "Never", "NotRequired", "Required", "Self", "TypeVarTuple", "Unpack",
        "assert_never", "assert_type", "clear_overloads", "dataclass_transform", "get_overloads",
        "override", "reveal_type",
    },
    "wsgiref": {"types"},
}  # fmt: skip
MODULES = {"tomllib"}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_program_of_nodes_is_python_3_10(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=OLDEST)

    assert list(newer_names(tree)) == []


def test_newer_names_are_found() -> None:
    text = (
        "import datetime, tomllib\nfrom enum import StrEnum\nnow = datetime.UTC\nExceptionGroup\n"
    )
    shown = "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from typing import Self\n"
    assert sorted(newer_names(ast.parse(text + shown))) == [
        "ExceptionGroup", "datetime.UTC", "enum.StrEnum", "tomllib",
    ]  # fmt: skip
    with pytest.raises(SyntaxError):
        ast.parse("try:\n    pass\nexcept* OSError:\n    pass\n", feature_version=OLDEST)


def newer_names(tree: ast.AST) -> Iterator[str]:
    """Names of the standard library that Python 3.10 lacks, but for those that type checkers see
    alone."""
    for node in run_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names if item.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = NEWER.get(node.module or "", frozenset[str]())
            yield from (f"{node.module}.{item.name}" for item in node.names if item.name in names)
            yield from {node.module or ""} & MODULES
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in NEWER.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Name) and node.id in NEWER[""]:
            yield node.id


def run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs: all but the blocks below `if TYPE_CHECKING`."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for other in child.orelse:
                yield from run_nodes(other)
        else:
            yield from run_nodes(child)
