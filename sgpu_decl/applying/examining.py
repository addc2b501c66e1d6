"""What a run's code imports and installs, against the environment that its ranks will find."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.bases import base_named
from sgpu_decl.environments.checking import check_base
from sgpu_decl.environments.lacking import (
    lacking_in_base,
    lacking_in_packages,
    lacking_in_snapshot,
)
from sgpu_decl.model.environment import PackageList
from sgpu_decl.staging.imports import code_names, outside_imports
from sgpu_decl.staging.installs import installs_in_code, installs_in_command
from sgpu_decl.staging.snapshot import Snapshot
from sgpu_decl.staging.sources import Source, sources

if TYPE_CHECKING:
    from sgpu_decl.agent.manifest import Manifest

__all__ = ["examine"]

Locate = Callable[[str], Place | None]


def examine(
    config: RunConfig,
    place: Locate,
    *,
    code: Snapshot | None,
    folder: Path,
    python: str | None,
    packages: PackageList | None,
    manifest: "Manifest | None",
) -> Iterator[Diagnostic]:
    """Say what is suspicious about a run's environment; nothing where that is not certain.

    Args:
        place: gives the place of a dotted field path.
        code: the run's code; places of findings in it are relative to its root.
        folder: what the paths of `env` start from.
        python, packages: of the environment that ranks find, as far as they are known.
        manifest: that of a snapshot, which knows what can be imported.
    """
    listed = packages.packages if packages else ()
    remote = str(config.backend.kind) != "local"
    yield from check_base(
        config.env,
        lambda path: place(f"env.{path}"),
        folder=folder,
        python=python,
        packages=listed,
        severity=Severity.ERROR if remote else Severity.INFO,
    )
    if code is None:
        return
    if config.command is not None:
        yield from installs_in_command(config.command, code.root, place)
    if config.entrypoint is None:
        return
    executed = sources(code.root, config.entrypoint)
    yield from installs_in_code(executed)
    if "PYTHONPATH" not in config.env.variables:
        yield from _lacking(config, executed, code, packages, manifest, remote=remote)


def _lacking(
    config: RunConfig,
    executed: tuple[Source, ...],
    code: Snapshot,
    packages: PackageList | None,
    manifest: "Manifest | None",
    *,
    remote: bool,
) -> tuple[Diagnostic, ...]:
    imports = outside_imports(executed, code_names([entry.path for entry in code.entries]))
    if manifest is not None:
        return lacking_in_snapshot(imports, manifest)
    listed = packages.packages if packages else ()
    base = base_named(config.env.base) if config.env.base and remote else None
    if base is not None:
        return lacking_in_base(imports, base.environment, listed)
    return lacking_in_packages(imports, listed) if packages is not None else ()
