"""What decides a plan."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.backend_kinds import Capabilities
from sgpu_decl.model.desired import DesiredRun, Rename
from sgpu_decl.model.state import State

if TYPE_CHECKING:
    from sgpu_decl.model.job import DesiredJob, ObservedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What the user asked for on the command line, resolved to addresses.

    `owner` is the file that is planned, relative to the project: what it once declared and no
    longer lists is removed; None owns everything that is recorded.
    `select` is what remains of `--select` and `--exclude`, None for everything. `on_active` wins
    over the field. `whole_project` is false for a run file, which covers its own run and matrix
    cells alone and never removes a run of another name. `destroy` plans the end of all that the
    file owns, listed or not. Unless it `removes`, a plan leaves alone what the file no longer
    lists. In a `strict` plan, warnings are errors. One that is to `heal` launches again what a
    person cancelled. What the project has in `let_go`, all cells of a
    matrix by the address of the run, is forgotten as it is. So are jobs that are `managed` by
    somebody else, who is named in words. `lost_files` are those that declared what is recorded, and
    are not there now. Of what the target has `left_out`, runs by their address without a key, jobs
    end, and runs stay as they are.
    """

    owner: str | None = None
    target: str | None = None
    project: str = ""
    rerun: frozenset[Address] = frozenset()
    select: frozenset[Address] | None = None
    retry_failed: bool = False
    heal: bool = False
    on_active: str | None = None
    whole_project: bool = True
    destroy: bool = False
    removes: bool = True
    strict: bool = False
    let_go: frozenset[Address] = frozenset()
    managed: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    lost_files: frozenset[str] = frozenset()
    left_out: frozenset[Address] = frozenset()

    def selects(self, address: Address) -> bool:
        return self.select is None or address in self.select

    def owns(self, owner: str) -> bool:
        """Whether what a file declared is that of the plan."""
        return self.owner in (None, owner)

    def ends(self, job: Address, owner: str, declared: Collection[Address]) -> bool:
        """Whether the plan ends a job that an `owner` declared."""
        return (
            self.owns(owner)
            and self.selects(job)
            and (self.destroy or (self.removes and self.whole_project and job not in declared))
        )

    def leaves_out(self, address: Address) -> bool:
        """Whether an address is that of a run which the target leaves out, or of its own
        environment."""
        return Address.run(address.name) in self.left_out and address.kind is not Kind.JOB

    def lets_go(self, address: Address) -> bool:
        return not self.let_go.isdisjoint((address, Address(address.kind, address.name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What decides a plan: equal inputs, equal plan.

    Of equal addresses in `desired` the first counts. `findings` are those of the whole file, and of
    its runs those that `found_for` has; others travel in what is desired. `renames` are carried out
    before all else, whatever is selected: `state` and `observed` are as they are before that, and
    `needed` are attempts that active ones look at, each with one of these. `seen_jobs` holds every
    job that is planned and can be. `capabilities` are those of the backends that can run something,
    by name.
    """

    request: PlanRequest
    state: State
    observed: Mapping[AttemptRef, AttemptView]
    now: datetime
    tool_version: str
    config_digest: str = ""
    capabilities: Mapping[str, Capabilities] = field(default_factory=dict)
    desired: Sequence[DesiredRun] = ()
    jobs: "Sequence[DesiredJob]" = ()
    seen_jobs: "Mapping[Address, ObservedJob]" = field(default_factory=dict)
    findings: Sequence[Diagnostic] = ()
    found_for: Mapping[Diagnostic, Sequence[Address]] = field(default_factory=dict)
    renames: Sequence[Rename] = ()
    needed: Mapping[AttemptRef, AttemptRef] = field(default_factory=dict)
