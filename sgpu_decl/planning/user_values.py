"""`${user}` in the values of runs and jobs: who plans, as each platform knows the user."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from sgpu_decl.config.user_references import with_user
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.target import USER, short_name
from sgpu_decl.storing.state_store import user_name

if TYPE_CHECKING:
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
    from sgpu_decl.planning.project import Project


def with_user_values(project: "Project", loaded: "Loaded") -> "Loaded":
    """A file whose runs and jobs have the user in the place of `${user}`: the login of their
    platform, else the user of this machine. Where the platform does not say who that is, the
    reference stays: the checks of the platform say why. The titles of jobs are made later."""
    runs = [run for run in loaded.runs if USER in run.spec.text]
    jobs = [job for job in loaded.jobs if USER in job.spec.text]
    if not runs and not jobs:
        return loaded
    from sgpu_decl.planning.job_facts import DeclaredJobs

    @cache
    def who(block: "BackendOptions") -> str | None:
        survey = project.survey(str(block.kind)) if is_remote(block.kind) else None
        person = user_name() if survey is None else survey.person(block)
        return None if person is None else short_name(person)

    backend_of = DeclaredJobs.of(loaded, "").backend_of
    changed_runs = {run.address: _run(run, who) for run in runs}
    changed_jobs = {job.address: _job(job, who(backend_of(job))) for job in jobs}
    return replace(
        loaded,
        runs=tuple(changed_runs.get(run.address, run) for run in loaded.runs),
        jobs=tuple(changed_jobs.get(job.address, job) for job in loaded.jobs),
    )


def _run(run: "LoadedRun", who: "Callable[[BackendOptions], str | None]") -> "LoadedRun":
    from sgpu_decl.config.run import run_config

    user = who(run.config.backend)
    if user is None:
        return run
    spec = Spec.of(with_user(run.spec.fields, user))
    config = run_config(run.address.name, spec)
    kept = {"renamed_from": run.config.renamed_from}
    return replace(run, spec=spec, config=config.model_copy(update=kept))


def _job(job: "LoadedJob", user: str | None) -> "LoadedJob":
    if user is None:
        return job
    given = job.config.model_dump(mode="json", exclude_unset=True)
    title = {"name": given["name"]} if "name" in given else {}
    config = type(job.config).model_validate({**with_user(given, user), **title})
    spec = Spec.of(config.model_dump(mode="json", exclude_defaults=True))
    return replace(job, spec=spec, config=config)
