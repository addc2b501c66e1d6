"""What an apply did."""

from dataclasses import dataclass

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["Applied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What an apply did. `stopping` are attempts that were asked to stop; they may take a while.
    `unrecorded` is what could not be written down after a launch, of this apply or of an earlier
    one: the run goes on all the same; and what a platform that does not answer could not delete of
    runs that are destroyed. `unpushed` says which launches a shared state did not take,
    and why."""

    launched: tuple[AttemptRef, ...] = ()
    adopted: tuple[AttemptRef, ...] = ()
    stopping: tuple[AttemptRef, ...] = ()
    failed: tuple[tuple[Address, SgpuError], ...] = ()
    unrecorded: tuple[Diagnostic, ...] = ()
    unpushed: SgpuError | None = None

    def __repr__(self) -> str:
        """Short: a notebook shows it."""
        groups = (
            ("launched", self.launched),
            ("adopted", self.adopted),
            ("stopping", self.stopping),
        )
        words = [f"{name} {', '.join(map(str, refs))}" for name, refs in groups if refs]
        words += [f"failed {address}" for address, _ in self.failed]
        return f"<Applied: {'; '.join(words) or 'nothing'}>"
