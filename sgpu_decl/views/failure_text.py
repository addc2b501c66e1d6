"""Kinds of failures as text: what the one of an attempt says, and what each means."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.terminal import escape

if TYPE_CHECKING:
    from sgpu_decl.agent.attempt.failure_kinds import FailureKind
    from sgpu_decl.model.attempt_details import FirstCause


def kind_words(cause: "FirstCause | None", hints: Callable[[str], str] = str) -> str:
    """What the kind of a first cause means, and a hint, on two lines; empty if it has none. `hints`
    completes the commands of sgpu in the hint."""
    if cause is None or cause.kind is None or cause.explanation is None:
        return ""
    words = cause.explanation
    return (
        f"{escape(cause.kind)} ({blame_words(words.blame)}): {escape(words.meaning)}\n"
        f"hint: {hints(escape(words.next_step))}"
    )


def blame_words(blame: str | None) -> str:
    """Whose fault a failure is."""
    words = {"error": "user error", "infra": "platform fault"}
    return words.get(blame or "", "user error or platform fault")


def failure_kinds() -> "Mapping[str, FailureKind]":
    """The kinds by name."""
    from sgpu_decl.agent.attempt.failure_kinds import KINDS

    return MappingProxyType({kind.name: kind for kind in KINDS})


def kind_list(kinds: "Iterable[FailureKind]") -> str:
    """One line for each kind."""
    meanings = {kind.name: kind.meaning for kind in kinds}
    width = max(map(len, meanings))
    lines = [f"  {name:{width}}  {meaning}" for name, meaning in meanings.items()]
    return "\n".join(["failures of runs:", *lines])


def kind_page(kind: "FailureKind") -> str:
    """A kind with all that is known of it."""
    return "\n".join(
        [
            f"{kind.name} ({blame_words(kind.blame)})",
            "",
            kind.meaning,
            "",
            f"what to do: {kind.next_step}",
            f"source: {kind.source}",
            "all kinds, with what libraries print: `docs/failures.md`",
        ]
    )


def kind_object(kind: "FailureKind") -> dict[str, Json]:
    """A kind as JSON."""
    names = ("blame", "meaning", "source")
    fields: dict[str, Json] = {name: getattr(kind, name) for name in names}
    return {"kind": kind.name, **fields, "solution": kind.next_step}
