"""No file outside `backends/<name>/` knows a backend by name: it asks the kind what it can do.

Looked for, outside of comments and docstrings, are texts that are a name, imports of its folder,
and identifiers with the name in them, unless it is a common word. Texts with spaces are words for
people: help, messages, hints.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.model.backend_kinds import our_kinds

PACKAGE = Path(__file__).parents[2] / "sgpu_decl"
NAMES = tuple(kind.name for kind in our_kinds())
COMMON_WORDS = frozenset({"local", "ray", "ssh"})
"""`local_rank`, `array` and `SSH_CONNECTION` say nothing of a backend."""

RAY = "`ray` is a block of a run too"
STATE = "`databricks` is a kind of shared state too"
IMPORTED = "the files that it reads are those of Databricks' own tools"
BUNDLES = "the library of bundles, which the Databricks CLI starts"
ALLOWED = {
    "model/backend_kinds.py": "the registry",
    "distribution.py": "`databricks` is an extra of the distribution",
    "planner/policy.py": RAY,
    "planner/launch_checks.py": RAY,
    "planner/estimate.py": RAY,
    "planning/ray_facts.py": RAY,
    "code/ray_calls.py": "the name of a package",
    "config/cross_field.py": RAY,
    "config/run_reader.py": RAY,
    "config/project.py": RAY,
    "config/right_forms.py": RAY,
    "config/schemas.py": RAY,
    "cli/options.py": RAY,
    "functions/call_results.py": RAY,
    "functions/call_settings.py": RAY,
    "functions/decorator.py": RAY,
    "agent/attempt/attempt_status.py": RAY,
    "agent/attempt/report_check.py": RAY,
    "model/attempt_view.py": RAY,
    "agent/several_nodes/node_group.py": RAY,
    "agent/ray/ray_bootstrap.py": RAY,
    "agent/ray/ray_process.py": RAY,
    "agent/ranks/rank_start.py": RAY,
    "agent/supervision/supervisor.py": RAY,
    "rank/ray_node.py": "the name of a package",
    "config/state.py": STATE,
    "storing/stores.py": STATE,
    "config/env.py": "`databricks:scope/key` is a form of references to secrets",
    "config/on_finish.py": "`databricks:scope/key` is a form of references to secrets",
    "agent/attempt/failure_kinds.py": "a page about rights in volumes, as a source",
    "diagnostics/secret_texts.py": "the same; `ray` is a scheme of URLs there",
    "tracking/store_location.py": "`databricks` is an address of MLflow's",
    "config/block.py": "the same: it is no path of a file",
    "environments/package_lists/site_folders.py": "a folder of Debian's Python, `/usr/local`",
    "code/secret_files.py": "a file of the user's that holds secrets, whatever runs are on",
    "config/other_tool_configs.py": "a file for another tool, with its page",
    "code/selection.py": "what the programs of Slurm leave in the working folder",
    "environments/package_lists/import_names.py": "the names of packages",
    "importing/air_workload.py": IMPORTED,
    "importing/bundle.py": IMPORTED,
    "importing/bundle_task.py": IMPORTED,
    "importing/field_rules.py": IMPORTED,
    "bundles/bundle_program.py": BUNDLES,
    "bundles/loader.py": BUNDLES,
    "bundles/task_mutator.py": BUNDLES,
    "backends/box/box_checks.py": RAY,
    "backends/box/ssh_process.py": "the program of that name",
    "api/tracking_pages.py": "the same",
    "model/project_home.py": "`ssh` is a scheme of URLs of git",
    "text/shell_text.py": "a program whose words a shell reads",
    "cli/other_names.py": "a word that people type",
    "cli/dev.py": "the emulated workspace, which is for users' own tests",
    "model/assumptions.py": "what the emulated workspace and the backend both assume",
    "agent/probe/libraries.py": "what the probe of a workspace tries on its nodes",
    "agent/probe/node_facts.py": "the same; the emulated workspace has it too",
    "views/web_pages.py": RAY,
}
"""Files that may hold a name, and why."""


def found_in(source: str) -> Iterator[str]:
    """The names of backends that a module knows, as they stand there."""
    if not any(name in source.lower() for name in NAMES):  # most: to parse all takes seconds
        return
    tree = ast.parse(source)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    docs |= {id(item.value) for item in ast.walk(tree) if isinstance(item, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if id(node) not in docs and " " not in text.strip() and _names(text):
                yield text
        elif isinstance(node, ast.ImportFrom):
            yield from (item for item in [node.module or ""] if _names(item))
        elif isinstance(node, ast.Import):
            yield from (item.name for item in node.names if _names(item.name))
        else:
            words = (getattr(node, name, None) for name in ("id", "attr", "arg", "name"))
            yield from (word for word in words if isinstance(word, str) and _words_name(word))


def _names(text: str) -> bool:
    own = any(f"backends.{name}" in text for name in NAMES)
    return text in NAMES or own or _words_name(text)


def _words_name(text: str) -> bool:
    return any(re.search(name, text, re.IGNORECASE) for name in NAMES if name not in COMMON_WORDS)


def _modules() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("testing/", *(f"backends/{item}/" for item in NAMES))):
            yield name, path.read_text()


def test_no_module_but_its_own_knows_a_backend_by_name() -> None:
    known = {name: sorted(set(found_in(source))) for name, source in _modules()}
    assert {name: item for name, item in known.items() if item and name not in ALLOWED} == {}
    assert sorted(name for name in ALLOWED if not known[name]) == []


def test_a_name_is_found_in_code_and_not_in_words_for_people() -> None:
    assert list(found_in("if kind == 'local': ...")) == ["local"]
    assert list(found_in("from sgpu_decl.backends.ray.kind import KIND")) != []
    assert list(found_in("is_databricks = DatabricksBackend()")) != []
    assert list(found_in('"""databricks"""\nsay("use databricks there", local_rank)')) == []
