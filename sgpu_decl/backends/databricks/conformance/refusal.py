"""Requests whose refusal is a finding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.errors import BackendError

T = TypeVar("T")

_REFUSED = frozenset(
    {"no_room", "permission_denied", "remote_missing", "remote_refused", "staging_taken"}
)
_ABSENT = frozenset({"ENDPOINT_NOT_FOUND", "FEATURE_DISABLED", "NOT_IMPLEMENTED"})


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


def attempt(connection: Connection, doing: str, do: Callable[[], T]) -> T | Refusal:
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
