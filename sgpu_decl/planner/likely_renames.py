"""Runs and jobs that the file calls otherwise than the state does, and that are the same but for
their name. Without `renamed_from` they are launched again, and their history stays behind."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.job import RUN, DesiredJob
from sgpu_decl.model.jsonable import Spec, canonical
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.run_outputs import outputs_read, unpinned, with_new_names
from sgpu_decl.planner.field_changes import compare
from sgpu_decl.planner.fingerprint import fingerprint
from sgpu_decl.planner.last_known import CurrentAttempts
from sgpu_decl.planner.policy import FieldClass, class_of

_COMPARED = 50  # of old names that are all the same: nobody could tell more of them apart
_SHOWN = 3

_Names = Mapping[Address, Address]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A cell of a run or a job, as it is wanted or recorded. `keys` are equal for what is the same
    but for the name; there are two where all code may be compared, or what of it counts."""

    address: Address
    spec: Spec
    keys: tuple[str, ...]
    place: Place | None = None
    attempts: CurrentAttempts | None = None


def likely_renames(
    first: Iterable[DesiredRun | DesiredJob], undeclared: Mapping[Address, CurrentAttempts]
) -> Iterator[Diagnostic]:
    """Find what has the code and the config of something that the file declares no more.

    Args:
        first: runs that are launched for the first time, and jobs that are made.
        undeclared: what is recorded, and no file declares any more.
    """
    news = _by_name(map(_new, first))
    names: dict[Address, Address] = {}
    rest = dict(undeclared)
    # A run that reads the output of a renamed one names it otherwise, so it is compared after that.
    while news and rest:
        olds = _by_name(side for item in rest.values() if (side := _old(item, names)) is not None)
        found = dict(_pairs(news, olds))
        for new, old in sorted(found.items()):
            yield _check(news.pop(new), olds[old])
        names |= {old: new for new, old in found.items()}
        rest = {one: item for one, item in rest.items() if replace(one, key="") not in names}
        if not found or not any(
            "${run." in one.spec.text for cells in news.values() for one in cells
        ):
            return


def _pairs(
    news: Mapping[Address, list[_Side]], olds: Mapping[Address, list[_Side]]
) -> Iterator[tuple[Address, Address]]:
    """New names, each with the old one that is most like it among those that are the same. An old
    name is given once."""
    same: dict[tuple[Kind, str, str], dict[Address, None]] = {}
    for name, cells in olds.items():
        for cell in cells:
            for key in cell.keys:
                same.setdefault((name.kind, cell.address.key, key), {})[name] = None
    for name, cells in news.items():
        hits = (same.get((name.kind, one.address.key, key)) for one in cells for key in one.keys)
        if (candidates := next(filter(None, hits), None)) is None:
            continue
        few = [one for one, _ in zip(candidates, range(_COMPARED), strict=False)]
        old = max(few, key=lambda one: _likeness(one.name, name.name))
        for cell in olds[old]:
            for key in cell.keys:
                same[name.kind, cell.address.key, key].pop(old, None)
        yield name, old


def _likeness(one: str, other: str) -> float:
    from difflib import SequenceMatcher  # 2 ms that only a rename needs

    return SequenceMatcher(None, one, other).ratio()


def _by_name(sides: Iterable[_Side]) -> dict[Address, list[_Side]]:
    names: dict[Address, list[_Side]] = {}
    for side in sides:
        names.setdefault(replace(side.address, key=""), []).append(side)
    return names


def _new(item: DesiredRun | DesiredJob) -> _Side:
    if isinstance(item, DesiredRun):
        inputs = item.launch_inputs(item.spec, "")
        keys = tuple(_run_keys(item.spec, inputs))
    else:
        keys = (_job_key(item.address, item.spec),)
    place = min(item.places.values(), default=None)
    return _Side(address=item.address, spec=item.spec, keys=keys, place=place)


def _old(attempts: CurrentAttempts, names: _Names) -> _Side | None:
    """What is recorded, with the names that other runs have now; None without a history."""
    resource, last = attempts.resource, attempts.last
    if resource is None:
        return None
    spec = resource.spec
    keys: tuple[str, ...]
    if resource.address.kind is Kind.JOB:
        keys = (_job_key(resource.address, spec),)
    elif last is None:
        return None
    else:
        now = {
            ref: names[ref.address].name
            for ref in outputs_read(last.inputs.spec)
            if ref.address in names
        }
        keys = tuple(_run_keys(with_new_names(last.inputs.spec, now), last.inputs))
        spec = with_new_names(spec, now)
    return _Side(address=resource.address, spec=spec, keys=keys, attempts=attempts)


def _run_keys(spec: Spec, inputs: LaunchInputs) -> Iterator[str]:
    for code in {inputs.code_digest, inputs.counted or inputs.code_digest}:
        yield fingerprint(unpinned(spec), code, inputs.environment_digest)


def _job_key(address: Address, spec: Spec) -> str:
    """The job without its name and that of its run; its task may have its name, too."""
    job = {key: item for key, item in spec.fields.items() if key != "name"}
    run, tasks = job.get(RUN), job.get("tasks")
    if isinstance(run, Mapping):  # and the tasks follow from it
        unnamed = {key: item for key, item in run.items() if key != "name"}
        return canonical({**job, RUN: unnamed, "tasks": {}})
    if isinstance(tasks, Mapping) and address.name in tasks:
        rest = {key: item for key, item in tasks.items() if key != address.name}
        job["tasks"] = {**rest, "": tasks[address.name]}
    return canonical(job)


def _check(new: list[_Side], old: list[_Side]) -> Diagnostic:
    before, address = old[0].address, new[0].address
    name = replace(before, key="")
    by_key = {one.address.key: one for one in old}
    both = [(one, by_key[one.address.key]) for one in new if one.address.key in by_key]
    same = [(one, was) for one, was in both if not set(one.keys).isdisjoint(was.keys)]
    has = "has" if len(same) == len(both) else f"{len(same):,} of its {len(old):,} runs have"
    return Diagnostic(
        code="likely_rename",
        severity=Severity.WARNING,
        address=str(replace(address, key="")),
        summary=f"`{name}` is declared no more, and {has} the same code and config"
        f"{_but_for(*same[0])}",
        hint=f"did you mean `renamed_from: {name.name}`? {_then(name, [was for _, was in same])}",
        place=new[0].place,
    )


def _but_for(new: _Side, old: _Side) -> str:
    """The fields in which the launches differ, though they compute the same."""
    if new.address.kind is Kind.JOB:
        return ""
    differences = compare(unpinned(old.spec), unpinned(new.spec))
    paths = [one.path for one in differences if class_of(one.path) is not FieldClass.IDENTITY]
    if not paths:
        return ""
    more = [f"{len(paths) - _SHOWN:,} more"] if len(paths) > _SHOWN else []
    return f" but for {', '.join([*(f'`{path}`' for path in paths[:_SHOWN]), *more])}"


def _then(name: Address, sides: list[_Side]) -> str:
    """What the rename changes about this plan."""
    if name.kind is Kind.JOB:
        return "The job then stays, with the list of its launches"
    attempts = [one.attempts for one in sides if one.attempts is not None]
    active = next((one.active[-1] for one in attempts if one.active), None)
    if active is not None:
        return (
            f"The history then moves along. `{active.ref}` is active: this plan cancels it, and it "
            "can be renamed once it has ended"
        )
    done = all(one.last and one.last.state is AttemptState.SUCCEEDED for one in attempts)
    return f"The history then moves along{', and nothing is launched for it' if done else ''}"
