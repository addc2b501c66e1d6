"""The plan: desired, recorded and observed state goes in; every change and its reason comes out.

Nothing is read here. The same input gives the same plan.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.backend_kinds import Capabilities
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.plan import Action, Cause, Change, Plan, Reason, Summary
from sgpu_decl.model.state import Resource, State
from sgpu_decl.planner.attempt_checks import unseen_checks
from sgpu_decl.planner.environment_changes import environment_change, interpreter_checks
from sgpu_decl.planner.estimate import Spending
from sgpu_decl.planner.field_changes import CellFields
from sgpu_decl.planner.jobs.launched_run import launches_of
from sgpu_decl.planner.last_known import (
    NO_ATTEMPTS,
    CurrentAttempts,
    current_attempts,
    prior_of,
)
from sgpu_decl.planner.launch_checks import placement_checks, ray_checks
from sgpu_decl.planner.left_out import left_out_checks
from sgpu_decl.planner.plan_checks import check_of, found_check, run_checks
from sgpu_decl.planner.plan_inputs import PlanInputs, PlanRequest
from sgpu_decl.planner.removals import destroyed, managed_elsewhere, released, removed
from sgpu_decl.planner.renames import (
    Moves,
    has_history,
    moved,
    moved_views,
    moves_of,
    rename_checks,
)
from sgpu_decl.planner.run_changes import Options, change_of
from sgpu_decl.planner.run_order import RunOrder, join_checks

if TYPE_CHECKING:
    from sgpu_decl.model.job import DesiredJob

_Changed = tuple[Change, tuple[Diagnostic, ...]]
_Ending = Callable[[Resource, CurrentAttempts, datetime], _Changed]

_NONE = Capabilities()
_NO_PLACE = Place("", 0, 0)
_SEVERITIES = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def plan(inputs: PlanInputs) -> Plan:
    """Return the plan for what is desired."""
    request, now = inputs.request, inputs.now
    moves = moves_of(inputs.renames, inputs.state)
    state = moved(inputs.state, moves)
    known = current_attempts(state, moved_views(inputs.observed, moves))
    desired_runs: dict[Address, DesiredRun] = {}
    for item in inputs.desired:
        desired_runs.setdefault(item.address, item)
    desired_jobs = {job.address: job for job in inputs.jobs}
    listed = desired_runs.keys() | desired_jobs.keys()
    owned = _owned(known, listed, request)
    parts = _PlanParts(state, known, inputs)
    considered, all_answered = set(owned), True
    if request.destroy:
        parts.end(owned, destroyed)
    else:
        resting = {one.address: one for one in desired_runs.values() if _rests(one, request)}
        selected_runs = [
            item
            for address, item in desired_runs.items()
            if request.selects(address) and address not in resting
        ]
        parts.runs(selected_runs, RunOrder(desired_runs.values(), known))
        by_jobs = [
            run for one in inputs.jobs if one.address in inputs.seen_jobs for run in one.runs
        ]
        environments = parts.environments((*selected_runs, *by_jobs))
        parts.jobs(desired_jobs)
        declared = {one.environment.address for one in desired_runs.values() if one.environment}
        # Which environments are declared is not known where one could not be looked at.
        unsure = has_errors(inputs.findings)
        unlisted = {
            address: attempts
            for address, attempts in owned.items()
            if address not in listed
            and address not in declared
            and not (unsure and address.kind is Kind.ENVIRONMENT)
        }
        parts.end(unlisted, removed)
        parts.checks += _likely_renames(
            (change for change, _ in parts.results),
            {**desired_runs, **desired_jobs},
            known,
            request,
            renamed={item.address for item in inputs.renames},
        )
        parts.checks += [found_check(one, inputs.found_for.get(one, ())) for one in inputs.findings]
        parts.checks += left_out_checks(known, request)
        all_answered = not any(finding.incomplete for finding in inputs.findings)
        parts.checks += run_checks((*selected_runs, *by_jobs), inputs.capabilities)
        parts.checks += [_by_job(item) for one, item in resting.items() if request.selects(one)]
        considered |= listed | environments
        considered -= resting.keys()
    planned = {
        change.address: _with_silence(change, known.get(change.address, NO_ATTEMPTS))
        for change, _ in parts.results
    }
    parts.checks += unseen_checks(known.get(address, NO_ATTEMPTS) for address in planned)
    unplanned = (_only_moved(known[address]) for address in moves if address not in planned)
    changes = tuple(
        sorted(
            (_with_move(change, moves) for change in (*planned.values(), *unplanned)),
            key=lambda one: str(one.address),
        )
    )
    checks = [*parts.checks, *rename_checks(inputs, moves)]
    checks += [check for _, own_checks in parts.results for check in own_checks]
    if request.strict:
        checks = [_as_error(check) for check in checks]
    return Plan(
        tool_version=inputs.tool_version,
        target=request.target,
        project=request.project,
        destroy=request.destroy,
        lineage=state.lineage,
        serial=state.serial,
        created_at=now,
        config_digest=inputs.config_digest,
        complete=all_answered and len(planned) == len(considered),
        applyable=is_applyable(changes, checks),
        changes=changes,
        checks=_in_order(checks),
        estimate=parts.spending.estimate(),
        summary=summary_of(changes),
        package_lists=_package_lists(changes, desired_runs),
    )


class _PlanParts:
    """The parts of a plan as they are collected: changes with the checks about each, and other
    checks."""

    def __init__(
        self, state: State, known: Mapping[Address, CurrentAttempts], inputs: PlanInputs
    ) -> None:
        self._state = state
        self._known = known
        self._inputs = inputs
        self._request = inputs.request
        self.results: list[_Changed] = []
        self.checks: list[Diagnostic] = []
        self.spending = Spending()

    def runs(self, selected_runs: Sequence[DesiredRun], order: RunOrder) -> None:
        """Add the changes of runs, and check where those that are launched will run."""
        launched, launches = [], []
        capabilities = self._inputs.capabilities
        cells = CellFields()
        for run in order.sorted(selected_runs):
            item = order.pinned(run)
            options = _options(item, self._inputs, self._state)
            change, checks = change_of(item, self._attempts_of(item.address), options, cells)
            result = order.settled(item, change, checks)
            self.results.append(result)
            can = capabilities.get(item.backend, _NONE)
            if "after" in can.fields:
                self.checks += order.elsewhere(item)
            if can.joins:
                self.checks += order.not_joined(item, result[0])
            self.spending.add(result[0])
            if result[0].launches:
                launched.append(item)
                launches.append(result[0])
        self.checks += interpreter_checks(
            [(item, self._attempts_of(item.address).current) for item in launched], self._state
        )
        self.checks += (*placement_checks(launched, launches), *ray_checks(launched))
        by_address = {item.address: item for item in launched}
        self.checks += join_checks(by_address, launches, capabilities)

    def environments(self, used: Iterable[DesiredRun]) -> set[Address]:
        """The environments that runs declare, once each; returns their addresses."""
        declared = {item.environment.address: item.environment for item in used if item.environment}
        for address, environment in declared.items():
            before = self._state.resources.get(address)
            change = environment_change(environment, before, self._state.package_lists)
            self.results.append((change, ()))
            self.checks += [check_of(finding, address) for finding in environment.findings]
        return set(declared)

    def jobs(self, desired_jobs: "Mapping[Address, DesiredJob]") -> None:
        """Add the changes of jobs, and the findings of those that cannot be planned."""
        if not desired_jobs:
            return
        from sgpu_decl.planner.jobs.job_diff import job_change

        for address, job in desired_jobs.items():
            if self._request.selects(address):
                self.checks += [check_of(finding, address) for finding in job.findings]
            if (seen := self._inputs.seen_jobs.get(address)) is not None:
                self.results.append(job_change(job, seen, self._state))

    def end(self, attempts: Mapping[Address, CurrentAttempts], how: _Ending) -> None:
        """Add the changes of resources that the file no longer declares."""
        for address, item in attempts.items():
            if item.resource is None or not self._request.selects(address):
                continue
            lets_go = self._request.lets_go(address) or address in self._request.managed
            ended = (released if lets_go else how)(item.resource, item, self._inputs.now)
            self.results.append(ended)
            if (manager := self._request.managed.get(address)) is not None:
                self.checks.append(managed_elsewhere(address, manager))

    def _attempts_of(self, address: Address) -> CurrentAttempts:
        return self._known.get(address, NO_ATTEMPTS)


def _with_move(change: Change, moves: Moves) -> Change:
    before = moves.get(change.address)
    return change if before is None else replace(change, moved_from=before)


def _with_silence(change: Change, attempts: CurrentAttempts) -> Change:
    """The change, with the reason why the attempt that it is about cannot be asked now."""
    number = change.prior.attempt if change.prior is not None else None
    reasons = (view.unavailable for view in attempts.unseen if view.ref.number == number)
    reason = next(reasons, None)
    return change if reason is None else replace(change, unavailable=reason)


def _only_moved(attempts: CurrentAttempts) -> Change:
    """What is moved, and is not planned: it is not selected, or a job launches it."""
    resource = attempts.resource
    assert resource is not None  # noqa: S101  what is moved is recorded
    return Change(
        address=resource.address,
        kind=resource.address.kind,
        backend=resource.backend,
        action=Action.NO_OP,
        reason=Reason.UP_TO_DATE,
        prior=prior_of(attempts.current) if attempts.current else None,
    )


def _rests(run: DesiredRun, request: PlanRequest) -> bool:
    """Whether a job launches the run, so that apply does not."""
    return bool(run.jobs) and run.address not in request.rerun


def _owned(
    known: Mapping[Address, CurrentAttempts],
    declared: Collection[Address],
    request: PlanRequest,
) -> dict[Address, CurrentAttempts]:
    """Return the resources of the planned file: it declares them, or its record says so."""
    names = {address.name for address in declared}
    return {
        address: attempts
        for address, attempts in known.items()
        if attempts.resource is not None
        and not attempts.resource.gone
        and (request.destroy or not request.leaves_out(address))
        and (
            address in declared
            or (
                (request.removes or request.destroy)
                and request.owns(attempts.resource.owner)
                and (request.whole_project or request.destroy or address.name in names)
            )
        )
    }


def _likely_renames(
    changes: Iterable[Change],
    declared: "Mapping[Address, DesiredRun | DesiredJob]",
    known: Mapping[Address, CurrentAttempts],
    request: PlanRequest,
    *,
    renamed: Collection[Address],
) -> Iterable[Diagnostic]:
    """What the file probably renames without `renamed_from`. A run file may do that, too, and be
    renamed itself."""
    first = [
        declared[one.address]
        for one in changes
        if one.reason is Reason.FIRST_RUN
        and one.address in declared
        and replace(one.address, key="") not in renamed
        and not has_history(known.get(one.address, NO_ATTEMPTS).resource)
    ]
    names = {replace(address, key="") for address in declared}
    undeclared = {
        address: attempts
        for address, attempts in known.items()
        if attempts.resource is not None
        and not attempts.resource.gone
        and (request.owns(attempts.resource.owner) or attempts.resource.owner in request.lost_files)
        and replace(address, key="") not in names
        and not request.lets_go(address)
        and not request.leaves_out(address)
        and address not in request.left_out
    }
    if not request.removes or not first or not undeclared:
        return ()
    from sgpu_decl.planner.likely_renames import likely_renames

    return likely_renames(first, undeclared)


def _by_job(run: DesiredRun) -> Diagnostic:
    listed = " and ".join(f"`{job}`" for job in run.jobs)
    return Diagnostic(
        code="launched_by_job",
        severity=Severity.INFO,
        address=str(run.address),
        summary=f"{listed} {'launches' if len(run.jobs) == 1 else 'launch'} it, `apply` does not",
        hint=f"`sgpu apply --rerun {run.address}` launches it now",
    )


def _package_lists(
    changes: Iterable[Change], desired_runs: Mapping[Address, DesiredRun]
) -> tuple[PackageList, ...]:
    """The package lists that launches refer to, each once."""
    lists = {one.digest: one for one in (item.packages for item in desired_runs.values()) if one}
    used = {inputs.packages_digest for change in changes for inputs in launches_of(change)}
    return tuple(lists[digest] for digest in sorted(lists.keys() & used))


def _options(item: DesiredRun, inputs: PlanInputs, state: State) -> Options:
    request, can = inputs.request, inputs.capabilities.get(item.backend, _NONE)
    return Options(
        lineage=state.lineage,
        now=inputs.now,
        rerun=item.address in request.rerun,
        retry_failed=request.retry_failed,
        heal=request.heal,
        on_active=request.on_active,
        in_place=can.in_place,
        queues=can.queues,
        package_lists=state.package_lists,
    )


def _as_error(check: Diagnostic) -> Diagnostic:
    return replace(check, severity=Severity.ERROR) if check.severity is Severity.WARNING else check


def with_infos(plan: Plan, infos: Iterable[Diagnostic]) -> Plan:
    """The plan with more checks, which refuse nothing: what is asked of backends once it is known
    what the plan launches."""
    return replace(plan, checks=_in_order((*plan.checks, *infos)))


def is_applyable(changes: Iterable[Change], checks: Iterable[Diagnostic]) -> bool:
    """Whether applying these changes would do something, and no check refuses it."""
    return not all(change.idle for change in changes) and not any(
        check.severity is Severity.ERROR for check in checks
    )


def _in_order(checks: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Errors first, then by address and place; equal ones once."""
    return tuple(
        sorted(
            dict.fromkeys(checks),
            key=lambda check: (
                _SEVERITIES[check.severity],
                check.address or "",
                check.place or _NO_PLACE,
                check.code,
                check.summary,
            ),
        )
    )


def summary_of(changes: Iterable[Change]) -> Summary:
    """Environments are shown, and not counted; nor is what a base would do, and this plan does
    not."""
    counts = Counter(
        change.action
        for change in changes
        if change.kind in (Kind.RUN, Kind.JOB) and change.cause is not Cause.WITHDRAWN
    )
    return Summary(**{str(action): counts[action] for action in Action})
