"""Answers of a platform, kept for ten minutes between calls of the command line. A plan whose
answers are all there does not connect."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.model.jsonable import Json, canonical

_FRESH = 600.0  # seconds for which an answer counts


class AnswerCache:
    """Answers of one platform to one user. What cannot be read or written is asked again.

    Args:
        backend: the kind of the backend.
        login: gives what names the platform and the user. It raises BackendError if nothing says
            which platform is meant; so does each call here.
    """

    def __init__(self, backend: str, login: Callable[[], Sequence[str]]) -> None:
        self._backend = backend
        self._login = login

    def get(self, question: Json, ask: Callable[[], Json]) -> Json:
        """The answer to a question, which is asked unless the answer is cached. `None` is no answer
        and is not cached."""
        answer = self.cached(question)
        if answer is None:
            answer = ask()
            if answer is not None:
                self.remember(question, answer)
        return answer

    def cached(self, question: Json) -> Json:
        """The cached answer; `None` where there is none, or an old one."""
        path = self._path(question)
        try:
            fresh = 0 <= time.time() - path.stat().st_mtime < _FRESH
            answer: Json = json.loads(path.read_bytes()) if fresh else None
        except (OSError, ValueError):
            return None
        return answer

    def age(self, question: Json) -> float:
        """The seconds since the answer was given; 0 where there is none."""
        try:
            return max(0.0, time.time() - self._path(question).stat().st_mtime)
        except OSError:
            return 0.0

    def remember(self, question: Json, answer: Json) -> None:
        """Cache an answer."""
        path = self._path(question)
        with suppress(OSError):
            private_folder(path.parent)
            write_atomic(path, json.dumps(answer).encode(), durable=False)

    def forget(self, question: Json) -> None:
        """Ask again next time: the answer may not hold any more."""
        with suppress(OSError):
            self._path(question).unlink(missing_ok=True)

    def _path(self, question: Json) -> Path:
        import platformdirs

        key = canonical([*self._login(), question])
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        return Path(platformdirs.user_cache_path("sgpu")) / self._backend / f"{name}.json"
