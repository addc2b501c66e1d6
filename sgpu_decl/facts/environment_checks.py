"""The declared environments of runs, against the code that is to run in them: once for all runs
that share both."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.kinds import bases_of
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.facts.environment_facts import DeclaredEnvironments
from sgpu_decl.facts.finding_places import locator, placed
from sgpu_decl.facts.import_checks import examine, on_base
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import DesiredEnvironment
from sgpu_decl.staging.snapshot import Snapshot

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import LoadedRun

__all__ = ["EnvironmentChecks"]


class EnvironmentChecks:
    """Looks at environments. `folder` is what paths in the YAML start from, `owner` the file that
    declares them."""

    def __init__(self, equipment: DeclaredEnvironments, folder: Path, owner: str) -> None:
        self._equipment = equipment
        self._folder = folder
        self._owner = owner
        self._examined: set[tuple[object, ...]] = set()
        self.findings: list[Diagnostic] = []

    def environment(
        self, run: "LoadedRun", interpreter: Interpreter | None
    ) -> DesiredEnvironment | None:
        """The environment that a run declares and that is made here, for an interpreter."""
        config = run.config
        if interpreter is None:
            return None  # said by the backend's survey, or made by the platform
        made, findings = self._equipment.look(
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
        return made

    def examine(
        self,
        run: "LoadedRun",
        taken: Snapshot | None,
        environment: DesiredEnvironment | None,
        interpreter: Interpreter | None,
        importable: Callable[[str], bool],
    ) -> tuple[Diagnostic, ...]:
        """Find what does not go together; returns what is said of the code, with places that are
        relative to its root.

        Args:
            importable: says whether the interpreter may find a top-level package.
        """
        config, env = run.config, run.config.env
        used = environment or interpreter
        if env.origins and environment is None and not on_base(config):
            return ()  # what is wrong with it was said
        digest = environment.digest if environment else None
        given = (config.entrypoint, str(config.command), config.backend.kind, env.python)
        asked = (env.base, env.dependencies, env.requirements, "PYTHONPATH" in env.variables)
        key = (digest, taken and taken.digest, *given, *asked)
        if key in self._examined:
            return ()
        self._examined.add(key)
        manifest = self._equipment.manifest(digest) if digest else None
        place = locator(run.places)
        if env.base is not None:
            from sgpu_decl.environments.package_lists.base_checks import check_base

            packages = used.packages if used else None
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
                )
            )
        if taken is None or (env.origins and environment is None):
            return ()  # what the platform will have installed is not known here
        return tuple(
            examine(
                config,
                place,
                code=taken,
                packages=environment.packages if environment else None,
                manifest=manifest,
                importable=importable,
            )
        )
