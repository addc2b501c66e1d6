"""Why an attempt failed or started its ranks again, and what it left: values that few attempts
have, apart from `attempt_view` so that looking at the others does not load them."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from sgpu_decl.frozen_dataclass import SOMETIMES, dataclass, written_as
from sgpu_decl.model.jsonable import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Why the ranks of an attempt were started again for the `number`th time: how they ended at
    `at`, by the fault of `rank` where it was one rank's. They start at `starts_at`. `failure` and
    `kind` are as in `FirstCause`."""

    number: int = field(metadata=written_as("restart"))
    at: datetime
    starts_at: datetime
    rank: int | None
    failure: str = field(metadata=written_as("class"))
    kind: str | None = None
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
class FailureExplanation:
    """What a failure of a known kind means. `blame` is `error` where the user's code or input is to
    blame, `infra` where what it runs on is, and None where that is not certain."""

    blame: str | None
    meaning: str
    next_step: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCause:
    """What made an attempt fail: of `rank`, where it was one rank's fault. `failure` is a
    `FailureClass`, or None where somebody ended it. `kind` is one of those that docs/failures.md
    lists, or None. `simultaneous` ranks failed within 5 ms. `memory` says what took it, where there
    was too little."""

    rank: int | None = None
    failure: str | None = field(metadata=written_as("class"))
    kind: str | None = None
    summary: str
    traceback: str | None = None
    simultaneous: tuple[int, ...] = ()
    stacks: tuple[StackFile, ...] = field(default=(), metadata=SOMETIMES)
    memory: Json = field(default=None, metadata=SOMETIMES)
    code: CodeCopy | None = field(default=None, metadata=SOMETIMES)
    missing: MissingFile | None = field(default=None, metadata=SOMETIMES)
    explanation: FailureExplanation | None = field(default=None, metadata=SOMETIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingFiles:
    """How many files ranks wrote into their working folder, and some of their names."""

    names: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far a run is: at `step` of `total`, in `unit`s (`step`, `epoch` or `percent`), with
    `per_second` of them and `seconds_left`, as far as that is known. `metrics` are the last values
    that were told with it, null where they are not finite. `source` says whose word it is:
    `reported` (by `runtime.report_progress`), `trainer` (by the protocol of Kubeflow Trainer),
    `bar` (a bar of tqdm), `log` (lines of the log) or `mlflow`."""

    step: int
    total: int | None = None
    unit: str = "step"
    percent: float | None = None
    per_second: float | None = None
    seconds_left: int | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    source: str = "log"


def progress_in(item: object) -> RunProgress | None:
    """The progress that a `status` object tells of; None where it tells of none. Ranks could have
    written it."""
    if not isinstance(item, Mapping):
        return None
    known = {name: item[name] for name in RunProgress.__dataclass_fields__ if name in item}
    numbers = [known.get(name) for name in ("total", "percent", "per_second", "seconds_left")]
    words, metrics = (known.get("unit", ""), known.get("source", "")), known.get("metrics", {})
    if (
        not isinstance(known.get("step"), int)
        or not all(isinstance(one, int | float | None) for one in numbers)
        or not all(isinstance(one, str) for one in words)
        or not isinstance(metrics, Mapping)
        or not all(isinstance(one, int | float | None) for one in metrics.values())
    ):
        return None
    return RunProgress(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """That ranks wait for others, for so many `seconds`: `waiting` for `ranks`. It is a hang if
    `alarm`, and else information. `kind` is `missing` (they have not entered a collective), `order`
    or `shape` (their collectives do not match), `ended`, `stopped`, or `unfinished` (all have
    entered it, and it does not end). `summary` is all of it in words."""

    kind: str
    summary: str
    alarm: bool
    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    seconds: int = 0


def rank_wait_in(item: object) -> RankWait | None:
    """The wait that a `status` object tells of; None where it tells of none. Ranks could have
    written it."""
    if not isinstance(item, Mapping):
        return None
    summary, kind, seconds = item.get("summary"), item.get("kind"), item.get("seconds")
    ranks, waiting = item.get("ranks"), item.get("waiting")
    if (
        not isinstance(summary, str)
        or not isinstance(kind, str)
        or not isinstance(seconds, int)
        or not isinstance(ranks, list)
        or not isinstance(waiting, list)
        or not all(isinstance(rank, int) for rank in (*ranks, *waiting))
    ):
        return None
    return RankWait(
        kind=kind, summary=summary, alarm=item.get("alarm") is True, ranks=tuple(ranks),
        waiting=tuple(waiting), seconds=seconds,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EndNotice:
    """Who was told of the end of an attempt: the `way` is the `command` or the `webhook` of
    `on_finish`. `ok` says whether that succeeded, after so many `tries`, `summary` how it ended."""

    way: str
    ok: bool
    tries: int
    summary: str
    at: datetime


def restarts_in(status: Mapping[str, Any]) -> tuple[Restart, ...]:
    """The restarts that a `status` object tells of."""
    return tuple(
        Restart(
            number=item["restart"],
            at=datetime.fromisoformat(item["at"]),
            starts_at=datetime.fromisoformat(item["starts_at"]),
            rank=item["rank"],
            failure=item["class"],
            kind=item.get("kind"),  # older agents do not say it
            summary=item["summary"],
        )
        for item in status.get("restarts") or ()
    )


def cause_in(item: Mapping[str, Any]) -> FirstCause:
    """The first cause that a `status` object tells of."""
    missing, told = item.get("missing"), item.get("explanation")
    return FirstCause(
        rank=item["rank"],
        failure=item["class"],
        kind=item.get("kind"),
        summary=item["summary"],
        traceback=item["traceback"],
        simultaneous=tuple(item["simultaneous"]),
        stacks=tuple(
            StackFile(rank=one["rank"], file=one["file"]) for one in item.get("stacks", ())
        ),
        memory=item.get("memory"),
        missing=MissingFile(path=missing) if isinstance(missing, str) else None,
        explanation=FailureExplanation(
            blame=told["blame"],
            meaning=told["meaning"],
            next_step=told["next_step"],
            source=told["source"],
        )
        if told
        else None,
    )
