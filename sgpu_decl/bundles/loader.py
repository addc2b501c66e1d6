"""`load_resources`: the jobs of a project, as a bundle takes them."""

from collections.abc import Iterator, Mapping
from typing import Any

from databricks.bundles.core import Bundle, Resources
from databricks.bundles.jobs import Job

from sgpu_decl.bundles.bundle_folder import KEEP
from sgpu_decl.bundles.bundle_program import (
    bundle_config,
    findings_of,
    project_of,
    sync_findings,
    to_diagnostics,
    to_location,
)
from sgpu_decl.bundles.bundled_jobs import BundledJobs, bundled_jobs
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.errors import SgpuError


def load_resources(bundle: Bundle) -> Resources:
    """The jobs of the `sgpu.yml` beside `databricks.yml`, for `python.resources` of the bundle.

    What they launch is written into the folder `sgpu`, which the bundle uploads. No workspace is
    asked. What is wrong is in the diagnostics of the result, with its place, and is never raised.
    """
    resources: Resources = Resources()  # type: ignore[no-untyped-call]  # the library's
    config = bundle_config()
    try:
        found = bundled_jobs(project_of(bundle), keep=KEEP)
    except SgpuError as error:
        resources.add_diagnostics(to_diagnostics(findings_of(error)))
        return resources
    about_sync = sync_findings(config) if found.jobs else ()
    findings = (*found.findings, *_taken(found, config), *about_sync)
    resources.add_diagnostics(to_diagnostics(findings))
    if has_errors(findings):
        return resources
    for job in found.jobs:
        path = ("resources", "jobs", job.name)
        resources.add_job(job.name, Job.from_dict(job.resource), location=to_location(job.place))  # type: ignore[arg-type]  # as tested
        for setting, place in job.places.items():
            if (location := to_location(place)) is not None:
                resources.add_location((*path, *setting.split(".")), location)
    return resources


def _taken(found: BundledJobs, config: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Jobs of the file that the bundle has itself: the loader would put ours in their place."""
    taken = (config.get("resources") or {}).get("jobs") or {}
    for job in found.jobs:
        if job.name in taken:
            yield Diagnostic(
                code="bundle_has_job",
                address=f"job.{job.name}",
                summary=f"the bundle has a job `{job.name}` already, and `sgpu.yml` has one too",
                place=job.place,
                hint="rename one of them. To launch a run from the job of the bundle, take the job "
                "out of `sgpu.yml`, and give a task the description `sgpu: NAME`",
            )
