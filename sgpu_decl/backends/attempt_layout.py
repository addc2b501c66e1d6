"""Where what belongs to attempts lies on this machine."""

from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.agent.attempt.staged_folder import holds_launch, size_of
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.system_errors import advice, error_text


@dataclass(frozen=True, slots=True)
class AttemptLayout:
    """`state_dir` is `.sgpu/<target>`, or where it was moved to off a network file system."""

    state_dir: Path

    def run(self, address: Address) -> Path:
        return self.state_dir / "runs" / address.folder

    def attempt(self, ref: AttemptRef) -> Path:
        return self.run(ref.address) / str(ref.number)

    def found(self, record: LaunchRecord) -> Path:
        """The folder of an attempt that was recorded. If its run has got another address since, and
        the folder was not moved on this machine (another one renamed the run, or whoever did was
        killed), it is moved now; it stays where it is if that cannot be done."""
        folder = self.attempt(record.ref)
        before = self.holder(record) if record.formerly else None
        return folder if before is None or before == folder else _moved(before, folder)

    def holder(self, record: LaunchRecord) -> Path | None:
        """The folder that holds an attempt, at the address that its run has or had."""
        addresses = (record.ref.address, *reversed(record.formerly))
        folders = (self.attempt(AttemptRef(one, record.ref.number)) for one in addresses)
        return next((folder for folder in folders if holds_launch(folder, record.token)), None)

    def output(self, ref: AttemptRef) -> Path:
        return self.attempt(ref) / "output"

    def size(self, folder: Path) -> int:
        """Bytes that the folder of an attempt takes up on the disk."""
        return size_of(folder)

    def move(self, source: Address, destination: Address) -> None:
        """Give the folders of a run another address.

        Raises:
            BackendError: there is something at the other address.
        """
        old, new = self.run(source), self.run(destination)
        if not old.is_dir():
            return
        try:
            old.rename(new)
        except OSError as error:
            raise BackendError(
                f"`{old}` cannot be renamed to `{new}`: {error_text(error)}",
                hint=advice(error),
                code="move_refused",
            ) from error

    @property
    def shared(self) -> Path:
        """What attempts have in common, by content: their folders hold links to it."""
        return self.state_dir / "shared"

    def parallel_locks(self, ref: AttemptRef, *, called: bool) -> Path:
        """Slots of `max_parallel`, shared by the cells of one matrix, or by all calls of functions,
        whose folder has a name that no run can have."""
        return self.state_dir / "slots" / (".calls" if called else ref.address.name)


def _moved(before: Path, folder: Path) -> Path:
    """Move a folder; another process may be doing that, too. Returns where it is."""
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        before.rename(folder)
    except OSError:
        return before if before.is_dir() else folder
    return folder
