"""Checks of the environments of runs against the code that will run in them: what it imports and
installs. Runs that share both are checked once."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.code.code_packages import (
    code_names,
    installs_in_code,
    installs_in_command,
    may_install,
    outside_imports,
    script_header,
)
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.site_folders import active_environments, has_module
from sgpu_decl.model.backend_kinds import bases_of, is_remote, may_have_base
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import DesiredEnvironment, PackageList
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.planning.environment_facts import DeclaredEnvironments
from sgpu_decl.planning.finding_places import placed

if TYPE_CHECKING:
    from sgpu_decl.code.sources import Source
    from sgpu_decl.config.loaded import LoadedRun
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


class EnvironmentChecks:
    """Paths in the YAML start from `folder`; `owner` is the file that declares the runs."""

    def __init__(self, environments: DeclaredEnvironments, folder: Path, owner: str) -> None:
        self._environments = environments
        self._folder = folder
        self._owner = owner
        self._examined: dict[tuple[object, ...], tuple[Diagnostic, ...]] = {}
        self.findings: list[Diagnostic] = []

    def environment(
        self, run: "LoadedRun", interpreter: Interpreter | None
    ) -> DesiredEnvironment | None:
        """The environment that a run declares, if this machine makes it. The interpreter is the one
        that it is made for."""
        config = run.config
        if interpreter is None:
            return None  # the backend's survey has reported it, or the platform makes it
        environment, findings = self._environments.look(
            run.address,
            config.env,
            backend=str(config.backend.kind),
            owner=self._owner,
            folder=self._folder,
            places=run.places,
            interpreter=interpreter,
            limit=config.backend.environment_limit.bytes,
        )
        self.findings.extend(placed(findings, run.places, f"env.{config.env.origins[0]}"))
        return environment

    def examine(
        self,
        run: "LoadedRun",
        code: Snapshot | None,
        environment: DesiredEnvironment | None,
        interpreter: Interpreter | None,
        importable: Callable[[str], bool],
        executed: "Callable[[Snapshot, Sequence[str]], Sequence[Source]]",
    ) -> tuple[Diagnostic, ...]:
        """Check that the code and its environment go together.

        Returns:
            The findings about the code; their places are relative to its root.

        Args:
            importable: says whether the interpreter may find a top-level package.
            executed: gives the files of the code that an entrypoint executes.
        """
        config, env = run.config, run.config.env
        if config.entrypoint is None and env.base is None and not may_install(config.command or ""):
            return ()  # all that is left to look at
        if env.origins and environment is None and not on_base(config):
            return ()  # `environment` has reported why
        digest = environment.digest if environment else None
        run_key = (config.entrypoint, str(config.command), config.backend.kind, env.python)
        env_key = (env.base, env.dependencies, env.requirements, "PYTHONPATH" in env.variables)
        key = (digest, code and code.digest, *run_key, *env_key)
        if key not in self._examined:
            self._examined[key] = self._examine(
                run, code, environment, interpreter, importable, executed
            )
        return self._examined[key]

    def _examine(
        self,
        run: "LoadedRun",
        code: Snapshot | None,
        environment: DesiredEnvironment | None,
        interpreter: Interpreter | None,
        importable: Callable[[str], bool],
        executed: "Callable[[Snapshot, Sequence[str]], Sequence[Source]]",
    ) -> tuple[Diagnostic, ...]:
        config, env = run.config, run.config.env
        package_source = environment or interpreter
        digest = environment.digest if environment else None
        manifest = self._environments.manifest(digest) if digest else None
        place = partial(place_of, run.places)
        if env.base is not None:
            from sgpu_decl.environments.package_lists.base_checks import check_base

            packages = package_source.packages if package_source else None
            version = interpreter.version if interpreter else None
            self.findings.extend(
                check_base(
                    env,
                    lambda field: place(f"env.{field}"),
                    folder=self._folder,
                    python=manifest.python.version if manifest else version,
                    packages=packages.packages if packages else (),
                    severity=Severity.ERROR if on_base(config) else Severity.INFO,
                    bases=bases_of(config.backend.kind),
                    may_exist=may_have_base(env.base, config.backend.kind),
                )
            )
        if code is None or (env.origins and environment is None):
            return ()  # nothing here knows what the platform will have installed
        return tuple(
            examine(
                config,
                place,
                code=code,
                executed=executed(code, (config.entrypoint,)) if config.entrypoint else (),
                packages=environment.packages if environment else None,
                manifest=manifest,
                importable=importable,
                elsewhere=self._elsewhere,
            )
        )

    def _elsewhere(self, name: str) -> str | None:
        """The interpreter of an environment of the user that has a top-level package."""
        environments = active_environments(os.environ, self._folder)
        return next((python for python, home in environments if has_module(home, name)), None)
