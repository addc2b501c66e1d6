"""What an apply did."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.plan import Change

Sink = Callable[[ApplyEvent], None]


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


@dataclass(slots=True, kw_only=True)
class ApplyLog:
    """What an apply has done up to now, each step of which is told to `sink`."""

    sink: Sink
    launched: list[AttemptRef] = field(default_factory=list)
    adopted: list[AttemptRef] = field(default_factory=list)
    stopping: list[AttemptRef] = field(default_factory=list)
    failed: list[tuple[Address, SgpuError]] = field(default_factory=list)
    unrecorded: list[Diagnostic] = field(default_factory=list)
    unpushed: SgpuError | None = None

    def applied(self) -> Applied:
        return Applied(
            launched=tuple(self.launched),
            adopted=tuple(sorted(self.adopted)),
            stopping=tuple(sorted(self.stopping)),
            failed=tuple(self.failed),
            unrecorded=tuple(dict.fromkeys(self.unrecorded)),
            unpushed=self.unpushed,
        )

    def fail(self, change: Change, error: SgpuError, ref: AttemptRef | None = None) -> None:
        self.failed.append((change.address, error))
        self.tell(change, Step.FAILED, ref, error.message)

    def tell(
        self,
        change: Change,
        step: Step,
        attempt: AttemptRef | None = None,
        message: str = "",
        *,
        waits: bool = False,
    ) -> None:
        self.sink(
            ApplyEvent(
                step=step,
                address=change.address,
                attempt=attempt,
                message=message,
                waits_for=change.waits_for if waits else (),
            )
        )
