"""From the file of a project to a prepared plan."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl import __version__
from sgpu_decl.backends.launch_request import config_of
from sgpu_decl.config.renames import renames_of
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError, InvalidInput, NotFound, Usage
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.backend_kinds import capabilities_of
from sgpu_decl.model.plan import Change, Plan
from sgpu_decl.model.plan_options import ON_ACTIVE, PlanOptions
from sgpu_decl.model.run_usage import MEASURED, RunUsage
from sgpu_decl.model.selectors import match_addresses
from sgpu_decl.model.state import State
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.model.target import BASE
from sgpu_decl.planner import planner
from sgpu_decl.planner.estimate import gpus_of
from sgpu_decl.planner.launch_checks import resume_checks
from sgpu_decl.planner.needs import needed_by_active
from sgpu_decl.planner.plan_inputs import PlanInputs, PlanRequest
from sgpu_decl.planner.renames import moved, moves_of
from sgpu_decl.planner.usage_checks import PAST_ATTEMPTS, usage_checks
from sgpu_decl.planning.checkout import Checkout, production_checks
from sgpu_decl.planning.job_facts import DeclaredJobs, desire, managers, observe_jobs
from sgpu_decl.planning.live_state import observe
from sgpu_decl.planning.location import absolute
from sgpu_decl.planning.lost_state import lost_state_checks
from sgpu_decl.planning.ownership import lost_files
from sgpu_decl.planning.plan_facts import PlanFacts, gather
from sgpu_decl.planning.prepared import Prepared
from sgpu_decl.planning.project import Project, now
from sgpu_decl.planning.target_rules import rule_checks

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import Loaded
    from sgpu_decl.model.job import DesiredJob, ObservedJob

_NOTED = 20  # launches of which a plan says what the attempts before used


def prepare(
    project: Project,
    options: PlanOptions,
    *,
    progress: Progress | None,
    for_apply: bool,
    base: str | None = None,
) -> Prepared:
    """Make the plan of what apply would do.

    Args:
        for_apply: what has to be read of an environment goes into the store in the same pass.
        base: the id of a commit; each change then has a cause: this branch, or what the files at
            that commit would do as well.

    Raises:
        InvalidInput: the file holds errors.
        NotFound: an option names no run, or there is no file.
        Usage: `rerun` names what `select` and `exclude` leave out.
    """
    if options.on_active not in (None, *ON_ACTIVE):
        names = ", ".join(f"`{name}`" for name in ON_ACTIVE)
        raise Usage(f"`on_active` is one of {names}, not `{options.on_active}`")
    recorded = project.state()
    checkout = Checkout(project.root)
    gathered = _facts(
        project,
        options,
        recorded,
        checkout,
        progress=progress,
        for_apply=for_apply,
    )
    believed = project.believed(recorded)
    state = moved(believed, moves_of(gathered.renames, believed))
    declared = {desired.address for desired in gathered.desired} | gathered.jobs.addresses
    known = declared | {
        address for address, resource in state.resources.items() if not resource.gone
    }
    # runs that are named to be destroyed may be those of any file, unless a file is named too
    named = bool(options.destroy and options.select and project.location.file is None)
    owner = None if named else project.owner
    others = {
        address
        for address, resource in state.resources.items()
        if owner is not None and resource.owner != owner
    }
    _refuse_left_out(project, options, gathered.left_out, declared)
    select = _selection(options, known, others - declared)
    request = PlanRequest(
        owner=owner,
        target=project.target,
        project=os.fspath(project.root),
        rerun=_rerun(options, known, declared if select is None else declared & select),
        select=select,
        retry_failed=options.retry_failed,
        heal=options.heal,
        on_active=options.on_active,
        whole_project=gathered.whole_project,
        destroy=options.destroy,
        removes=options.removes,
        strict=options.strict,
        lost_files=lost_files(project.root, {state.resources[one].owner for one in others}),
    )
    jobs = _jobs(project, gathered.jobs, state, select)
    ended = [
        resource
        for address, resource in state.resources.items()
        if resource.address.kind is Kind.JOB
        and request.ends(address, resource.owner, gathered.jobs.addresses)
    ]
    request = replace(request, managed=managers(ended, project.job_backend))
    seen = PlanInputs(
        request=request,
        state=believed,
        observed=observe(believed, project.backend),
        now=now(),
        tool_version=__version__,
    )
    inputs = _with_facts(seen, project, gathered, *jobs)
    plan = _with_resumes(project, inputs, planner.plan(inputs))
    plan = _with_past_usage(project, inputs, plan)
    if not for_apply and any(not change.idle for change in plan.changes):
        compared = base is not None
        plan = planner.with_infos(plan, rule_checks(project, checkout, compared=compared))
    git = checkout.head
    if base is not None and git is not None:
        plan = _compared(project, plan, base, checkout, inputs)
        git = replace(git, base=base)
    plan = replace(
        plan,
        project_name=gathered.project_name,
        platforms=gathered.platforms,
        git=git,
        values_left_out=gathered.values_left_out,
    )
    prepared = Prepared(
        plan=plan,
        checkout=checkout,
        code=gathered.snapshots,
        counted=gathered.counted,
        environments=gathered.recipes,
        copies=gathered.copies,
        keep_warm=gathered.keep_warm,
        heals=options.heal,
    )
    return prepared.with_commit() if for_apply else prepared


def _with_facts(
    seen: PlanInputs,
    project: Project,
    gathered: PlanFacts,
    jobs: "Sequence[DesiredJob]",
    seen_jobs: "Mapping[Address, ObservedJob]",
) -> PlanInputs:
    """What is seen, and what files ask for."""
    moves = moves_of(gathered.renames, seen.state)
    return replace(
        seen,
        request=replace(
            seen.request,
            let_go=gathered.removed,
            left_out=gathered.left_out,
            whole_project=gathered.whole_project,
        ),
        config_digest=gathered.config_digest,
        capabilities=capabilities_of(*{item.backend for item in gathered.desired}),
        desired=gathered.desired,
        jobs=jobs,
        seen_jobs=seen_jobs,
        findings=gathered.findings,
        found_for=gathered.found_for,
        renames=gathered.renames,
        needed=_needed(project, seen) if moves else {},
    )


def _needed(project: Project, seen: PlanInputs) -> Mapping[AttemptRef, AttemptRef]:
    everything = project.states.read_all() if seen.state.active else None
    return needed_by_active(
        attempt.seen_as(seen.observed[attempt.ref]) if attempt.ref in seen.observed else attempt
        for attempt in (everything[1] if everything is not None else ())
    )


def _compared(
    project: Project,
    plan: Plan,
    base: str,
    checkout: Checkout,
    inputs: PlanInputs,
) -> Plan:
    """The plan with what the files at the base would do, by the same state and observations. Where
    these files are not valid, all changes are those of this branch."""
    from sgpu_decl.environments.declared.requirement_inputs import fetch_files
    from sgpu_decl.planner.causes import all_caused_here, with_causes
    from sgpu_decl.planning.base_files import BaseFiles

    with BaseFiles(project, base) as files:
        there = project.at(files.root, files.file, files.values(project.location.variable_files))
        try:
            loaded = there.read(checkout).loaded
        except InvalidInput as error:
            return planner.with_infos(all_caused_here(plan), [_base_invalid(base, error)])
        folder = absolute(files.file).parent
        for root in {run.config.code.root for run in loaded.runs}:
            files.add((folder / (root or ".")).resolve())
        blocks = {
            (env.dependencies, env.requirements, env.lock): env
            for env in (run.config.env for run in loaded.runs)
        }
        for env in blocks.values():
            fetch_files(env, folder, files.add)
        renames = renames_of(loaded)
        state = moved(inputs.state, moves_of(renames, inputs.state))
        gathered = gather(there, loaded, state, renames=renames, planned=inputs.request.selects)
        select, seen = inputs.request.select, inputs.seen_jobs
        jobs = _jobs(there, gathered.jobs, state, select, seen)
    base_plan = planner.plan(_with_facts(inputs, project, gathered, *jobs))
    return with_causes(plan, base_plan, selected=inputs.request.select)


def _base_invalid(base: str, error: InvalidInput) -> Diagnostic:
    return Diagnostic(
        code="base_invalid",
        severity=Severity.WARNING,
        address=None,
        summary=f"the files at `{base[:12]}` are not valid, so all changes count as changes of "
        f"this branch: {next((one.summary for one in error.diagnostics), error.message)}",
        hint="nothing has to be done if this branch mends them",
    )


def _facts(
    project: Project,
    options: PlanOptions,
    state: State,
    checkout: Checkout,
    *,
    progress: Progress | None,
    for_apply: bool,
) -> PlanFacts:
    """What the file asks for. What it was read from, ten thousand configs maybe, is let go before
    as many changes are made."""
    if options.destroy and project.file is None:
        location = project.location
        if location.variables or location.variable_files or location.sets:
            raise Usage(
                "`--var` and `--set` change what a file says, and there is no file here",
                hint="leave them out, or name the file",
            )
        return PlanFacts()
    validated = project.read(checkout)
    loaded = validated.loaded
    if options.destroy:
        return PlanFacts(
            whole_project=loaded.kind == "project",
            config_digest=loaded.config_digest,
            project_name=loaded.project_name,
            removed=frozenset(loaded.removed),
        )
    renames, planned = renames_of(loaded), _planned(options, loaded)
    gathered = gather(
        project,
        loaded,
        moved(state, moves_of(renames, state)),
        progress=progress,
        for_apply=for_apply,
        renames=renames,
        planned=planned,
    )
    of_runs = _of_runs(loaded, validated.findings)
    about = [
        finding
        for finding in validated.findings
        if finding not in of_runs or any(map(planned, of_runs[finding]))
    ]
    names = {
        finding: tuple(dict.fromkeys(replace(one, key="") for one in runs))
        for finding, runs in of_runs.items()
    }
    refused = production_checks(project, loaded, checkout, planned)
    lost = lost_state_checks(project, loaded, state, planned)
    return replace(
        gathered,
        findings=(*about, *gathered.findings, *refused, *lost),
        found_for={**gathered.found_for, **names},
    )


def _of_runs(
    loaded: "Loaded", findings: Sequence[Diagnostic]
) -> dict[Diagnostic, tuple[Address, ...]]:
    """The runs in whose blocks findings about the file stand; none for those about all of it. Of
    several runs in one line, it is each of them, unless the place says which."""
    places = {
        finding: [finding.place, *(other.place for other in finding.related)]
        for finding in findings
        if finding.place is not None
    }
    lines = {_line(place) for listed in places.values() for place in listed}
    at: dict[object, dict[Address, None]] = {}
    for run in loaded.runs if lines else ():
        for place in run.places.values():
            if (line := _line(place)) in lines:
                at.setdefault(place, {})[run.address] = None
                at.setdefault(line, {})[run.address] = None
    found = {}
    for finding, listed in places.items():
        ways = (at.get(key) for place in listed for key in (place, _line(place)))
        if runs := next(filter(None, ways), None):
            found[finding] = tuple(runs)
    return found


def _line(place: Place) -> tuple[str, int]:
    return place.file, place.line


def _planned(options: PlanOptions, loaded: "Loaded") -> Callable[[Address], bool]:
    """Which runs and jobs of a file the options leave in the plan. What they name wrongly is
    refused later, when it is known what else there is."""
    addresses = {run.address for run in loaded.runs} | {job.address for job in loaded.jobs}
    chosen, left_out = (
        frozenset[Address]().union(*(_named(pattern, addresses) for pattern in patterns))
        for patterns in (options.select, options.exclude)
    )
    return lambda address: (not options.select or address in chosen) and address not in left_out


def _named(pattern: str, addresses: Collection[Address]) -> frozenset[Address]:
    try:
        return match_addresses([pattern], addresses)
    except NotFound:  # it may name something that is recorded alone
        return frozenset()


def _with_resumes(project: Project, inputs: PlanInputs, plan: Plan) -> Plan:
    """The plan with what its launches with `resume` find."""
    resuming = {item.address: item for item in inputs.desired if item.resumes}
    launches = [one for one in plan.changes if one.launches and one.address in resuming]
    if not launches:
        return plan
    outputs = earlier_outputs(project, inputs.state, launches)
    launched = [resuming[change.address] for change in launches]
    return planner.with_infos(plan, resume_checks(launched, outputs))


def _with_past_usage(project: Project, inputs: PlanInputs, plan: Plan) -> Plan:
    """The plan with what the last attempts of its launches used: of some launches, since nobody
    reads a note for each of many."""
    again = [
        one
        for one in plan.changes
        if one.launches and one.launch is not None and one.attempt is not None and one.attempt > 1
        if gpus_of(one.launch.inputs.spec.fields)
    ][:_NOTED]
    if not again:
        return plan
    past = {str(one.address): _past_usage(project, inputs.state, one) for one in again}
    addresses = {one.address for one in again}
    launched = [item for item in inputs.desired if item.address in addresses]
    return planner.with_infos(plan, usage_checks(launched, past))


def _past_usage(project: Project, state: State, change: Change) -> list[RunUsage]:
    """What the last attempts of a run used that were long enough, the newest first."""
    history = project.states.history(change.moved_from or change.address)
    alike = [one for one in history if one.backend == change.backend][-PAST_ATTEMPTS:]
    attempts = project.backend(change.backend).attempts
    found = [attempts.past_usage(state.launch_of(one)) for one in reversed(alike)]
    return [one for one in found if one is not None and one.seconds >= MEASURED]


def _jobs(
    project: Project,
    declared: DeclaredJobs,
    state: State,
    select: frozenset[Address] | None,
    seen: "Mapping[Address, ObservedJob]" = MappingProxyType({}),
) -> "tuple[tuple[DesiredJob, ...], dict[Address, ObservedJob]]":
    """What is wanted of jobs and what is seen of them; workspaces are asked for those alone that
    are planned, and were not `seen` before."""
    if not declared.jobs:
        return (), {}

    def planned(address: Address) -> bool:
        return select is None or address in select

    job_backends = project.job_backend
    desired = desire(declared, job_backends, planned, state.lineage, state.resources)

    def looked_at(address: Address) -> bool:
        return planned(address) and address not in seen

    observed = observe_jobs(
        declared, desired, state.resources, job_backends, looked_at, state.lineage
    )
    again = {job.address: seen[job.address] for job in desired if job.address in seen}
    return desired, {**observed, **again}


def _refuse_left_out(
    project: Project,
    options: PlanOptions,
    left_out: Collection[Address],
    declared: Collection[Address],
) -> None:
    """Refuse options that name only what the target leaves out."""
    for pattern in (*options.select, *options.rerun):
        if (hits := _named(pattern, left_out)) and not _named(pattern, declared):
            raise Usage(
                f"`{pattern}` names nothing of the target `{project.target or BASE}`, which leaves "
                f"out `{min(hits)}`",
                hint="name another target with `-t`, or change `enabled` or `targets` there",
            )


def _selection(
    options: PlanOptions, addresses: set[Address], others: set[Address]
) -> frozenset[Address] | None:
    """What is chosen of `known`; each choice must name more than `others`, those of other files."""
    if not options.select and not options.exclude:
        return None
    for pattern in options.select:
        if (matches := match_addresses([pattern], addresses)) <= others:
            raise Usage(
                f"`{pattern}` names nothing of this file: another one declares `{min(matches)}`",
                hint="name the file that declares it"
                + (", or give no file" if options.destroy else ""),
            )
    chosen = match_addresses(options.select, addresses) if options.select else frozenset(addresses)
    selected = chosen - match_addresses(options.exclude, addresses)
    if not selected:
        raise Usage(
            "`--exclude` leaves out all that is chosen",
            hint="choose something else with `--select`, or leave out less",
        )
    return selected


def _rerun(
    options: PlanOptions, addresses: set[Address], planned: Collection[Address]
) -> frozenset[Address]:
    """What is launched in any case: every `--rerun` must name something that is planned."""
    selected: frozenset[Address] = frozenset()
    for pattern in options.rerun:
        matches = match_addresses([pattern], addresses).intersection(planned)
        hits = {item for item in matches if item.kind is Kind.RUN}
        if matches and not hits:
            raise Usage(
                f"`--rerun {pattern}` cannot start a job",
                hint="`sgpu start JOB` starts a job that was applied; or name the run that it "
                "launches, to launch that as an attempt of your own",
            )
        if not hits:
            raise Usage(
                f"`--rerun {pattern}` names nothing of this plan",
                hint="choose it with `--select`, leave it out of `--exclude`, and plan the file "
                "that declares it",
            )
        selected |= hits
    return selected


def earlier_outputs(
    project: Project, state: State, launches: Iterable[Change]
) -> dict[Address, AttemptRef | None]:
    """Return the newest attempt of each run that left output where a launch looks for it: on the
    same backend, in the same storage. If its backend does not answer, a run is left out.

    Args:
        launches: changes that launch runs with `resume`.
    """
    outputs: dict[Address, AttemptRef | None] = {}
    for change in launches:
        try:
            outputs[change.address] = _earlier_output(project, state, change)
        except BackendError:  # a storage that does not answer is no reason not to plan
            continue
    return outputs


def _earlier_output(project: Project, state: State, change: Change) -> AttemptRef | None:
    assert change.launch is not None and change.attempt is not None  # noqa: S101, PT018  it launches
    config = None
    for attempt in reversed(project.states.history(change.moved_from or change.address)):
        if attempt.backend != change.backend:
            continue
        config = config or config_of(
            AttemptRef(change.address, change.attempt), change.launch.inputs
        )
        attempts = project.backend(change.backend).attempts
        if attempts.left_output(state.launch_of(attempt), config):
            return AttemptRef(change.address, attempt.ref.number)
    return None
