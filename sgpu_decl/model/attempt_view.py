"""What a backend says of an attempt, as values."""

from collections.abc import Mapping
from dataclasses import asdict, field
from datetime import UTC, datetime
from typing import Any

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

__all__ = [
    "AttemptView",
    "CodeCopy",
    "FirstCause",
    "MissingFile",
    "RankView",
    "Restart",
    "StackFile",
    "WorkingFiles",
    "restarts_in",
    "status_fields",
    "view_in",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One rank, in its last restart. `signal` is what ended it, such as `SIGKILL`; `dropped_bytes`
    of its output are missing, since the disk was full."""

    rank: int
    node_rank: int | None
    state: str
    exit_code: int | None = None
    signal: str | None = None
    dropped_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Why the ranks of an attempt were started again for the `number`th time: how they ended at
    `at`, by the fault of `rank` where it was one rank's. They start at `starts_at`."""

    number: int
    at: datetime
    starts_at: datetime
    rank: int | None
    failure: str
    summary: str

    @property
    def backoff(self) -> float:
        """Seconds that are waited for."""
        return (self.starts_at - self.at).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFile:
    """The stack of a rank, in a file of this machine."""

    rank: int
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCopy:
    """The folder with the code as it ran, and the files that differ by now."""

    copy: str
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFile:
    """A file that a rank did not find: its path, and why the copy of the code lacks it, where that
    is known."""

    path: str
    reason: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCause:
    """What made an attempt fail: of `rank`, where it was one rank's fault. `failure` is a
    `FailureClass`, or None where somebody ended it. `simultaneous` ranks failed within 5 ms.
    `memory` says what took it, where there was too little."""

    summary: str
    failure: str | None
    rank: int | None = None
    traceback: str | None = None
    simultaneous: tuple[int, ...] = ()
    stacks: tuple[StackFile, ...] = ()
    memory: Json = None
    code: CodeCopy | None = None
    missing: MissingFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingFiles:
    """How many files ranks wrote into their working folder, and some of their names."""

    names: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """What a backend says of one attempt.

    `failure` is set for `failed` and `lost`; `waiting_for` while it waits: `earlier attempts`,
    `max_parallel`, `gpus`, or the `backoff` of a restart. `restart` says how often its ranks were
    started again; of the newest ones `restarts` says why. `tracking` is `replaced` where another
    store than the one that was asked for has its MLflow run, `off` where none does. `links` say
    where its things lie. Since `not_responding_since` its supervisor gives no sign of life;
    `processes_left` run on though nobody supervises them.
    """

    ref: AttemptRef
    backend: str
    state: AttemptState
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    failure: FailureClass | None = None
    ranks: tuple[RankView, ...] = ()
    first_cause: FirstCause | None = None
    waiting_for: str | None = None
    restart: int = 0
    restarts: tuple[Restart, ...] = ()
    tracking: str | None = None
    links: Mapping[str, Json] = field(default_factory=dict)
    working_files: WorkingFiles | None = None
    not_responding_since: datetime | None = None
    processes_left: tuple[int, ...] = ()


def view_in(record: LaunchRecord, seen: Mapping[str, Any]) -> AttemptView:
    """The view that a JSON object gives: `outcome.json`, what `agent.attempt_status` reads,
    or a `status` object."""
    failure = seen.get("class")
    files = seen.get("working_files")
    return AttemptView(
        ref=record.ref,
        backend=record.backend,
        state=AttemptState(seen["state"]),
        started_at=_time(seen.get("started_at")),
        ended_at=_time(seen.get("ended_at")),
        exit_code=seen.get("exit_code"),
        failure=FailureClass(failure) if failure in frozenset(FailureClass) else None,
        ranks=tuple(_rank(item) for item in seen.get("ranks") or ()),
        first_cause=_cause(seen.get("first_cause")),
        waiting_for=seen.get("waiting_for"),
        restart=seen.get("restart") or 0,
        restarts=restarts_in(seen),
        links=seen.get("links") or {},
        working_files=WorkingFiles(names=tuple(files["names"]), count=files["count"])
        if files
        else None,
        not_responding_since=_time(seen.get("not_responding_since")),
    )


def status_fields(view: AttemptView) -> dict[str, Json]:
    """The `status` object of the public contract, but for the names of the run: what `view_in`
    reads, less `class`, which is that of the first cause."""
    sometimes: dict[str, Json] = {
        "waiting_for": view.waiting_for,
        "working_files": _plain(view.working_files),
        "not_responding_since": _text(view.not_responding_since),
        "processes_left": list(view.processes_left) or None,
    }
    return {
        "attempt": view.ref.number,
        "state": str(view.state),
        "backend": view.backend,
        "started_at": _text(view.started_at),
        "ended_at": _text(view.ended_at),
        "exit_code": view.exit_code,
        "ranks": [_rank_fields(rank) for rank in view.ranks],
        "first_cause": _cause_fields(view.first_cause),
        "restart": view.restart,
        "restarts": [_restart_fields(restart) for restart in view.restarts],
        "links": dict(view.links),
        **{name: value for name, value in sometimes.items() if value is not None},
    }


def restarts_in(seen: Mapping[str, Any]) -> tuple[Restart, ...]:
    """The restarts that a `status` object tells of."""
    return tuple(
        Restart(
            number=item["restart"],
            at=datetime.fromisoformat(item["at"]),
            starts_at=datetime.fromisoformat(item["starts_at"]),
            rank=item["rank"],
            failure=item["class"],
            summary=item["summary"],
        )
        for item in seen.get("restarts") or ()
    )


def _rank(item: Mapping[str, Any]) -> RankView:
    return RankView(
        rank=item["rank"],
        node_rank=item.get("node_rank"),
        state=item["state"],
        exit_code=item.get("exit_code"),
        signal=item.get("signal"),
        dropped_bytes=item.get("dropped_bytes"),
    )


def _cause(item: Mapping[str, Any] | None) -> FirstCause | None:
    if item is None:
        return None
    missing = item.get("missing")
    return FirstCause(
        rank=item["rank"],
        failure=item["class"],
        summary=item["summary"],
        traceback=item["traceback"],
        simultaneous=tuple(item["simultaneous"]),
        stacks=tuple(
            StackFile(rank=one["rank"], file=one["file"]) for one in item.get("stacks", ())
        ),
        memory=item.get("memory"),
        missing=MissingFile(path=missing) if isinstance(missing, str) else None,
    )


def _rank_fields(rank: RankView) -> dict[str, Json]:
    always: dict[str, Json] = {
        "rank": rank.rank,
        "node_rank": rank.node_rank,
        "state": rank.state,
        "exit_code": rank.exit_code,
        "signal": rank.signal,
    }
    dropped = rank.dropped_bytes
    return always if dropped is None else {**always, "dropped_bytes": dropped}


def _cause_fields(cause: FirstCause | None) -> dict[str, Json] | None:
    if cause is None:
        return None
    missing = cause.missing if cause.missing is not None and cause.missing.reason else None
    sometimes: dict[str, Json] = {
        "stacks": [_plain(stack) for stack in cause.stacks] or None,
        "memory": cause.memory,
        "code": _plain(cause.code),
        "missing": _plain(missing),
    }
    return {
        "rank": cause.rank,
        "class": cause.failure,
        "summary": cause.summary,
        "traceback": cause.traceback,
        "simultaneous": list(cause.simultaneous),
        **{name: value for name, value in sometimes.items() if value is not None},
    }


def _restart_fields(restart: Restart) -> dict[str, Json]:
    return {
        "restart": restart.number,
        "at": _text(restart.at),
        "starts_at": _text(restart.starts_at),
        "rank": restart.rank,
        "class": restart.failure,
        "summary": restart.summary,
    }


def _plain(value: StackFile | CodeCopy | MissingFile | WorkingFiles | None) -> Json:
    if value is None:
        return None
    return {
        name: list(item) if isinstance(item, tuple) else item
        for name, item in asdict(value).items()
    }


def _text(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    if moment is None:
        return None
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
