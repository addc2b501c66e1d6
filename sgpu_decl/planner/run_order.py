"""The order of runs (`after`): what a launch waits for, which runs are not launched yet, and which
launches a backend starts as one, because they wait for each other."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import TypeVar

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.backend_kinds import Capabilities, Joining
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.plan import Action, Change, Reason, Upstream
from sgpu_decl.model.run_outputs import pinned, pins, references
from sgpu_decl.planner.last_known import NO_ATTEMPTS, CurrentAttempts, prior_of
from sgpu_decl.planner.plan_checks import place_of

_LAUNCHING = (Action.CREATE, Action.REPLACE)
_ENDED = {AttemptState.CANCELLED: "was cancelled", AttemptState.LOST: "was lost"}
_Node = TypeVar("_Node", str, Address)


def _levels(upstreams: "Mapping[_Node, Collection[_Node]]") -> "dict[_Node, int]":
    """How many others are before each one in its longest chain.

    Raises:
        ValueError: there is a cycle.
    """
    from graphlib import TopologicalSorter

    sorter = TopologicalSorter(upstreams)
    sorter.prepare()
    levels: dict[_Node, int] = {}
    level = 0
    while sorter.is_active():
        ready = sorter.get_ready()
        levels.update(dict.fromkeys(ready, level))
        sorter.done(*ready)
        level += 1
    return levels


def launch_levels(changes: Iterable[Change]) -> dict[Address, int]:
    """The levels of the runs that changes launch: one of a higher level waits for a lower one.

    Raises:
        ValueError: they wait for each other.
    """
    return _levels({one.address: {other.address for other in one.after} for one in changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Where an upstream run stands. `attempt` succeeded, or will end if `waits`; it is None where
    no attempt will succeed, for the reason that `obstacle` gives with a `way_out`."""

    address: Address
    attempt: int | None = None
    waits: bool = False
    obstacle: str = ""
    way_out: str = ""


class RunOrder:
    """Plans runs in their order: each after those that it comes after.

    Args:
        declared: all runs of the file, planned or not.
        known: the attempts that are recorded.
    """

    def __init__(
        self, declared: Iterable[DesiredRun], known: Mapping[Address, CurrentAttempts]
    ) -> None:
        self._by_name: dict[str, list[DesiredRun]] = {}
        for run in declared:
            self._by_name.setdefault(run.address.name, []).append(run)
        self._known = known
        self._changes: dict[Address, Change] = {}
        self._standings: dict[tuple[str, ...], tuple[_Standing, ...]] = {}

    def sorted(self, runs: Sequence[DesiredRun]) -> Sequence[DesiredRun]:
        """The runs, each behind those that it comes after; else their order stays."""
        if not any(run.after for run in runs):
            return runs
        upstreams = {
            name: {after for run in cells for after in run.after}
            for name, cells in self._by_name.items()
        }
        level = _levels(upstreams)
        return sorted(runs, key=lambda run: level[run.address.name])

    def pinned(self, run: DesiredRun) -> DesiredRun:
        """The run with the attempts whose output it reads: those that will succeed, or else the
        ones that it read last."""
        names = references(run.spec.text)
        if not names:
            return run
        before = self._known.get(run.address, NO_ATTEMPTS).current
        attempts = pins(before.inputs.spec.text) if before is not None else {}
        for standing in self._of(tuple(sorted(names))):
            if standing.attempt is not None:
                attempts[standing.address.name] = standing.attempt
        return replace(run, spec=pinned(run.spec, attempts))

    def settled(
        self, run: DesiredRun, change: Change, checks: tuple[Diagnostic, ...]
    ) -> tuple[Change, tuple[Diagnostic, ...]]:
        """The change of a run, with what it waits for; one that launches nothing if a run that it
        comes after will not succeed."""
        if run.after:
            standings = self._of(tuple(dict.fromkeys(run.after)))
            addresses = tuple(standing.address for standing in standings)
            change = replace(change, depends_on=(*change.depends_on, *addresses))
            if change.action in _LAUNCHING:
                obstacle = next((one for one in standings if one.attempt is None), None)
                if obstacle is not None:
                    change, checks = _held(change), (_obstacle_check(run, obstacle),)
                else:
                    change = replace(change, after=_awaited(standings))
            elif change.reason is Reason.ALREADY_RUNNING:
                checks = (*checks, *self._stopped_before(run, change, addresses))
        self._changes[run.address] = change
        return change, checks

    def _stopped_before(
        self, run: DesiredRun, change: Change, upstreams: Iterable[Address]
    ) -> Iterator[Diagnostic]:
        """An attempt in the queue waits for those that were there at its launch."""
        if change.prior is None or change.prior.state is not AttemptState.QUEUED:
            return
        ref = AttemptRef(run.address, change.prior.attempt)
        for address in upstreams:
            upstream = self._changes.get(address)
            if upstream is not None and upstream.action is Action.REPLACE:
                yield Diagnostic(
                    code="upstream_stopped",
                    severity=Severity.WARNING,
                    address=str(run.address),
                    summary=f"`{ref}` is queued after an attempt of `{address.label}` that this "
                    "plan stops: it then ends without having started",
                    hint=f"`--rerun {quote(str(run.address))} --on-active replace` launches it "
                    f"again, after the new attempt of `{address.label}`",
                    place=place_of(run.places, "after"),
                )
                return

    def not_joined(self, run: DesiredRun, change: Change) -> tuple[Diagnostic, ...]:
        """The runs that a launch waits for and that another plan launched, for a backend that can
        start only together what waits for each other."""
        return tuple(
            Diagnostic(
                code="upstream_not_joined",
                severity=Severity.ERROR,
                address=str(replace(run.address, key="")),
                summary=f"`{run.address.name}` comes after `{upstream.ref}`, which an earlier "
                f"apply launched: on `{run.backend}`, one apply must launch both",
                hint=f"wait for it with `sgpu wait {quote(str(upstream.ref))}`, then apply",
                place=place_of(run.places, f"after.{run.after.index(upstream.address.name)}"),
            )
            for upstream in change.after
            if not self._launches(upstream.address)
        )

    def _launches(self, address: Address) -> bool:
        change = self._changes.get(address)
        return change is not None and change.action in _LAUNCHING

    def elsewhere(self, run: DesiredRun) -> tuple[Diagnostic, ...]:
        """The runs that it comes after, and that run elsewhere. The cells of a matrix share a
        check."""
        return tuple(
            Diagnostic(
                code="after_elsewhere",
                severity=Severity.ERROR,
                address=str(replace(run.address, key="")),
                summary=f"`{run.address.name}` runs on {_where(run)} and comes after `{name}`, "
                f"which runs on {other}: neither place sees the other's runs",
                hint="give both the same `backend`, or remove the name from `after`",
                place=place_of(run.places, f"after.{at}"),
            )
            for at, name in enumerate(run.after)
            for other in sorted({_where(one) for one in self._by_name.get(name, ())})
            if other != _where(run)
        )

    def _of(self, names: tuple[str, ...]) -> tuple[_Standing, ...]:
        if names not in self._standings:
            self._standings[names] = tuple(
                self._standing(run.address) for name in names for run in self._by_name.get(name, ())
            )
        return self._standings[names]

    def _standing(self, address: Address) -> _Standing:
        change = self._changes.get(address)
        if change is not None and change.action in _LAUNCHING:
            return _Standing(address=address, attempt=change.attempt, waits=True)
        attempts = self._known.get(address, NO_ATTEMPTS)
        prior = prior_of(attempts.current) if attempts.known and attempts.current else None
        if change is not None:
            prior = change.prior
            if change.reason is Reason.UPSTREAM_FAILED:
                return _Standing(
                    address=address,
                    obstacle="which is not launched",
                    way_out=f"launch `{address.name}` first: another warning says why it is not "
                    "launched",
                )
        if prior is None:
            return _Standing(
                address=address,
                obstacle="which has no attempt yet",
                way_out=f"launch both: `--select {quote(address.label)}` adds it to the plan",
            )
        if prior.state.active or prior.state is AttemptState.SUCCEEDED:
            return _Standing(address=address, attempt=prior.attempt, waits=prior.state.active)
        how = "could not start" if prior.not_started else _ENDED.get(prior.state, "failed")
        again = f"`--rerun {quote(str(address))}` launches it again"
        if change is not None and change.reason is Reason.FAILED_NOT_RETRIED:
            again = "`--retry-failed` launches it again, and so does a change of it"
        return _Standing(
            address=address,
            obstacle=f"and `{AttemptRef(address, prior.attempt)}` {how}",
            way_out=again,
        )


def _where(run: DesiredRun) -> str:
    """The place of its attempts."""
    return f"`{run.backend}`, {run.site}" if run.site else f"`{run.backend}`"


def _awaited(standings: Sequence[_Standing]) -> tuple[Upstream, ...]:
    return tuple(
        Upstream(address=one.address, attempt=one.attempt)
        for one in standings
        if one.waits and one.attempt is not None
    )


def _held(change: Change) -> Change:
    return Change(
        address=change.address,
        kind=change.kind,
        backend=change.backend,
        action=Action.NO_OP,
        reason=Reason.UPSTREAM_FAILED,
        depends_on=change.depends_on,
        prior=change.prior,
    )


def _obstacle_check(run: DesiredRun, upstream: _Standing) -> Diagnostic:
    """The cells of a matrix share one."""
    return Diagnostic(
        code="upstream_failed",
        severity=Severity.WARNING,
        address=str(replace(run.address, key="")),
        summary=f"`{run.address.name}` is not launched: it comes after "
        f"`{upstream.address.label}`, {upstream.obstacle}",
        hint=upstream.way_out,
        place=place_of(run.places, "after"),
    )


def launch_groups(
    changes: Sequence[Change], joins: Callable[[Change], bool]
) -> tuple[tuple[Change, ...], ...]:
    """The changes that are started as one: those that wait for each other, on a backend that
    `joins` them. Each other one is alone.

    Args:
        changes: each behind those that it waits for. Groups keep this order, by their first
            change, and so do the changes of a group.
    """
    first: dict[Address, Address] = {}  # of each change, the first known one of its group

    def first_of(address: Address) -> Address:
        while first[address] != address:
            first[address] = first[first[address]]
            address = first[address]
        return address

    position = {change.address: at for at, change in enumerate(changes)}
    for change in changes:
        first[change.address] = change.address
        before = [one.address for one in change.after if one.address in first]
        if before and joins(change):
            firsts = {change.address, *map(first_of, before)}
            first.update(dict.fromkeys(firsts, min(firsts, key=position.__getitem__)))
    groups: dict[Address, list[Change]] = {}
    for change in changes:
        groups.setdefault(first_of(change.address), []).append(change)
    return tuple(map(tuple, groups.values()))


def join_checks(
    runs: Mapping[Address, DesiredRun],
    changes: Sequence[Change],
    capabilities: Mapping[str, Capabilities],
) -> Iterator[Diagnostic]:
    """What keeps launches from being started as one.

    Args:
        runs: those that are launched.
        changes: their changes, each behind those that it waits for.
    """
    joining = {name: can.joins for name, can in capabilities.items() if can.joins}
    if not joining:
        return
    for group in launch_groups(changes, lambda change: change.backend in joining):
        if len(group) > 1:
            together = [runs[change.address] for change in group]
            yield from _group_checks(together, joining[group[-1].backend])


def _group_checks(runs: Sequence[DesiredRun], joining: Joining) -> Iterator[Diagnostic]:
    first, last = runs[0], runs[-1]
    if len(runs) > joining.most:
        yield _check(
            last,
            "after",
            f"{len(runs):,} runs come after each other, and `{last.backend}` launches at most "
            f"{joining.most:,} together",
            "launch some of them first, with `--select`, and the others once they have ended",
        )
    expected = first.spec.fields
    for field in joining.same:
        other = next(
            (run for run in runs if run.spec.fields.get(field) != expected.get(field)), None
        )
        if other is not None:
            yield _check(
                other,
                field,
                f"`{first.address.name}` and `{other.address.name}` differ in `{field}`, and "
                f"`{other.backend}` launches them together with one `{field}` for both",
                f"give both the same `{field}`; or launch one with `--select`, wait for it with "
                "`sgpu wait`, and launch the other",
            )


def _check(run: DesiredRun, field: str, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(
        code="cannot_join",
        severity=Severity.ERROR,
        address=str(replace(run.address, key="")),
        summary=summary,
        hint=hint,
        place=place_of(run.places, field) or place_of(run.places, "after"),
    )
