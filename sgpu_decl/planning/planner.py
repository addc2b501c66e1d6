"""The plan: what is wanted, recorded and observed goes in; every change and its reason comes out.

Nothing is read here. The same input gives the same plan.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef, AttemptStatus
from sgpu_decl.model.desired import Desired
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.job import DesiredJob, ObservedJob
from sgpu_decl.model.plan import Action, Change, Check, Plan, Summary
from sgpu_decl.model.state import State
from sgpu_decl.planning.capabilities import TODAY, Capabilities
from sgpu_decl.planning.changing import Options, change_of
from sgpu_decl.planning.equipping import environment_change, interpreter_checks
from sgpu_decl.planning.estimating import Spending
from sgpu_decl.planning.introducing import NewFields
from sgpu_decl.planning.jobs.changing import job_change
from sgpu_decl.planning.linting import check_of, lint
from sgpu_decl.planning.pooling import pool_checks
from sgpu_decl.planning.removing import destroyed, removed
from sgpu_decl.planning.standing import NOWHERE, Standing, standings

__all__ = ["Request", "plan"]

_NONE = Capabilities()
_NO_PLACE = Place("", 0, 0)
_SEVERITIES = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for on the command line, resolved to addresses.

    `select` is what remains of `--select` and `--exclude`, None for everything. `on_active` wins
    over the field. `whole_project` is false for a run file, which covers its own run and matrix
    cells alone and never removes a run of another name. `destroy` plans the end of all that the
    file owns, listed or not.
    """

    target: str | None = None
    project: str = ""
    rerun: frozenset[Address] = frozenset()
    select: frozenset[Address] | None = None
    retry_failed: bool = False
    on_active: str | None = None
    whole_project: bool = True
    destroy: bool = False

    def selects(self, address: Address) -> bool:
        return self.select is None or address in self.select


def plan(
    *,
    desired: Sequence[Desired],
    state: State,
    observed: Mapping[AttemptRef, AttemptStatus],
    request: Request,
    owner: str | None,
    now: datetime,
    tool_version: str,
    config_digest: str,
    findings: Sequence[Diagnostic] = (),
    capabilities: Mapping[str, Capabilities] = TODAY,
    jobs: Sequence[DesiredJob] = (),
    seen_jobs: Mapping[Address, ObservedJob] = MappingProxyType({}),
) -> Plan:
    """Return the plan for `desired` and `jobs`.

    `owner` is the file that is planned, relative to the project: what it once declared and no
    longer lists is removed; None owns everything that is recorded. `findings` are those of the
    whole file; those of a run travel in its `Desired`. Of equal addresses in `desired` the first
    counts. `seen_jobs` holds every job that is planned and can be.
    """
    known = standings(state, observed)
    wanted: dict[Address, Desired] = {}
    for item in desired:
        wanted.setdefault(item.address, item)
    wanted_jobs = {job.address: job for job in jobs}
    owned = _owned(known, wanted.keys() | wanted_jobs.keys(), request, owner)
    results: list[tuple[Change, tuple[Check, ...]]] = []
    checks: list[Check] = []
    spending = Spending()
    if request.destroy:
        results += [
            destroyed(standing.resource, standing, now)
            for address, standing in owned.items()
            if standing.resource is not None and request.selects(address)
        ]
        considered = set(owned)
    else:
        declared = {it.environment.address for it in wanted.values() if it.environment}
        # Which environments are declared is not known where one could not be looked at.
        unsure = has_errors(findings)
        resting = {
            address: item
            for address, item in wanted.items()
            if item.jobs and address not in request.rerun
        }
        chosen = [
            item
            for address, item in wanted.items()
            if request.selects(address) and address not in resting
        ]
        by_jobs = [it.run for it in jobs if it.run is not None and it.address in seen_jobs]
        checks += [
            _by_job(item, request.target) for it, item in resting.items() if request.selects(it)
        ]
        new_fields = NewFields()
        for item in chosen:
            options = _options(item, request, state, now, capabilities)
            standing = known.get(item.address, NOWHERE)
            results.append(change_of(item, standing, options, new_fields))
            spending.add(results[-1][0])
        results += [
            removed(standing.resource, standing, now)
            for address, standing in owned.items()
            if standing.resource is not None
            and address not in wanted
            and address not in wanted_jobs
            and address not in declared
            and not (unsure and address.kind is Kind.ENVIRONMENT)
            and request.selects(address)
        ]
        checks += [check_of(finding, None) for finding in findings]
        checks += lint((*chosen, *by_jobs), capabilities)
        launched = [wanted[it.address] for it, _ in results if it.launches]
        checks += interpreter_checks(
            [(item, known.get(item.address, NOWHERE).current) for item in launched], state
        )
        checks += pool_checks(launched)
        environments = {
            it.environment.address: it.environment
            for it in (*chosen, *by_jobs)
            if it.environment is not None
        }
        for environment in environments.values():
            resource = state.resources.get(environment.address)
            change = environment_change(environment, resource, state.package_lists)
            results.append((change, ()))
            checks += [check_of(finding, environment.address) for finding in environment.findings]
        for address, job in wanted_jobs.items():
            if request.selects(address):
                checks += [check_of(finding, address) for finding in job.findings]
            if address in seen_jobs:
                results.append(job_change(job, seen_jobs[address], state))
        considered = wanted.keys() | owned.keys() | environments.keys() | wanted_jobs.keys()
        considered -= resting.keys()
    changes = tuple(sorted((change for change, _ in results), key=lambda item: str(item.address)))
    checks += [check for _, found in results for check in found]
    return Plan(
        tool_version=tool_version,
        target=request.target,
        project=request.project,
        destroy=request.destroy,
        lineage=state.lineage,
        serial=state.serial,
        created_at=now,
        config_digest=config_digest,
        complete=len(changes) == len(considered),
        applyable=_applyable(changes, checks),
        changes=changes,
        checks=_in_order(checks),
        estimate=spending.estimate(),
        summary=_summary(changes),
        package_lists=_package_lists(changes, wanted),
    )


def _owned(
    known: Mapping[Address, Standing],
    wanted: Collection[Address],
    request: Request,
    owner: str | None,
) -> dict[Address, Standing]:
    """Return what stands and belongs to the planned file: by its record, or by being listed."""
    names = {address.name for address in wanted}
    return {
        address: standing
        for address, standing in known.items()
        if standing.resource is not None
        and not standing.resource.gone
        and (
            address in wanted
            or (
                owner in (None, standing.resource.owner)
                and (request.whole_project or request.destroy or address.name in names)
            )
        )
    }


def _by_job(run: Desired, target: str | None) -> Check:
    listed = " and ".join(f"`{job}`" for job in run.jobs)
    return Check(
        id="launched_by_job",
        severity=Severity.INFO,
        address=run.address,
        summary=f"{listed} {'launches' if len(run.jobs) == 1 else 'launch'} it, `apply` does not",
        # Without its target the same words would make the jobs of another one.
        hint=f"`sgpu apply{f' -t {target}' if target else ''} --rerun {run.address}` launches it "
        "now",
    )


def _package_lists(
    changes: Iterable[Change], wanted: Mapping[Address, Desired]
) -> tuple[PackageList, ...]:
    """Those that the launches speak of, once each."""
    lists = {it.digest: it for it in (item.packages for item in wanted.values()) if it}
    used = {it.launch.packages_digest for it in changes if it.launch}
    return tuple(lists[digest] for digest in sorted(lists.keys() & used))


def _options(
    item: Desired,
    request: Request,
    state: State,
    now: datetime,
    capabilities: Mapping[str, Capabilities],
) -> Options:
    return Options(
        lineage=state.lineage,
        now=now,
        rerun=item.address in request.rerun,
        retry_failed=request.retry_failed,
        on_active=request.on_active,
        in_place=capabilities.get(item.backend, _NONE).in_place,
        queues=capabilities.get(item.backend, _NONE).queues,
        package_lists=state.package_lists,
    )


def _applyable(changes: Iterable[Change], checks: Iterable[Check]) -> bool:
    return any(change.action is not Action.NO_OP for change in changes) and not any(
        check.severity is Severity.ERROR for check in checks
    )


def _in_order(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Errors first, then by address and place; equal ones once."""
    return tuple(
        sorted(
            dict.fromkeys(checks),
            key=lambda check: (
                _SEVERITIES[check.severity],
                str(check.address or ""),
                check.place or _NO_PLACE,
                check.id,
                check.summary,
            ),
        )
    )


def _summary(changes: Iterable[Change]) -> Summary:
    """Environments are shown, and not counted."""
    counts = Counter(change.action for change in changes if change.kind in (Kind.RUN, Kind.JOB))
    return Summary(**{str(action): counts[action] for action in Action})
