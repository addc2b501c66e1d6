"""The differences between an effect and one that was shown, in words."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.proposal import Effect
from sgpu_decl.planner.field_changes import compare

_SHOWN = 5  # of one kind
_LONGEST = 60  # letters of a value

Contents = Callable[[str], Mapping[str, str] | None]


def effect_differences(
    shown: Effect, planned: Effect, *, before: Contents, after: Contents
) -> list[str]:
    """What differs, one text for each kind: action, fields, code, environment, drift.

    Args:
        before: what the digests of the shown effect stand for, as far as that is known.
        after: the same of the planned one.
    """
    return list(_differences(shown, planned, before, after))


def _differences(
    shown: Effect, planned: Effect, before: Contents, after: Contents
) -> Iterator[str]:
    if shown.action is not planned.action:
        yield f"`{shown.action}` was shown"
    elif planned.destructive and not shown.destructive:
        yield "it stops active attempts, which was not shown"
    if planned.beside and not shown.beside:
        yield "it starts beside an active attempt, which was not shown"
    if planned.moved_from not in (None, shown.moved_from):
        yield f"it moves the history of `{planned.moved_from}`, which was not shown"
    if shown.backend != planned.backend:
        yield f"backend `{shown.backend}` -> `{planned.backend}`"
    if shown.spec is None or planned.spec is None:
        return
    fields = [
        f"`{item.path}` {_value(item.before, there=not item.added)} -> "
        f"{_value(item.after, there=not item.removed)}"
        for item in compare(shown.spec, planned.spec)
    ]
    if fields:
        yield f"fields: {_listing(fields)}"
    if shown.code != planned.code:
        yield f"code: {_content(shown.code, planned.code, before, after, _file)}"
    if shown.environment != planned.environment:
        words = _content(shown.packages, planned.packages, before, after, _package)
        yield f"environment: {words}"
    if drifted := sorted(set(planned.drifted) - set(shown.drifted)):
        yield f"changed on the platform: {_listing([_path(item) for item in drifted])}"


def _content(
    shown: str | None,
    planned: str | None,
    before: Contents,
    after: Contents,
    words: Callable[[str, str | None, str | None], str],
) -> str:
    old = before(shown) if shown else {}
    new = after(planned) if planned else {}
    names = sorted({*(old or ()), *(new or ())})
    differing = [
        words(name, (old or {}).get(name), (new or {}).get(name))
        for name in names
        if (old or {}).get(name) != (new or {}).get(name)
    ]
    if old is None or new is None or not differing:
        return "another one"
    return _listing(differing)


def _file(name: str, old: str | None, new: str | None) -> str:
    note = " (new)" if old is None else " (gone)" if new is None else ""
    return f"`{name}`{note}"


def _package(name: str, old: str | None, new: str | None) -> str:
    return f"`{name}` {old or '(none)'} -> {new or '(none)'}"


def _path(drifted: str) -> str:
    import json

    return f"`{json.loads(drifted)[0]}`"


def _value(value: Json, *, there: bool) -> str:
    if not there:
        return "(none)"
    text = canonical(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _listing(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
