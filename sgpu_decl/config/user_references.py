"""`${user}` in values: where it may stand; texts in the values of a run or job, which a plan fills
in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

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
        texts = text_paths(one.spec.fields, shell=False)
        for path in (path for path, text in texts if USER in text):
            place = _place(one.places, path)
            if path.partition(".")[0] == _BACKEND:
                yield Diagnostic(
                    code="user_in_backend",
                    summary=f"`{path}` cannot have `{USER}`: sgpu needs `backend` to find out who "
                    "is logged in",
                    place=place,
                    hint="use a variable, and give it a value with `--var`",
                )
            elif shared is not None and (one.address.kind is not Kind.JOB or path != _TITLE):
                yield Diagnostic(
                    code="user_in_production",
                    summary=f"`{path}` has `{USER}`, and {shared}: each user would launch "
                    "other runs",
                    place=place,
                    hint="write the value itself, or use a variable of the target. If each user "
                    "has runs and jobs of their own, set `mode: development`",
                )


class TextFill(Protocol):
    def __call__(self, text: str, *, shell: bool) -> str:
        """What a text becomes; `shell` says that a shell reads it."""


def with_texts(fields: Mapping[str, Json], fill: TextFill) -> dict[str, Json]:
    """The fields of a run or job with other texts."""
    return {key: _filled(value, fill, command=key == _COMMAND) for key, value in fields.items()}


def _filled(value: Json, fill: TextFill, *, command: bool = False) -> Json:
    if isinstance(value, str):
        return fill(value, shell=command)
    if isinstance(value, Mapping):
        return {key: _filled(item, fill) for key, item in value.items()}
    if isinstance(value, Sequence):
        read = _shell_positions(value) if command else frozenset()
        return [_filled(item, fill, command=at in read) for at, item in enumerate(value)]
    return value


def _shell_positions(command: Sequence[Json]) -> frozenset[int]:
    return frozenset(shell_words(list(map(str, command))))


def text_paths(
    value: Json | Mapping[str, Json], path: str = "", *, shell: bool = True
) -> Iterator[tuple[str, str]]:
    """All texts in the fields of a run or job with their paths; unless `shell`, without those that
    a shell reads."""
    if isinstance(value, str):
        if shell or path != _COMMAND:
            yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from text_paths(item, f"{path}.{key}" if path else key, shell=shell)
    elif isinstance(value, Sequence):
        read = _shell_positions(value) if path == _COMMAND and not shell else frozenset()
        for at, item in enumerate(value):
            if at not in read:
                yield from text_paths(item, f"{path}.{at}", shell=shell)


def _place(places: "Mapping[str, Place]", path: str) -> "Place | None":
    while path and (place := places.get(path)) is None:
        path = path.rpartition(".")[0]
    return place if path else None
