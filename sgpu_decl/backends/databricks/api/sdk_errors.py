"""Errors of the SDK and the workspace, in words that say what to do."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.backends.databricks.api.account import normal_host
from sgpu_decl.errors import BackendError
from sgpu_decl.places.file_place import PlaceMissing

if TYPE_CHECKING:
    from databricks.sdk.errors.base import DatabricksError


class Rejected(BackendError):
    """The workspace does not accept what it was asked to do."""

    code = "remote_refused"
    asked_wrong = True


@dataclass(frozen=True, slots=True)
class _Wording:
    """`words` follow the host; `retryable` says that trying once more may help."""

    code: str
    words: str
    hint: str
    retryable: bool = False


_SOON = "try again in a minute"
_FULL = _Wording(
    "no_room",
    "has no room for it: {message}",
    "free some: `sgpu gc` deletes what old runs left there; or set `backend.staging` to a folder "
    "with room",
)
_FULL_CODES = frozenset({"INSUFFICIENT_STORAGE", "QUOTA_EXCEEDED", "STORAGE_QUOTA_EXCEEDED"})
_UNAUTHENTICATED = _Wording(
    "unauthenticated",
    "does not accept the credentials: they have expired or were revoked",
    "log in again: `databricks auth login --host {host}`, or renew the token of the profile",
)
_WRONG_TOKEN = ("Invalid access token", "Invalid Token")
"""What a workspace says of an expired token, under 403, the code of all that is not allowed
(evidence: A10)."""
_TOO_LARGE = _Wording(
    "too_large_to_fetch",
    "returns files of at most 10 MiB from `/Workspace`",
    "set `backend.staging` to a folder of a volume (`/Volumes/…`) for runs that leave more, or let "
    "ranks write it to a volume and return its path",
)
_SIZE_EXCEEDED = ("MAX_NOTEBOOK_SIZE_EXCEEDED", "exceeded max size")
"""How a workspace says that a file is too large: by this code, or by these words under BAD_REQUEST,
which is the code of any bad request (evidence: A5)."""
_BROKEN = _Wording(
    "remote_broken",
    "had an internal error: {message}",
    "try again",
    retryable=True,
)
_BY_CLASS: Mapping[str, _Wording] = MappingProxyType(
    {
        "Unauthenticated": _UNAUTHENTICATED,
        "PermissionDenied": _Wording(
            "permission_denied",
            "does not allow it: {message}",
            "ask an admin of the workspace for this permission, or for this scope of the token",
        ),
        "ResourceExhausted": _Wording(
            "limit_reached",
            "has reached a limit: {message}",
            f"{_SOON}; where room or a number of runs is limited, free some: `sgpu gc` deletes "
            "what old runs left, and `backend.staging` may name another folder",
            retryable=True,
        ),
        "TooManyRequests": _Wording(
            "throttled", "gets too many requests: {message}", _SOON, retryable=True
        ),
        "TemporarilyUnavailable": _Wording(
            "unavailable", "is not available: {message}", _SOON, retryable=True
        ),
        "DeadlineExceeded": _Wording(
            "unavailable", "took too long: {message}", _SOON, retryable=True
        ),
    }
)
_UNREACHABLE = _Wording(
    "host_unreachable",
    "does not answer ({message})",
    "see that the name is right and that this network reaches it (VPN, proxy, private link)",
    retryable=True,
)
_CUT = _Wording(
    "connection_lost",
    "closed the connection ({message})",
    "try again: sgpu finds the steps that are done",
    retryable=True,
)

UNSURE = frozenset({"connection_lost", "host_unreachable", "remote_broken", "unavailable"})
"""The codes of errors after which the request may have been carried out all the same."""

FINAL = frozenset({"permission_denied", Rejected.code, PlaceMissing.code})
"""The codes of errors that a second request would get too."""


@contextmanager
def explained(
    doing: str, host: str, hints: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Turn errors of the SDK into ours.

    Args:
        doing: what was being done, such as "uploading `/Workspace/x`".
        host: the workspace's URL.
        hints: the next step by the error's code, instead of the general one.

    Raises:
        PlaceMissing: the object of the request does not exist.
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
        if error.code in (_UNREACHABLE.code, _UNAUTHENTICATED.code):
            raise


def says_too_large(error: "DatabricksError") -> bool:
    """Whether a workspace refused a file for its size."""
    code, words = _SIZE_EXCEEDED
    return error.error_code == code or (error.error_code == "BAD_REQUEST" and words in str(error))


def _translated(
    error: BaseException, doing: str, host: str, hints: Mapping[str, str]
) -> BackendError:
    from databricks.sdk.errors.base import DatabricksError
    from databricks.sdk.errors.platform import BadRequest, NotFound, ResourceConflict

    if isinstance(error, TimeoutError) and error.__cause__ is not None:
        error = error.__cause__  # the SDK has tried again for as long as it may
    message = _short(str(error))
    if isinstance(error, NotFound):
        hint = hints.get(PlaceMissing.code, f"look for it in `{host}`")
        return PlaceMissing(f"{doing}: {message}", hint=hint)
    too_large = isinstance(error, DatabricksError) and says_too_large(error)
    if isinstance(error, (BadRequest, ResourceConflict)) and not too_large:
        return Rejected(
            f"{doing}: `{host}` does not accept it: {message}",
            hint=hints.get(Rejected.code, "correct the field that it names, and try again"),
        )
    if isinstance(error, DatabricksError):
        wording = _TOO_LARGE if too_large else _wording_of(error)
    else:
        wording, message = _UNREACHABLE if _is_unreached(error) else _CUT, _innermost(error)
        host = _asked_host(error) or host  # a login may ask another one
    translated = BackendError(
        f"{doing}: `{host}` {wording.words.format(message=message)}",
        hint=hints.get(wording.code) or wording.hint.format(host=host),
        code=wording.code,
    )
    translated.retryable = wording.retryable
    return translated


def _wording_of(error: "DatabricksError") -> _Wording:
    names = [base.__name__ for base in type(error).__mro__]
    if error.error_code in _FULL_CODES:
        return _FULL
    if "PermissionDenied" in names and str(error).startswith(_WRONG_TOKEN):
        return _UNAUTHENTICATED
    return next((_BY_CLASS[name] for name in names if name in _BY_CLASS), _BROKEN)


def _is_unreached(error: BaseException) -> bool:
    """Whether there was no connection at all."""
    import requests
    from urllib3.exceptions import NewConnectionError

    if not isinstance(error, requests.RequestException):
        return True  # a timeout of the SDK
    if isinstance(error, (requests.ConnectTimeout, requests.exceptions.SSLError)):
        return True
    return any(isinstance(cause, NewConnectionError) for cause in _causes(error))


def _asked_host(error: BaseException) -> str | None:
    """The host of the request that failed, where that is known."""
    url = getattr(getattr(error, "request", None), "url", None)
    return normal_host(url) if url else None


def _innermost(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return _short(str(error))
    causes = list(_causes(error))
    system = [cause for cause in causes if isinstance(cause, OSError) and cause.strerror]
    return _short(str(system[-1].strerror if system else causes[-1])).lower()


def _causes(error: BaseException) -> Iterator[BaseException]:
    causes: list[BaseException] = []
    pending: list[object] = [error]
    while pending:
        cause = pending.pop(0)
        if isinstance(cause, BaseException) and cause not in causes:
            causes.append(cause)
            yield cause
            pending += [cause.__cause__, cause.__context__, getattr(cause, "reason", None)]
            pending += cause.args


def _short(text: str) -> str:
    line = " ".join(text.partition(". Config: ")[0].split())  # the SDK appends its own settings
    return line if len(line) <= 300 else f"{line[:299]}…"
