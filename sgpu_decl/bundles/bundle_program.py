"""What the program `databricks.bundles.build` gives a function of ours, and takes from it."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from databricks.bundles.core import Bundle, Diagnostics, Location

from sgpu_decl.bundles.bundle_folder import FOLDER
from sgpu_decl.bundles.bundled_jobs import BundledProject
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.target import BASE
from sgpu_decl.planning.location import Location as Options
from sgpu_decl.planning.location import default_file
from sgpu_decl.planning.project_text import ProjectText
from sgpu_decl.text.yaml_nodes import Mapping as Block


def project_of(bundle: Bundle) -> BundledProject:
    """The project beside `databricks.yml`. The CLI starts the program in the folder of that.

    The target is that of the same name, where the file has targets, and variables of the file have
    the values of those of the bundle with the same name.

    Raises:
        SgpuError: there is no file, or it is no YAML.
    """
    root = Path.cwd()
    file = default_file(root, root)
    target, variables = BASE, {}
    if file is not None:
        text = ProjectText(file)
        if text.targets():
            target = bundle.target
        variables = dict(_variables(text, bundle.variables))
    return BundledProject(Options(file=file, project=root, target=target, variables=variables))


def _variables(text: ProjectText, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    files, _ = text.parsed
    block = files.root.entries.get("variables") if files is not None else None
    for name in block.entries if isinstance(block, Block) else ():
        value = values.get(name)
        if value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value)


def bundle_config() -> Mapping[str, Any]:
    """The bundle as the CLI has read it, its defaults filled in; empty in any other program. The
    functions of a bundle are given its target and variables alone. Source: `_parse_args` and
    `python_mutator` of `databricks.bundles.build`; `runPythonMutator` in
    https://github.com/databricks/cli/blob/main/bundle/config/mutator/python/python_mutator.go"""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--phase")
    parser.add_argument("--input", type=Path)
    given, _ = parser.parse_known_args(sys.argv[1:])
    if given.phase is None or given.input is None:
        return {}
    try:
        config: Any = json.loads(given.input.read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def sync_findings(config: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Whether a deploy uploads the folder of what is launched, as one that launches can use: git
    ignores it, so it must be included."""
    if not config:
        return
    if (config.get("experimental") or {}).get("immutable_folder"):
        yield Diagnostic(
            code="bundle_sync",
            summary="the bundle has `experimental.immutable_folder`, and launches write their "
            "results into the folder that it is deployed to",
            hint="remove this setting from databricks.yml",
        )
    patterns = [
        str(one).removeprefix("./") for one in (config.get("sync") or {}).get("include") or ()
    ]
    if any(one.rstrip("/*") == FOLDER for one in patterns):
        return
    above = next((one for one in patterns if f"/{FOLDER}/" in f"/{one}/"), None)
    yield Diagnostic(
        code="bundle_sync",
        summary=f"the bundle does not upload `{FOLDER}`, which has the files of its jobs"
        if above is None
        else f"the bundle uploads `{above}`, so its root is a folder above databricks.yml",
        hint=f'add `sync: {{include: ["{FOLDER}/**"]}}` to databricks.yml'
        if above is None
        else "remove the paths that begin with `..` from `sync.paths`",
    )


def to_diagnostics(findings: Iterable[Diagnostic]) -> Diagnostics:
    """Findings as a bundle shows them."""
    shown = Diagnostics()
    for one in findings:
        if one.severity is Severity.INFO:
            continue
        error = one.severity is Severity.ERROR
        create = Diagnostics.create_error if error else Diagnostics.create_warning
        related = [f"{other.place}: {other.note}" for other in one.related]
        shown = shown.extend(
            create(
                one.summary,
                detail="\n".join((*((one.hint,) if one.hint else ()), *related)) or None,
                location=to_location(one.place),
                path=_path(one),
            )
        )
    return shown


def findings_of(error: SgpuError) -> tuple[Diagnostic, ...]:
    """An error as findings: those of the file, or itself."""
    if error.diagnostics:
        return error.diagnostics
    return (Diagnostic(code=error.code, summary=error.message, hint=error.hint),)


def to_location(place: Place | None) -> Location | None:
    """A place as a bundle has it. An option has none."""
    if place is None or place.is_option:
        return None
    return Location(file=place.file, line=max(1, place.line), column=max(1, place.column))


def _path(finding: Diagnostic) -> tuple[str, ...] | None:
    kind, _, name = (finding.address or "").partition(".")
    return ("resources", "jobs", name.partition("[")[0]) if kind == "job" else None
