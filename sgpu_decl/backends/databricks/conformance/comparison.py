"""Answers of a workspace, refusals among them, and the comparison with what sgpu assumes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.errors import BackendError
from sgpu_decl.model.assumptions import Comparison, Value, assumptions
from sgpu_decl.model.doctor_finding import Finding
from sgpu_decl.model.jsonable import Json

_T = TypeVar("_T")

_REFUSED = frozenset(
    {"no_room", "permission_denied", "remote_missing", "remote_refused", "staging_taken"}
)
_ABSENT = frozenset({"ENDPOINT_NOT_FOUND", "FEATURE_DISABLED", "NOT_IMPLEMENTED"})


def compared(id_: str, found: Value | None, text: str) -> Finding:
    """The finding about an assumption that was measured; `found` is `None` where what it is about
    never came. Raises KeyError: the id is unknown."""
    assumption = assumptions()[id_]
    holds = found is not None and _agrees(assumption.comparison, assumption.expected, found)
    return Finding(
        code=id_,
        severity=Severity.INFO if holds or assumption.harmless else Severity.WARNING,
        summary=text,
        hint=None if holds else assumption.if_wrong,
        assumption=id_,
        expected=_json(assumption.expected),
        found=None if found is None else _json(found),
    )


def _agrees(comparison: Comparison, expected: Value, found: Value) -> bool:
    if isinstance(expected, tuple) and isinstance(found, tuple):
        missing, others = set(expected) - set(found), set(found) - set(expected)
        return not missing and (comparison is Comparison.INCLUDES or not others)
    if comparison is Comparison.VERSION:
        return _version(found) >= _version(expected)
    if isinstance(expected, int | float) and isinstance(found, int | float):
        if comparison is Comparison.AT_LEAST:
            return found >= expected
        if comparison is Comparison.AT_MOST:
            return found <= expected
    return found == expected


def _version(value: Value) -> tuple[int, ...]:
    return tuple(int(part) for part in str(value).split("."))


def _json(value: Value) -> Json:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error instead of an answer: its code and its message."""

    code: str
    message: str


def request(connection: Connection, method: str, path: str, **content: Any) -> Any:
    """The answer to a request, as the SDK gives it, or a Refusal.

    Raises:
        BackendError: the workspace cannot be reached, or does not know the credentials.
    """
    return attempt(
        connection,
        f"asking `{method} {path}`",
        lambda: connection.client.api_client.do(method, path, **content),
    )


def attempt(connection: Connection, doing: str, do: Callable[[], _T]) -> _T | Refusal:
    """What something gives, or a Refusal. Raises BackendError as `request` does."""
    from databricks.sdk.errors import platform

    with connection.explained(doing):
        try:
            return do()
        except (
            platform.BadRequest,
            platform.NotFound,
            platform.NotImplemented,
            platform.PermissionDenied,
            platform.ResourceConflict,
        ) as error:
            return Refusal(str(error.error_code), " ".join(str(error).split())[:200])
        except BackendError as error:  # of what explains itself
            if error.code not in _REFUSED:
                raise
            return Refusal(error.code, error.message)


def lacks_api(answer: object) -> bool:
    """Whether a workspace says that it has no such API."""
    return isinstance(answer, Refusal) and answer.code in _ABSENT
