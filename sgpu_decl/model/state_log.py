"""The log of a state that machines share: who changed what."""

from dataclasses import field
from datetime import datetime

from sgpu_decl.frozen_dataclass import FLAT, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChange:
    """One change. `op` is the call of the `StateWriter`, or `lock` and `unlock`. `subject` is what
    it was about: an attempt and its state, an address, a plan, or the id of a lock."""

    op: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySource:
    """Who applies, and after which reviews. `principal` is the user or the service principal of the
    platform, `proposals` are the ids of the proposals that cover the apply, and `links` are those
    of their pull requests."""

    principal: str | None = None
    proposals: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry. `at` is the time of the store; `serial` that of the state after the entry;
    `commit` the git commit of the project that was applied; `source` is empty where no apply says
    it."""

    number: int
    at: datetime
    serial: int
    who: str
    host: str
    operation: str
    tool_version: str
    commit: str | None
    changes: tuple[LogChange, ...]
    source: ApplySource = field(default=ApplySource(), metadata=FLAT)
