"""Launches that a backend starts as one, because they wait for each other (`after`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.address import Address
from sgpu_decl.model.backend_kinds import Capabilities, Joining
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.plan import Change
from sgpu_decl.planner.plan_checks import place_of


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
