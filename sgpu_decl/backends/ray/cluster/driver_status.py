"""What the driver says of its attempt: `status.json` in the launch folder, whole at each change.

`state` is `starting`, `queued`, `running`, `stopping` or `ended`; the other fields are those of a
status of the node agent. After the end, `outcome` has the outcome of the run.
"""

from __future__ import annotations

from sgpu_decl.agent import attempt_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class DriverStatus:
    """The status of the launch in `folder`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._written: dict[str, Any] = {}
        self._fields: dict[str, Any] = {"v": 1, "state": "starting"}

    @property
    def fields(self) -> dict[str, Any]:
        return dict(self._fields)

    def write(self, **fields: Any) -> None:
        """Change fields; one that is None is left out. A storage that takes no file now gets them
        with the next change."""
        kept = {**self._fields, **fields}
        self._fields = {name: value for name, value in kept.items() if value is not None}
        if self._fields == self._written:
            return
        try:
            data = attempt_files.encode(self._fields)
            attempt_files.write_atomic(self._folder, attempt_files.STATUS, data)
        except OSError as error:
            attempt_files.say(f"the status cannot be written: {error}")
        else:
            self._written = dict(self._fields)

    def end(self, outcome: dict[str, Any]) -> None:
        self.write(state="ended", outcome=outcome)
