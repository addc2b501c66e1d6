"""`${user}` in values: where it may stand, and the values with a user in its place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.address import Kind
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.target import USER
from sgpu_decl.text.shell_text import shell_words

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import LoadedJob, LoadedRun
    from sgpu_decl.diagnostics.place import Place

_COMMAND, _BACKEND, _TITLE = "command", "backend", "name"


def user_findings(
    runs: "Iterable[LoadedRun]", jobs: "Iterable[LoadedJob]", *, shared: str | None
) -> Iterator[Diagnostic]:
    """Find `${user}` in values that must not differ with who plans.

    Args:
        shared: why others plan and apply the same, such as ``the target has `mode: production```;
            `None` if each user has runs and jobs of their own.
    """
    declared: list[LoadedRun | LoadedJob] = [*runs, *jobs]
    for one in declared:
        if USER not in one.spec.text:
            continue
        for path in _paths(one.spec.fields, ""):
            place = _place(one.places, path)
            if path.partition(".")[0] == _BACKEND:
                yield Diagnostic(
                    code="user_in_backend",
                    summary=f"`{USER}` is the login of the backend, so `{path}` cannot have it",
                    place=place,
                    hint="use a variable, and `--var` or `SGPU_VAR_NAME`",
                )
            elif shared is not None and (one.address.kind is not Kind.JOB or path != _TITLE):
                yield Diagnostic(
                    code="user_in_production",
                    summary=f"`{path}` has `{USER}`, and {shared}: what runs would depend on who "
                    "plans",
                    place=place,
                    hint="write the value out, or use a variable of the target; `mode: "
                    "development` is for what each user has alone",
                )


def with_user(fields: Mapping[str, Json], user: str) -> dict[str, Json]:
    """The fields of a run or job with a user in the place of `${user}`: in all text that no shell
    reads, where it would be a variable of the shell."""
    return {key: _filled(value, user, key == _COMMAND) for key, value in fields.items()}


def _filled(value: Json, user: str, command: bool = False) -> Json:  # noqa: FBT001, FBT002
    if isinstance(value, str):
        return value if command else value.replace(USER, user)
    if isinstance(value, Mapping):
        return {key: _filled(item, user) for key, item in value.items()}
    if isinstance(value, Sequence):
        read = set(shell_words(list(map(str, value)))) if command else ()
        return [item if at in read else _filled(item, user) for at, item in enumerate(value)]
    return value


def _paths(value: Json, path: str) -> Iterator[str]:
    """The paths of the values that `with_user` changes."""
    if isinstance(value, str):
        if USER in value and path != _COMMAND:
            yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _paths(item, f"{path}.{key}" if path else key)
    elif isinstance(value, Sequence):
        read = set(shell_words(list(map(str, value)))) if path == _COMMAND else ()
        for at, item in enumerate(value):
            if at not in read:
                yield from _paths(item, f"{path}.{at}")


def _place(places: "Mapping[str, Place]", path: str) -> "Place | None":
    while path and (place := places.get(path)) is None:
        path = path.rpartition(".")[0]
    return place if path else None
