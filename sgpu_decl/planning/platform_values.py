"""What the values of runs and jobs leave to their platform: `${user}`, who plans, and names that a
variable looks up."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from sgpu_decl.config.user_references import text_paths, with_texts
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.target import USER, short_name
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.storing.state_store import user_name
from sgpu_decl.text.lookups import LOOKUP, LOOKUP_START

if TYPE_CHECKING:
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
    from sgpu_decl.planning.project import Project


def with_platform_values(
    project: "Project", loaded: "Loaded"
) -> "tuple[Loaded, tuple[Diagnostic, ...]]":
    """A file whose runs and jobs have the user in the place of `${user}`, and ids in the place of
    names that are looked up, and what cannot be found. The user is the login of the platform, else
    the user of this machine. Where the platform does not say who that is, the reference stays: the
    checks of the platform say why. The titles of jobs are made later."""
    declared: list[LoadedRun | LoadedJob] = [*loaded.runs, *loaded.jobs]
    if not any(map(_leaves_something, declared)):
        return loaded, ()
    from sgpu_decl.planning.job_facts import DeclaredJobs

    names = _PlatformNames(project)
    backend_of = DeclaredJobs.of(loaded, "").backend_of
    runs = [names.run(run) if _leaves_something(run) else (run, ()) for run in loaded.runs]
    jobs = [
        names.job(job, backend_of(job)) if _leaves_something(job) else (job, ())
        for job in loaded.jobs
    ]
    findings = tuple(one for _, found in (*runs, *jobs) for one in found)
    changed = replace(
        loaded, runs=tuple(run for run, _ in runs), jobs=tuple(job for job, _ in jobs)
    )
    return changed, tuple(dict.fromkeys(findings))


def _leaves_something(one: "LoadedRun | LoadedJob") -> bool:
    return USER in one.spec.text or LOOKUP_START in one.spec.text


class _PlatformNames:
    """What platforms are asked, each once."""

    def __init__(self, project: "Project") -> None:
        self._project = project
        self._user = cache(self._ask_user)
        self._id = cache(self._ask_id)

    def run(self, run: "LoadedRun") -> "tuple[LoadedRun, tuple[Diagnostic, ...]]":
        from sgpu_decl.config.run import run_config

        findings = tuple(self._findings(run, run.spec.fields, run.config.backend))
        spec = Spec.of(self._filled(run.spec.fields, run.config.backend))
        config = run_config(run.address.name, spec)
        kept = {"renamed_from": run.config.renamed_from}
        return replace(run, spec=spec, config=config.model_copy(update=kept)), findings

    def job(
        self, job: "LoadedJob", block: "BackendOptions"
    ) -> "tuple[LoadedJob, tuple[Diagnostic, ...]]":
        given = job.config.model_dump(mode="json", exclude_unset=True)
        title = {"name": given.pop("name")} if "name" in given else {}
        findings = tuple(self._findings(job, given, block))
        config = type(job.config).model_validate({**self._filled(given, block), **title})
        spec = Spec.of(config.model_dump(mode="json", exclude_defaults=True))
        return replace(job, spec=spec, config=config), findings

    def _filled(self, fields: Mapping[str, Json], block: "BackendOptions") -> dict[str, Json]:
        def named(match: re.Match[str]) -> str:
            return self._id(block, match[1], match[2])[0] or match[0]

        def fill(text: str, *, shell: bool) -> str:
            if USER in text and not shell and (user := self._user(block)[0]) is not None:
                text = text.replace(USER, user)
            return LOOKUP.sub(named, text)

        return with_texts(fields, fill)

    def _findings(
        self,
        one: "LoadedRun | LoadedJob",
        fields: Mapping[str, Json],
        block: "BackendOptions",
    ) -> Iterator[Diagnostic]:
        for path, text in text_paths(fields, shell=False):
            if USER in text and (error := self._user(block)[1]) is not None:
                yield _finding(error, one, path)
        for path, text in text_paths(fields):
            for match in LOOKUP.finditer(text):
                _, error = self._id(block, match[1], match[2])
                if error is not None:
                    yield _finding(error, one, path)

    def _ask_user(self, block: "BackendOptions") -> tuple[str | None, SgpuError | None]:
        survey = self._project.survey(str(block.kind)) if is_remote(block.kind) else None
        try:
            person = user_name() if survey is None else survey.person(block)
        except SgpuError as error:
            return None, error
        return None if person is None else short_name(person), None

    def _ask_id(
        self, block: "BackendOptions", kind: str, name: str
    ) -> tuple[str | None, SgpuError | None]:
        survey = self._project.survey(str(block.kind))
        try:
            found = survey.lookup(block, kind, name) if survey is not None else None
        except SgpuError as error:
            return None, error
        if found is not None:
            return found, None
        return None, SgpuError(
            f"the backend `{block.kind}` cannot look up the {kind} `{name}`",
            hint="give the variable a `default` in this target, or `lookup: null` and a value",
            code="no_lookup",
        )


def _finding(error: SgpuError, one: "LoadedRun | LoadedJob", path: str) -> Diagnostic:
    place = place_of(one.places, path)
    return Diagnostic(code=error.code, summary=error.message, place=place, hint=error.hint)
