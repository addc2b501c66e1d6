"""The folder in which the shared states of projects lie, and errors that say so."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.places.file_place import FilePlace, PlaceMissing
from sgpu_decl.storing.journal.port import StoreDown


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRoot:
    """The folder of a place in which the states of projects lie.

    Attributes:
        name: for messages.
        path: of the folder; empty for the place itself.
        kind: what lies there, for messages.
        in_folder: how many entries a folder has; None for all.
        require: called where nothing is found, and before anything is made; raises SgpuError where
            the folder is none of states.
        close: closes the connections to the place; a later call opens them again.
        begin: called with a free path before the first entry is written; raises BackendError where
            the place does not keep the promises that a state needs.
    """

    place: FilePlace
    name: str
    path: str
    kind: str = "the shared state"
    in_folder: int | None = None
    require: Callable[[], None] = lambda: None
    begin: Callable[[str], None] = lambda _: None
    close: Callable[[], None] = lambda: None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say that it is the state which the place does not give."""
        try:
            yield
        except BackendError as error:
            if error.code == "sdk_missing":
                raise
            what = f"{self.kind} in `{self.name}` cannot be used: {error.message}"
            if error.retryable:
                raise StoreDown(what, hint=error.hint) from error
            raise SgpuError(what, hint=error.hint, code="state_unreachable") from error

    @contextmanager
    def deleting(self) -> Iterator[None]:
        """As `explained`, for what needs the right to delete."""
        with self.explained():
            try:
                yield
            except BackendError as error:
                if error.code != "permission_denied":
                    raise
                raise SgpuError(
                    f"the user of the state in `{self.name}` may not delete anything there: "
                    f"{error.message}",
                    hint=f"let a user do it who may delete below `{self.name}`",
                    code="compact_refused",
                ) from error

    def create(self, path: str, content: bytes) -> bool:
        """Add a file, with the folders above it; false if one of that name is there."""
        with self.explained():
            try:
                return self.place.create(path, content)
            except PlaceMissing:
                self.require()
                self.place.make_folder(path.rpartition("/")[0])
            return self.place.create(path, content)

    def read(self, path: str) -> bytes | None:
        """The content of a file; None where it is not there. Raises BackendError."""
        try:
            return self.place.get(path)
        except PlaceMissing:
            return None
