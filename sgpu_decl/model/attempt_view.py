"""What a backend says of an attempt, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from math import nan
from typing import TYPE_CHECKING, Any, cast

from sgpu_decl.frozen_dataclass import SOMETIMES, UNWRITTEN, dataclass
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.state import Attempt

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_details import (
        EndNotice,
        FirstCause,
        RankWait,
        Restart,
        RunProgress,
        WorkingFiles,
    )
    from sgpu_decl.model.ray_size import RayStatus
    from sgpu_decl.model.run_usage import RunIdle, RunUsage

__all__ = [
    "SKIPPED",
    "AttemptView",
    "RankView",
    "RunHistory",
    "status_fields",
    "time_text",
    "view_in",
]


SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One rank, in its last restart. `signal` is what ended it, such as `SIGKILL`; `dropped_bytes`
    of its output are missing, since the disk was full."""

    rank: int
    node_rank: int | None
    state: str
    exit_code: int | None = None
    signal: str | None = None
    dropped_bytes: int | None = field(default=None, metadata=SOMETIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """What a backend says of one attempt.

    `failure` is set for `failed` and `lost`; `waiting_for` while it waits: `earlier attempts`,
    names of attempts of other runs, `max_parallel`, `gpus`, or the `backoff` of a restart.
    `restart` says how often its ranks were started again; of the newest ones `restarts` says why.
    `tracking` is `replaced` where another store than the one that was asked for has its MLflow run,
    `off` where none does. `links` say where its things lie. `ray` is its Ray cluster, once that is
    complete. `progress` says how far it is, or was, as far as its ranks tell, and `usage` what they
    used, as far as it was measured; `idle` is there while that is too little, and `rank_wait` while
    ranks wait for others: it says for whom. `metrics` are the
    last values in the `metrics.json` of its output, once it has ended, and `metrics_problem` says
    what could not be read of it. `notices` say who was told of the end. Since
    `not_responding_since` its supervisor gives no sign of life; `processes_left` run on though
    nobody supervises them. `unavailable` says why it cannot be asked from here, and `way_out` the
    next step; everything else is then as it was known last, at `unknown_since` if that is known,
    and `hidden_from` is the user from whom its platform hides it. One that is `overdue` must have
    ended since, by its own limits or by what the platform shows; its state is `lost`, for want of a
    better word, and nobody may record that.
    """

    ref: AttemptRef = field(metadata=UNWRITTEN)
    state: AttemptState
    backend: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    failure: FailureClass | None = field(default=None, metadata=UNWRITTEN)
    ranks: tuple[RankView, ...] = ()
    first_cause: "FirstCause | None" = None
    restart: int = 0
    restarts: "tuple[Restart, ...]" = ()
    tracking: str | None = field(default=None, metadata=UNWRITTEN)
    links: Mapping[str, Json] = field(default_factory=dict)
    waiting_for: str | None = field(default=None, metadata=SOMETIMES)
    ray: "RayStatus | None" = field(default=None, metadata=SOMETIMES)
    working_files: "WorkingFiles | None" = field(default=None, metadata=SOMETIMES)
    progress: "RunProgress | None" = field(default=None, metadata=SOMETIMES)
    usage: "RunUsage | None" = field(default=None, metadata=SOMETIMES)
    idle: "RunIdle | None" = field(default=None, metadata=SOMETIMES)
    rank_wait: "RankWait | None" = field(default=None, metadata=SOMETIMES)
    metrics: Mapping[str, float] = field(default_factory=dict, metadata=SOMETIMES)
    metrics_problem: str | None = field(default=None, metadata=SOMETIMES)
    notices: "tuple[EndNotice, ...]" = field(default=(), metadata=SOMETIMES)
    not_responding_since: datetime | None = field(default=None, metadata=SOMETIMES)
    processes_left: tuple[int, ...] = field(default=(), metadata=SOMETIMES)
    unavailable: str | None = field(default=None, metadata=SOMETIMES)
    way_out: str | None = field(default=None, metadata=SOMETIMES)
    unknown_since: datetime | None = field(default=None, metadata=SOMETIMES)
    hidden_from: str | None = field(default=None, metadata=SOMETIMES)
    overdue: bool = field(default=False, metadata=SOMETIMES)

    @property
    def skipped(self) -> bool:
        """Whether it never started, since a run that it comes after has not succeeded."""
        return self.state is AttemptState.FAILED and self.failure is FailureClass.UPSTREAM_FAILED

    @property
    def state_word(self) -> str:
        """The state for people, who read `skipped` where the state says `failed`."""
        return SKIPPED if self.skipped else str(self.state)

    def seconds(self, now: datetime | None) -> float | None:
        """How long it took, or takes until `now`, as far as is known; None if it did not start, or
        has ended and nobody knows when."""
        seen = self.unknown_since if self.unavailable is not None else None
        until = self.ended_at or ((seen or now) if self.state.active else None)
        if self.started_at is None or until is None:
            return None
        return max(0.0, (until - self.started_at).total_seconds())

    def __repr__(self) -> str:
        """Short: a notebook shows lists of them."""
        cause = f": {self.first_cause.summary}" if self.first_cause is not None else ""
        return f"<{self.ref} {self.state_word}{cause}>"


def view_in(record: LaunchRecord, status: Mapping[str, Any]) -> AttemptView:
    """The view that a JSON object gives: `outcome.json`, what `agent.attempt.attempt_status` reads,
    or a `status` object."""
    failure, cause = status.get("class"), status.get("first_cause")
    files, restarts = status.get("working_files"), status.get("restarts")
    progress, usage, idle = status.get("progress"), status.get("usage"), status.get("idle")
    wait = status.get("rank_wait")
    if usage or idle:
        from sgpu_decl.model.run_usage import idle_in, usage_in
    if cause or files or restarts or progress or wait:
        from sgpu_decl.model.attempt_details import (
            WorkingFiles,
            cause_in,
            progress_in,
            rank_wait_in,
            restarts_in,
        )
    state = AttemptState(status["state"])
    return AttemptView(
        ref=record.ref,
        backend=record.backend,
        state=state,
        started_at=_time(status.get("started_at")),
        ended_at=_time(status.get("ended_at")),
        exit_code=status.get("exit_code"),
        failure=FailureClass(failure) if failure in frozenset(FailureClass) else None,
        ranks=tuple(_rank(item) for item in status.get("ranks") or ()),
        first_cause=cause_in(cause) if cause else None,
        waiting_for=status.get("waiting_for"),
        restart=status.get("restart") or 0,
        restarts=restarts_in(status) if restarts else (),
        tracking=_tracking(status["mlflow"]) if status.get("mlflow") else None,
        links=status.get("links") or {},
        ray=_ray(status["ray"], state) if status.get("ray") else None,
        working_files=WorkingFiles(names=tuple(files["names"]), count=files["count"])
        if files
        else None,
        progress=progress_in(progress) if progress else None,
        usage=usage_in(usage) if usage else None,
        idle=idle_in(idle) if idle else None,
        rank_wait=rank_wait_in(wait) if wait else None,
        metrics=_metrics(status["metrics"]) if status.get("metrics") else {},
        metrics_problem=status.get("metrics_problem"),
        notices=notices_in(status.get("notices") or ()),
        not_responding_since=_time(status.get("not_responding_since")),
    )


def status_fields(view: AttemptView) -> dict[str, Json]:
    """The `status` object of the public contract, but for the names of the run: what `view_in`
    reads, less `class`, which is that of the first cause."""
    cause = view.first_cause
    if cause is not None and cause.missing is not None and not cause.missing.reason:
        view = replace(view, first_cause=replace(cause, missing=None))
    written = cast("dict[str, Json]", to_json(view, times=time_text))
    return {"attempt": view.ref.number, **written, **({"skipped": True} if view.skipped else {})}


def _metrics(values: Mapping[str, float | None]) -> dict[str, float]:
    """JSON has no NaN and no infinity: a value that is neither is null there."""
    return {name: nan if value is None else value for name, value in values.items()}


def notices_in(items: Sequence[Mapping[str, Any]]) -> "tuple[EndNotice, ...]":
    """Who was told of an end."""
    if not items:
        return ()
    from sgpu_decl.model.attempt_details import EndNotice

    return tuple(
        EndNotice(
            way=item["way"],
            ok=item["ok"],
            tries=item["tries"],
            summary=item["summary"],
            at=datetime.fromisoformat(item["at"]),
        )
        for item in items
    )


def _tracking(run: Mapping[str, Any]) -> str | None:
    return "off" if "error" in run else "replaced" if "instead_of" in run else None


def _ray(item: Mapping[str, Any], state: AttemptState) -> "RayStatus":
    from sgpu_decl.model.ray_size import RayStatus

    known = {"version": item["version"], "nodes": item["nodes"]}
    if not (state.active and item["dashboard"]):
        return RayStatus(**known)
    return RayStatus(
        **known,
        dashboard=item["dashboard"],
        token_file=item["token_file"],
        host=item.get("host"),  # agents of older launches do not say it
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


def time_text(moment: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """One attempt of a run with the spec that was launched, and all attempts of the run, each as it
    is recorded and as its backend sees it now. `owner` is the file that declares the run."""

    view: AttemptView
    spec: Spec
    attempts: tuple[tuple[Attempt, AttemptView], ...]
    owner: str = ""
