"""Where what belongs to attempts lies on this machine."""

from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """`state_dir` is `.sgpu/<target>`, or where it was moved to off a network file system."""

    state_dir: Path

    def run(self, address: Address) -> Path:
        return self.state_dir / "runs" / address.folder

    def attempt(self, ref: AttemptRef) -> Path:
        return self.run(ref.address) / str(ref.number)

    def parallel_locks(self, ref: AttemptRef, *, called: bool) -> Path:
        """Slots of `max_parallel`, shared by the cells of one matrix, or by all calls of functions,
        whose folder has a name that no run can have."""
        return self.state_dir / "slots" / (".calls" if called else ref.address.name)
