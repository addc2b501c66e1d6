"""What was asked: every request with its answer's status, for tests to count."""

import threading
from collections import deque
from dataclasses import asdict, dataclass

from sgpu_decl.model.jsonable import Json

__all__ = ["Recorded", "Recording"]

_KEPT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request. `status` is 0 where no answer was sent, `json` the body where it was JSON, or
    the fields of a form that are no files."""

    method: str
    path: str
    query: dict[str, str]
    tenant: str | None
    status: int
    size: int
    json: Json = None


class Recording:
    """The newest requests, oldest first; in memory alone, since bodies may hold secrets."""

    def __init__(self) -> None:
        self._requests: deque[Recorded] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def add(self, request: Recorded) -> None:
        """Remember one."""
        with self._lock:
            self._requests.append(request)

    def all(self, tenant: str | None = None) -> list[Recorded]:
        """Those of one tenant, or of all."""
        with self._lock:
            return [one for one in self._requests if tenant in (None, one.tenant)]

    def as_json(self, tenant: str | None = None) -> list[Json]:
        """The same, for the wire."""
        return [asdict(one) for one in self.all(tenant)]

    def clear(self, tenant: str | None = None) -> None:
        """Forget those of one tenant, or all."""
        with self._lock:
            kept = [one for one in self._requests if tenant is not None and one.tenant != tenant]
            self._requests = deque(kept, maxlen=_KEPT)
