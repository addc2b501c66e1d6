"""Making a job once. The API has no token for that, so a job is looked for by its mark before it is
made, and nothing is sent a second time unless it was not found."""

from collections.abc import Callable, Mapping
from typing import Any

from sgpu_decl.backends.databricks.connecting import Connection
from sgpu_decl.backends.keeping import OutcomeUnknown
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json

__all__ = ["create_once"]

_TRIES = 6
_ONE_TRY = 0.5  # seconds in which the SDK may try again: it rests for longer than that
_DOING = "creating the job"


def create_once(
    connection: Connection, body: Mapping[str, Json], find: Callable[[], str | None]
) -> str:
    """Make a job and return its id.

    Args:
        find: looks for the job by its mark.

    Raises:
        OutcomeUnknown: the answer was lost, and the job is not to be seen yet.
        BackendError: it was not made.
    """
    for attempt in range(_TRIES):
        known = find()
        if known is not None:
            return known
        try:
            return _create(connection, body)
        except BackendError as error:
            if error.code == "throttled" and attempt < _TRIES - 1:
                continue
            if error.code == "throttled" or not error.retryable:
                raise
            known = find()
            if known is not None:
                return known
            raise OutcomeUnknown(
                f"{error.message}; whether it was made is not known",
                hint="apply again: it is looked for before another one is made",
            ) from error
    raise AssertionError("the last try returns or raises")


def _create(connection: Connection, body: Mapping[str, Json]) -> str:
    """Ask once. The SDK would send it again after an answer that was lost."""
    client = connection.client
    from databricks.sdk.core import ApiClient

    config = client.config.copy()  # type: ignore[no-untyped-call]  # the SDK
    config.retry_timeout_seconds = _ONE_TRY
    with connection.explained(_DOING):
        answer: Any = ApiClient(config).do("POST", "/api/2.2/jobs/create", body=dict(body))
    return str(answer["job_id"])
