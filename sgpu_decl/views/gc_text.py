"""What `sgpu gc` deletes, and what it keeps, as text."""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.terminal import columns, count, size

_NAMED = 5  # attempts that one line names

WHY_KEPT = {  # by the values of `planner.kept_attempts.Keep`
    "active": "an active attempt reads it or waits for it",
    "read": "a launch of another run names its output",
    "output": "`resume` finds its output",
    "success": "the newest success of its run",
    "unreachable": "its place cannot be asked now",
}


def gc_listing(answer: Mapping[str, Json]) -> Iterator[str]:
    """The attempts that go, each with its size, and then `gc_kept`."""
    goes = _items(answer["freed"])
    width = max((columns(str(one["attempt"])) for one in goes), default=0)
    for one in goes:
        name = str(one["attempt"])
        yield f"{name}{' ' * (width - columns(name))}  {size(_number(one['bytes']))}"
    yield from gc_kept(answer)


def gc_kept(answer: Mapping[str, Json], shown: Mapping[str, Json] | None = None) -> Iterator[str]:
    """The attempts that stay though they are old enough, by the reason, but for those that another
    answer has shown."""
    before = _items(shown["kept"]) if shown is not None else []
    reasons: dict[str, list[str]] = {}
    for one in _items(answer["kept"]):
        if one in before:
            continue
        reasons.setdefault(str(one["reason"]), []).append(str(one["attempt"]))
    for reason, names in reasons.items():
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield f"kept: {', '.join(names[:_NAMED])}{more}: {WHY_KEPT[reason]}"


def gc_problems(
    answer: Mapping[str, Json], shown: Mapping[str, Json] | None = None
) -> Iterator[str]:
    """What could not be looked at or deleted, but for what another answer has shown."""
    before = _items(shown["problems"]) if shown is not None else []
    for one in _items(answer["problems"]):
        if one not in before:
            yield f"{one['summary']} ({one['hint']})" if one["hint"] else str(one["summary"])


def listed_attempts(answer: Mapping[str, Json]) -> list[str]:
    """The attempts that `gc_listing` shows as those that go."""
    return [str(one["attempt"]) for one in _items(answer["freed"])]


def gc_summary(answer: Mapping[str, Json], verb: str) -> str:
    """In one line, what was freed or would be."""
    attempts = _items(answer["freed"])
    amounts = [_number(answer[name]) for name in ("bytes", "code_bytes", "environment_bytes")]
    if not attempts and not any(amounts):
        return "nothing to free"
    files, code, environments = map(size, amounts)
    return (
        f"{verb}: {count(len(attempts), 'attempt')}, {files}; {code} of stored code; "
        f"{environments} of environments"
    )


def not_found_note(answer: Mapping[str, Json]) -> str | None:
    """One line about projects and saved plans that are not found here; None if all are."""
    owners = _items(answer["not_found"])
    if not owners:
        return None
    ends = [str(owner["kept_until"]) for owner in owners if owner["kept_until"]]
    until = f"kept until {max(ends)}" if len(ends) == len(owners) else "kept"
    if len(owners) == 1:
        return (
            f"not found: `{owners[0]['path']}`; its code and environments are {until}; if you "
            f"deleted it: `rm {shlex.quote(str(owners[0]['record']))}`, then `sgpu gc`"
        )
    return (
        f"not found: {len(owners):,} projects and saved plans; their code and environments are "
        f"{until}. `sgpu gc --dry-run -o json` lists them, with the `record` to delete if one is "
        "gone for good"
    )


def _items(value: Json) -> list[Mapping[str, Json]]:
    items = value if isinstance(value, Sequence) else []
    return [item for item in items if isinstance(item, Mapping)]


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0
