"""What a workspace said a short while ago, kept between calls of the command line: it is not asked
the same question again and again, and a plan that has all answers need not connect."""

import hashlib
import json
import time
from contextlib import suppress
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.model.jsonable import Json, canonical

__all__ = ["FRESH", "AnswerCache"]

FRESH = 600.0
"""Seconds for which an answer counts."""


class AnswerCache:
    """Answers of one workspace to one user. What cannot be read or written is asked again.

    Raises:
        BackendError: nothing says which workspace is meant; of every call.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def answer(self, question: Json) -> Json:
        """The answer to a question, `None` where it is not known or too old."""
        path = self._path(question)
        try:
            fresh = 0 <= time.time() - path.stat().st_mtime < FRESH
            answer: Json = json.loads(path.read_bytes()) if fresh else None
        except (OSError, ValueError):
            return None
        return answer

    def remember(self, question: Json, answer: Json) -> None:
        """Keep an answer."""
        path = self._path(question)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, json.dumps(answer).encode(), durable=False)
        except OSError:
            return

    def forget(self, question: Json) -> None:
        """Ask again next time: the answer may not hold any more."""
        with suppress(OSError):
            self._path(question).unlink(missing_ok=True)

    def _path(self, question: Json) -> Path:
        import platformdirs

        login = self._connection.login
        asked = canonical([login.host, login.who, question])
        name = hashlib.sha256(asked.encode()).hexdigest()[:32]
        return Path(platformdirs.user_cache_path("sgpu")) / "databricks" / f"{name}.json"
