"""Checks of runs that a bundle launches: those for which no workspace is asked."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sgpu_decl.backends.databricks.planning.databricks_survey import DatabricksSurvey
from sgpu_decl.backends.databricks.planning.pools import choose_pool
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError
from sgpu_decl.model.desired import Placement
from sgpu_decl.model.plan import PlanPlatform


class BundleSurvey(DatabricksSurvey):
    """Asks no workspace, and looks at no variables of the environment: the same files give the same
    bundle."""

    def expect(self, config: RunConfig) -> None:
        pass

    def account(self, config: RunConfig) -> PlanPlatform | None:  # noqa: ARG002  nobody's yet
        return None

    def person(self, block: BackendOptions) -> str | None:  # noqa: ARG002
        raise BackendError(
            "`${user}` is the user who plans, and a bundle is the same for all users",
            hint="use a variable, and give it a value in the target",
            code="user_in_production",
        )

    def lookup(self, block: BackendOptions, kind: str, name: str) -> str | None:  # noqa: ARG002
        raise BackendError(
            f"a bundle is made without its workspace, which would have the {kind} `{name}`",
            hint="let a variable of the bundle with the same name look it up; or give the variable "
            "the id as `default`, and `lookup: null`, in this target",
            code="no_lookup",
        )

    def placement(self, config: RunConfig) -> tuple[Placement | None, Sequence[Diagnostic]]:
        choice, findings = choose_pool(config, {})
        return (choice.placement if choice is not None else None), findings

    def check(
        self,
        config: RunConfig,
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,
    ) -> Sequence[Diagnostic]:
        return self._unasked(config, places, folder, called=called)
