"""What the driver says of its attempt: `status.json` in the launch folder, whole at each change.

`state` is `starting`, `queued`, `running`, `stopping` or `ended`; the other fields are those of a
status of the node agent. After the end, `outcome` has the outcome of the run. `alive_at` says when
the driver wrote the file; it does so every 30 s while it lives.
"""

from __future__ import annotations

import threading

from sgpu_decl.agent.attempt import attempt_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_RENEWAL = 30.0  # seconds


class DriverStatus:
    """The status of the launch in `folder`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._written: dict[str, Any] = {}
        self._fields: dict[str, Any] = {"v": 1, "state": "starting"}

    @property
    def fields(self) -> dict[str, Any]:
        return dict(self._fields)

    def write(self, **fields: Any) -> None:
        """Change fields; one that is None is left out. A storage that takes no file now gets them
        with the next change."""
        with self._guard:
            kept = {**self._fields, **fields}
            self._fields = {name: value for name, value in kept.items() if value is not None}
            if self._fields != self._written:
                self._save()

    def keep_alive(self) -> None:
        """Renew `alive_at` from now on, whatever this process waits for."""
        threading.Thread(target=self._renew, daemon=True).start()

    def end(self, outcome: dict[str, Any]) -> None:
        self.write(state="ended", outcome=outcome)
        self._over.set()

    def _renew(self) -> None:
        while not self._over.wait(_RENEWAL):
            with self._guard:
                self._save()

    def _save(self) -> None:
        """Write the file. The caller holds the lock."""
        try:
            data = attempt_files.encode({**self._fields, "alive_at": attempt_files.stamp()})
            attempt_files.write_atomic(self._folder, attempt_files.STATUS, data)
        except OSError as error:
            attempt_files.say(f"the status cannot be written: {error}")
        else:
            self._written = dict(self._fields)
