"""Creates a job once. The API has no idempotency token for that, so sgpu looks for the job by its
mark before it sends the request, and before it sends it again."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.jsonable import Json

_BUSY = frozenset({"limit_reached", "throttled", "unavailable"})
_TRIES = 6
_LONGEST = 60.0  # seconds to wait for a busy workspace, whatever it asks for
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
    for attempt in range(1, _TRIES + 1):
        job_id = find()
        if job_id is not None:
            return job_id
        try:
            return _create(connection, body)
        except BackendError as error:
            busy = error.code in _BUSY
            if not error.retryable or (busy and attempt == _TRIES):
                raise
            if busy:
                seconds = getattr(error.__cause__, "retry_after_secs", None)
                pause = attempt if seconds is None else min(seconds, _LONGEST)
                connection.client.config.clock.sleep(pause)
                continue
            job_id = find()
            if job_id is not None:
                return job_id
            raise OutcomeUnknown(
                f"{error.message}; whether it was made is not known",
                hint="apply again: it is looked for before another one is made",
            ) from error
    raise AssertionError("the last try returns or raises")


def _create(connection: Connection, body: Mapping[str, Json]) -> str:
    with connection.explained(_DOING):
        answer: Any = connection.client.api_client.do(
            "POST",
            "/api/2.2/jobs/create",
            headers={"Content-Type": "application/json"},
            data=_SentOnce(json.dumps(body).encode()),
        )
    return str(answer["job_id"])


class _SentOnce:
    """A body that cannot be rewound. The SDK sends such a request once; it would send any other
    again after a lost answer."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def __iter__(self) -> Iterator[bytes]:
        yield self._content

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        end = len(self._content) if size < 0 else size
        data, self._content = self._content[:end], self._content[end:]
        return data
