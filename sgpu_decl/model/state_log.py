"""The log of a state that machines share: who changed what."""

from datetime import datetime

from sgpu_decl.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChange:
    """One change. `op` is the call of the `StateWriter`, or `lock` and `unlock`. `subject` is what
    it was about: an attempt and its state, an address, a plan, or the id of a lock."""

    op: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry. `at` is the time of the store; `serial` that of the state after the entry;
    `commit` the git commit of the project that was applied."""

    number: int
    at: datetime
    serial: int
    who: str
    host: str
    operation: str
    tool_version: str
    commit: str | None
    changes: tuple[LogChange, ...]
