"""What a plan says of its launches: where a backend puts them, the Ray clusters that they have, and
what those with `resume` find of earlier attempts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.desired import DesiredRun, LaunchRoom
from sgpu_decl.model.plan import Change
from sgpu_decl.model.ray_size import RaySize
from sgpu_decl.planner.plan_checks import check_of, place_of
from sgpu_decl.planner.run_order import launch_levels

_Runs = Sequence[DesiredRun]
_Key = TypeVar("_Key")


def placement_checks(launched: _Runs, changes: Iterable[Change]) -> tuple[Diagnostic, ...]:
    """Return one check for each placement, with the first run that it holds for; without a run
    where it holds for all. Launches of all placements that share a room are counted together.

    Args:
        changes: those that launch the runs.
    """
    placed = _by(launched, lambda run: run.placement)
    sharing = _by(launched, lambda run: run.placement.room if run.placement else None)
    fitting = _fitting_in_words(sharing, changes)
    checks = []
    for placement, runs in placed.items():
        note, room = placement.note, placement.room
        if room is not None and room in fitting and len(runs) == len(sharing[room]):
            note = replace(note, summary=f"{note.summary}; {fitting.pop(room)} fit at once")
        checks.append(_check(note, runs, launched))
    for room, runs in sharing.items():
        first = runs[0].placement
        if room in fitting and first is not None:
            note = replace(first.note, summary=f"{fitting[room]} on {room.name} fit at once")
            checks.append(_check(replace(note, hint=None), runs, launched))
        if room.limit is not None and room.beyond is not None and len(runs) > room.limit:
            checks.append(_check(room.beyond, runs, launched))
    return tuple(checks)


def _by(launched: _Runs, key: Callable[[DesiredRun], _Key | None]) -> dict[_Key, list[DesiredRun]]:
    found: dict[_Key, list[DesiredRun]] = {}
    for run in launched:
        of = key(run)
        if of is not None:
            found.setdefault(of, []).append(run)
    return found


def _fitting_in_words(
    sharing: dict[LaunchRoom, list[DesiredRun]], changes: Iterable[Change]
) -> dict[LaunchRoom, str]:
    """How many runs find room at the same time, as `3 of 8 runs`, where several could start at the
    same time. Runs of different levels never do: one waits for the other. Of several levels, the
    one counts in which the most have to wait for room."""
    several = {room: runs for room, runs in sharing.items() if len(runs) > 1}
    if not several:
        return {}
    levels = launch_levels(changes)
    found = {}
    for room, runs in several.items():
        together: dict[int, Counter[str]] = {}
        for run in runs:
            identity = run.placement.id if run.placement else None
            level = together.setdefault(levels.get(run.address, 0), Counter())
            level[identity or ""] += 1
        counts = [
            (launches.total() - fitting, launches.total())
            for launches in together.values()
            if launches.total() > 1 and (fitting := room.fitting(launches)) is not None
        ]
        if counts:
            waiting, number = max(counts)
            found[room] = f"{number - waiting} of {number} runs"
    return found


def _check(finding: Diagnostic, runs: _Runs, launched: _Runs) -> Diagnostic:
    first = runs[0]
    field = first.placement.field if first.placement else None
    every = len(runs) == len(launched)
    several = len({run.address.name for run in runs}) > 1
    return check_of(
        replace(finding, place=place_of(first.places, field or "")),
        (None if several else replace(first.address, key="")) if every else first.address,
    )


def ray_checks(launched: Sequence[DesiredRun]) -> tuple[Diagnostic, ...]:
    """Return one check for each kind of cluster: the first run that gets one, and how many others
    do. Each of them has a cluster of its own."""
    runs: dict[RaySize, list[DesiredRun]] = {}
    for run in launched:
        if run.ray is not None:
            runs.setdefault(run.ray, []).append(run)
    return tuple(
        Diagnostic(
            code="ray_cluster",
            severity=Severity.INFO,
            address=str(first.address),
            summary=_words(cluster, len(others)),
            place=place_of(first.places, "ray"),
        )
        for cluster, (first, *others) in runs.items()
    )


def _words(cluster: RaySize, others: int) -> str:
    parts = ", ".join(_parts(cluster)) or "its size is known on its nodes only"
    version = f"; Ray {cluster.version}" if cluster.version else ""
    more = f"; one as large for each of {others:,} more runs" if others > 1 else ""
    if others == 1:
        more = "; one as large for 1 more run"
    return f"Ray cluster: {parts}{version}{more}"


def _parts(cluster: RaySize) -> Iterator[str]:
    nodes = cluster.nodes
    for amount, unit in ((nodes, "node"), (cluster.gpus, "GPU"), (cluster.cpus, "CPU")):
        if amount:
            yield f"{amount:,} {unit}" + ("s" if amount > 1 else "")
    if cluster.object_store_memory is not None:
        each = f"{nodes} × " if nodes is not None and nodes > 1 else ""  # noqa: RUF001
        yield f"object store {each}{size(cluster.object_store_memory)}"


def resume_checks(
    launched: Sequence[DesiredRun], outputs: Mapping[Address, AttemptRef | None]
) -> tuple[Diagnostic, ...]:
    """Return one check for each run that resumes, or for all cells of its matrix.

    Args:
        launched: runs that the plan launches.
        outputs: the attempt of each whose output the next one finds, None if there is none; what is
            not known is left out.
    """
    by_name: dict[str, list[DesiredRun]] = {}
    for run in launched:
        if run.address in outputs:
            by_name.setdefault(run.address.name, []).append(run)
    return tuple(
        Diagnostic(
            code="resumes",
            severity=Severity.INFO,
            address=str(runs[0].address if len(runs) == 1 else replace(runs[0].address, key="")),
            summary=_of_one(outputs[runs[0].address])
            if len(runs) == 1
            else _of_cells(name, [outputs[run.address] for run in runs]),
            place=place_of(runs[0].places, "resume"),
        )
        for name, runs in by_name.items()
    )


def _of_one(earlier: AttemptRef | None) -> str:
    if earlier is None:
        return "no earlier attempt left output: it starts from the beginning"
    return f"it finds the output of `{earlier}` in SGPU_PREVIOUS_OUTPUT_DIR"


def _of_cells(name: str, earlier: Sequence[AttemptRef | None]) -> str:
    finding = sum(one is not None for one in earlier)
    if not finding:
        return f"no earlier attempt of `{name}` left output: all start from the beginning"
    return (
        f"{finding:,} of {len(earlier):,} runs of `{name}` find the output of their last attempt "
        "in SGPU_PREVIOUS_OUTPUT_DIR"
    )
