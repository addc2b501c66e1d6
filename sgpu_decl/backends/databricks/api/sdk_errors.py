"""What the SDK and the workspace complain of, in words that say what to do."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.errors import BackendError

if TYPE_CHECKING:
    from databricks.sdk.errors.base import DatabricksError

__all__ = [
    "CODES",
    "FINAL",
    "UNSURE",
    "Rejected",
    "explained",
    "says_too_large",
    "without_refusals",
]


class Rejected(BackendError):
    """The workspace does not accept what it was asked to do."""

    code = "remote_refused"
    asked_wrong = True


@dataclass(frozen=True, slots=True)
class _Told:
    """`words` follow the host; `again` says that trying once more may help."""

    code: str
    words: str
    hint: str
    again: bool = False


_FULL = _Told(
    "no_room",
    "has no room for it: {message}",
    "free some: `sgpu gc` deletes what old runs left there; or set `backend.staging` to a folder "
    "with room",
)
_UNAUTHENTICATED = _Told(
    "unauthenticated",
    "does not know the credentials that it was shown: they have expired or were revoked",
    "log in again: `databricks auth login --host {host}`, or renew the token of the profile",
)
_WRONG_TOKEN = ("Invalid access token", "Invalid Token")
"""What a workspace says of an expired token, under 403, the code of all that is not allowed
(evidence: A10)."""
_BY_CLASS = {
    "Unauthenticated": _UNAUTHENTICATED,
    "PermissionDenied": _Told(
        "permission_denied",
        "does not allow it: {message}",
        "ask who manages the workspace for this permission, or for this scope of the token",
    ),
    "ResourceExhausted": _Told(
        "limit_reached",
        "has come to a limit: {message}",
        "try again in a minute; where room or a number of runs is limited, free some: `sgpu gc` "
        "deletes what old runs left, and `backend.staging` may name another folder",
        again=True,
    ),
    "TooManyRequests": _Told(
        "throttled", "is asked too much: {message}", "try again in a minute", again=True
    ),
    "TemporarilyUnavailable": _Told(
        "unavailable", "is not available: {message}", "try again in a minute", again=True
    ),
    "DeadlineExceeded": _Told(
        "unavailable", "took too long: {message}", "try again in a minute", again=True
    ),
    "InternalError": _Told(
        "remote_broken", "failed by itself: {message}", "try again; nothing was changed", again=True
    ),
}
_UNREACHABLE = _Told(
    "host_unreachable",
    "does not answer ({message})",
    "see that the name is right and that this network reaches it (VPN, proxy, private link)",
    again=True,
)
_TOO_LARGE = _Told(
    "too_large_to_fetch",
    "hands out files of 10 MiB at most from `/Workspace`",
    "set `backend.staging` to a folder of a volume (`/Volumes/…`) for runs that leave more, or let "
    "ranks write it to a volume and return its path",
)
_SIZE_EXCEEDED = ("MAX_NOTEBOOK_SIZE_EXCEEDED", "exceeded max size")
"""How a workspace says that a file is too large: by this code, or by these words under BAD_REQUEST,
which is the code of any bad request (evidence: A5)."""
_CUT = _Told(
    "connection_lost",
    "broke the connection off ({message})",
    "try again: what was done already is found again",
    again=True,
)
UNSURE = frozenset({"connection_lost", "host_unreachable", "remote_broken", "unavailable"})
"""The codes of those after which what was asked for may have been done all the same."""

FINAL = frozenset({"permission_denied", Rejected.code, RemoteMissing.code})
"""The codes of what is refused whenever it is asked for again."""

_NOTHING_TO_ASK = frozenset({"host_unreachable", "unauthenticated"})
_FULL_CODES = frozenset({"INSUFFICIENT_STORAGE", "QUOTA_EXCEEDED", "STORAGE_QUOTA_EXCEEDED"})
CODES = frozenset(
    item.code for item in (*_BY_CLASS.values(), _FULL, _UNREACHABLE, _CUT, _TOO_LARGE)
)
"""The codes of what a workspace, or the way to it, refuses."""


@contextmanager
def explained(
    doing: str, host: str, hints: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Turn what the SDK raises into our errors.

    Args:
        doing: what was being done, such as "uploading `/Workspace/x`".
        host: the workspace's URL.
        hints: what to do next, by the error's code, where more is known of what was being done.

    Raises:
        RemoteMissing: what was asked for is not there.
        Rejected: the request itself is not accepted.
        BackendError: anything else that the SDK raises.
    """
    import requests
    from databricks.sdk.errors.base import DatabricksError

    try:
        yield
    except (DatabricksError, requests.RequestException, TimeoutError) as error:
        raise _translated(error, doing, host, hints) from error


@contextmanager
def without_refusals() -> Iterator[None]:
    """For a question whose answer is only useful. A user who may not look at something may still be
    allowed to use it, so refusals are dropped. Errors after which nothing can be asked are not."""
    try:
        yield
    except BackendError as error:
        if error.code in _NOTHING_TO_ASK:
            raise


def says_too_large(error: "DatabricksError") -> bool:
    """Whether a workspace refused a file for its size."""
    code, words = _SIZE_EXCEEDED
    return error.error_code == code or (error.error_code == "BAD_REQUEST" and words in str(error))


def _says_wrong_token(error: "DatabricksError") -> bool:
    from databricks.sdk.errors.platform import PermissionDenied

    return isinstance(error, PermissionDenied) and str(error).startswith(_WRONG_TOKEN)


def _translated(
    error: BaseException, doing: str, host: str, hints: Mapping[str, str]
) -> BackendError:
    import requests
    from databricks.sdk.errors.base import DatabricksError
    from databricks.sdk.errors.platform import BadRequest, NotFound, ResourceConflict

    if isinstance(error, TimeoutError) and error.__cause__ is not None:
        error = error.__cause__  # the SDK has tried again for as long as it may
    message = _short(str(error))
    if isinstance(error, NotFound):
        hint = hints.get(RemoteMissing.code, f"look for it in `{host}`")
        return RemoteMissing(f"{doing}: {message}", hint=hint)
    if isinstance(error, DatabricksError) and says_too_large(error):
        return _worded(_TOO_LARGE, doing, host, message, hints)
    if isinstance(error, (BadRequest, ResourceConflict)):
        return Rejected(
            f"{doing}: `{host}` does not accept it: {message}",
            hint=hints.get(Rejected.code, "correct what it names, and try again"),
        )
    told = _UNREACHABLE
    if isinstance(error, DatabricksError):
        told = (
            _UNAUTHENTICATED
            if _says_wrong_token(error)
            else next(
                (
                    _BY_CLASS[item.__name__]
                    for item in type(error).__mro__
                    if item.__name__ in _BY_CLASS
                ),
                _BY_CLASS["InternalError"],
            )
        )
        if error.error_code in _FULL_CODES:
            told = _FULL
    elif isinstance(error, requests.RequestException):
        message = _innermost(error)
        unreached = isinstance(error, (requests.ConnectTimeout, requests.exceptions.SSLError))
        told = _UNREACHABLE if unreached or _refused(error) else _CUT
    return _worded(told, doing, host, message, hints)


def _worded(
    told: _Told, doing: str, host: str, message: str, hints: Mapping[str, str]
) -> BackendError:
    found = BackendError(
        f"{doing}: `{host}` {told.words.format(message=message)}",
        hint=hints.get(told.code) or told.hint.format(host=host),
        code=told.code,
    )
    found.retryable = told.again
    return found


def _refused(error: BaseException) -> bool:
    """Whether no connection came about at all."""
    from urllib3.exceptions import NewConnectionError

    return any(isinstance(cause, NewConnectionError) for cause in _causes(error))


def _innermost(error: BaseException) -> str:
    causes = list(_causes(error))
    said = [cause for cause in causes if isinstance(cause, OSError) and cause.strerror]
    return _short(str(said[-1].strerror if said else causes[-1])).lower()


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or one in seen:
            continue
        seen.append(one)
        yield one
        waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]


def _short(text: str) -> str:
    line = " ".join(text.partition(". Config: ")[0].split())  # the SDK appends its own settings
    return line if len(line) <= 300 else f"{line[:299]}…"
