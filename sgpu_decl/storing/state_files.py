"""What a platform does for a state that machines share: it keeps small files, and dates them.

A kind of backend whose platform does so is a kind of state, too (`BackendKind.state_files`).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

__all__ = ["MISSING", "StateFiles"]

MISSING = "remote_missing"
"""The code of the error for what is not there."""


class StateFiles(Protocol):
    """Files in folders. Paths are absolute, with `/` between names. Times are those of the
    platform's clock. Calls may come from several threads.

    Every call may raise BackendError: the platform does not answer, or refuses. Where `retryable`
    is set, trying again may help, and what was asked may have happened.
    """

    most: int | None
    """Bytes up to which a file can be read; None for any size."""

    @property
    def host(self) -> str:
        """The platform, for messages."""

    @property
    def user(self) -> str:
        """Whose rights count, for messages."""

    def create(self, path: str, content: bytes) -> bool:
        """Write a file, whole; false if there is one of that name, which stays. Once it returns,
        the file survives a power cut. The error has the code `MISSING` if its folder is not
        there."""

    def read(self, path: str) -> bytes | None:
        """The content of a file; None where it is not there."""

    def written_at(self, path: str) -> datetime | None:
        """When a file was written; None where it is not there."""

    def files(self, folder: str) -> Mapping[str, datetime]:
        """The names of the files in a folder, and when each was written, as `written_at` says it.
        Those that were added last may be missing. It is empty if there is no such folder."""

    def folders(self, folder: str) -> tuple[str, ...]:
        """The names of the folders in a folder; none if there is no such folder."""

    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder, and the user may see it."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it; harmless where they are there."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; harmless where it is not there."""

    def now(self) -> datetime:
        """The time by the platform's clock, give or take some seconds, without a request."""

    def making(self, folder: str) -> str:
        """The shell command with which a person makes a folder."""
