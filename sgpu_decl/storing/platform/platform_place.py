"""The folder of a platform in which states lie, and errors in words."""

from collections.abc import Iterator
from contextlib import contextmanager

from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.storing.journal.port import StoreDown
from sgpu_decl.storing.state_files import MISSING, StateFiles

__all__ = ["PlatformPlace"]


class PlatformPlace:
    """`path` is the folder of all projects. It has to be made by hand: with the login of another
    workspace, a new state would begin there."""

    def __init__(self, path: str, files: StateFiles) -> None:
        self.path = path
        self.files = files
        self._found = False

    def check(self) -> None:
        """Raises SgpuError where the folder is not there."""
        if self._found:
            return
        with self.explained():
            self._found = self.files.is_folder(self.path)
        if not self._found:
            raise SgpuError(
                f"`{self.path}` holds no shared state: `{self.files.host}` has no such folder, or "
                f"`{self.files.user}` may not see it",
                hint="is this the right workspace, and the right user? For a first state: "
                f"`{self.files.making(self.path)}`",
                code="state_unreachable",
            )

    def create(self, path: str, content: bytes) -> bool:
        """Add a file, with the folders above it; false if one of that name is there."""
        self.check()
        with self.explained():
            try:
                return self.files.create(path, content)
            except BackendError as error:
                if error.code != MISSING:
                    raise
            self.files.make_folder(path.rpartition("/")[0])
            return self.files.create(path, content)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say that it is the state which the platform does not give."""
        try:
            yield
        except BackendError as error:
            what = f"the shared state in `{self.path}` cannot be used: {error.message}"
            if error.retryable:
                raise StoreDown(what, hint=error.hint) from error
            raise SgpuError(what, hint=error.hint, code="state_unreachable") from error
