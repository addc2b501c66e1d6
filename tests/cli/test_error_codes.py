"""Error codes are a closed list: what the package raises is what CONTRIBUTING names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import sgpu_decl
from sgpu_decl.backends.databricks.complaints import CODES as WORKSPACES
from sgpu_decl.environments.declared.complaints import CODES as COMPLAINTS
from sgpu_decl.errors import SgpuError

PACKAGE = Path(sgpu_decl.__file__).parent
TREES = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}


def error_classes() -> dict[str, str | None]:
    """Every class of our errors by name, with the code that it sets itself."""
    classes: dict[str, str | None] = {"SgpuError": None}
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    found = [node for node in nodes if isinstance(node, ast.ClassDef)]
    while more := [
        node for node in found
        if node.name not in classes and {ast.unparse(base) for base in node.bases} & set(classes)
    ]:  # fmt: skip
        for node in more:
            sets = {ast.unparse(it.targets[0]): it.value for it in node.body
                    if isinstance(it, ast.Assign)}  # fmt: skip
            classes[node.name] = ast.literal_eval(sets["code"]) if "code" in sets else None
    return classes


def codes() -> Iterator[tuple[str, str | None]]:
    """Where an error is made, and its code; `None` where nothing says one."""
    classes = error_classes()
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in classes:
                continue
            if ast.unparse(node.func) == "BuildFailed":  # made of what uv complained of
                yield from (("environments/complaints.py", code) for code in COMPLAINTS)
                continue
            if ast.unparse(node.func) == "BackendError" and path.name == "complaints.py":
                yield from (("databricks/complaints.py", code) for code in WORKSPACES)
                continue
            given = [it.value for it in node.keywords if it.arg == "code"]
            code = ast.literal_eval(given[0]) if given else classes[ast.unparse(node.func)]
            yield f"{path.relative_to(PACKAGE)}:{node.lineno}", code


def test_every_error_has_a_code() -> None:
    assert [where for where, code in codes() if code is None] == []


def test_contributing_names_every_code_and_no_other() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    section = text.partition("## Error codes")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    raised = {str(code) for _, code in codes()}
    assert sorted(raised - set(named)) == []
    assert named == sorted(raised)
    assert SgpuError.code not in named
