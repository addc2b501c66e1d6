"""Checks of declared environments against the code that will run in them. Runs that share both are
checked once."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.code.installs import may_install
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.environments.package_lists.site_folders import active_environments, has_module
from sgpu_decl.model.backend_kinds import bases_of, may_have_base
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import DesiredEnvironment
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.planning.environment_facts import DeclaredEnvironments
from sgpu_decl.planning.finding_places import placed
from sgpu_decl.planning.import_checks import examine, on_base

if TYPE_CHECKING:
    from sgpu_decl.code.sources import Source
    from sgpu_decl.config.loaded import LoadedRun


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
