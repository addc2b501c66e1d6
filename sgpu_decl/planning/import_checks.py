"""Checks of what a run's code imports and installs against the environment of its ranks."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.code.installs import installs_in_code, installs_in_command
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.backend_kinds import bases_of, is_remote
from sgpu_decl.model.environment import PackageList

if TYPE_CHECKING:
    from sgpu_decl.code.sources import Source
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.content.manifest import Manifest

Locate = Callable[[str], Place | None]


def examine(
    config: "RunConfig",
    place: Locate,
    *,
    code: Snapshot,
    executed: "Sequence[Source]",
    packages: PackageList | None,
    manifest: "Manifest | None",
    importable: Callable[[str], bool],
    elsewhere: Callable[[str], str | None],
) -> Iterator[Diagnostic]:
    """Find imports and installs of a run's code that do not fit its environment, where that is
    certain. Places in the code are relative to its root.

    Args:
        place: gives the place of a dotted field path.
        executed: the files that its entrypoint executes.
        packages: those of a declared environment.
        manifest: that of a snapshot, which knows what can be imported.
        importable: says whether the interpreter that runs sgpu may find a top-level package.
        elsewhere: gives the interpreter of an environment of the user that has one.
    """
    if config.command is not None:
        yield from installs_in_command(config.command, code.root, place)
    if config.entrypoint is None:
        return
    from sgpu_decl.code.imports import code_names, outside_imports
    from sgpu_decl.environments.package_lists.base_environments import base_named
    from sgpu_decl.environments.package_lists.missing_imports import (
        lacking_in_base,
        lacking_in_interpreter,
        lacking_in_packages,
        lacking_in_snapshot,
    )

    yield from installs_in_code(executed)
    yield from _unused_header(config, code)
    if "PYTHONPATH" in config.env.variables:
        return  # it may lead to any package
    imports = outside_imports(executed, code_names([entry.path for entry in code.entries]))
    known = bases_of(config.backend.kind) if on_base(config) else ()
    base = base_named(config.env.base or "", known)
    if manifest is not None:
        yield from lacking_in_snapshot(imports, manifest)
    elif base is not None:
        yield from lacking_in_base(imports, base.environment, packages.packages if packages else ())
    elif packages is not None:
        yield from lacking_in_packages(imports, packages.packages)
    else:
        yield from lacking_in_interpreter(imports, importable, elsewhere)


def on_base(config: "RunConfig") -> bool:
    """Whether ranks run on the base environment; on this machine there is none."""
    return is_remote(config.backend.kind)


def _unused_header(config: "RunConfig", code: Snapshot) -> Iterator[Diagnostic]:
    """Say that ranks do not get what the header of a script lists (PEP 723)."""
    from sgpu_decl.code.script_header import script_header

    script = (config.entrypoint or "").partition(":")[0]
    env = config.env
    if not script.endswith(".py") or env.use or set(env.origins) - {"base"}:
        return
    header = script_header(code.root / script)
    if header is None or not header.dependencies:
        return
    listed = ", ".join(json.dumps(item, ensure_ascii=False) for item in header.dependencies)
    yield Diagnostic(
        code="script_header_unused",
        severity=Severity.INFO,
        summary=f"the header of `{script}` lists packages (PEP 723), and ranks do not get them",
        place=Place(script, header.line, 1),
        hint=f"declare them: `env: {{dependencies: [{listed}]}}`",
    )
