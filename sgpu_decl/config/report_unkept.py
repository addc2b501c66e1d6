"""The warning that the page of `report: true` has no MLflow run to go to."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place

if TYPE_CHECKING:
    from sgpu_decl.config.run_reader import DeclaredRun

__all__ = ["report_unkept", "unkept_reports"]


def unkept_reports(
    runs: "Iterable[DeclaredRun]", places: Mapping[str, Place]
) -> tuple[Diagnostic, ...]:
    """Warn of runs that are not tracked."""
    if not any(run.config.report and not run.config.mlflow.enabled for run in runs):
        return ()
    return (report_unkept("`mlflow.enabled` is false", places),)


def report_unkept(why: str, places: Mapping[str, Place]) -> Diagnostic:
    """That there is none, and `why`."""
    return Diagnostic(
        code="report_unkept",
        severity=Severity.WARNING,
        summary=f"`report` adds the page to no MLflow run: {why}",
        place=places.get("report"),
        hint="remove `report`: `sgpu report` writes the page to a file",
    )
