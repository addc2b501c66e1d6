"""What a report says of an attempt, beyond what `sgpu show` does: when, how much, and how fast."""

from collections.abc import Mapping

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.attempt_diff import AttemptDiff
from sgpu_decl.model.attempt_view import RunHistory

__all__ = [
    "REPORT_MARK",
    "AttemptReport",
    "LastLines",
    "MetricCurve",
    "RankSpan",
    "RunPhase",
    "UsagePlot",
]

REPORT_MARK = '<meta name="generator" content="sgpu report">'
"""What a page of `sgpu report` has at its beginning: only such a file is replaced by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPhase:
    """A state of the attempt, from `start` to `end` in seconds since its first event."""

    state: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpan:
    """A rank in its `restart`-th start, from `start` to `end` in seconds since the first event of
    the attempt. `how` it ended: `succeeded`, `failed`, `stopped`, `running` where it did not, or
    `unknown`; `detail` is its exit code or signal."""

    rank: int
    node: int
    restart: int
    start: float
    end: float
    how: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePlot:
    """What ranks or GPUs used: a value for each `width` seconds from `start` on, by the name of the
    rank or the GPU; None where nothing was measured. `most` is the end of the scale, where it has
    one."""

    title: str
    unit: str
    start: float
    width: int
    lanes: Mapping[str, tuple[float | None, ...]]
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCurve:
    """A metric by its step: at most some hundred of its values, the lowest and the highest among
    them. `lost` of all values were not finite, the first at `lost_at`."""

    name: str
    points: tuple[tuple[int, float], ...]
    lost: int = 0
    lost_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLines:
    """The end of the log of a rank."""

    rank: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """`diff` compares the attempt with the last one before it that succeeded, None where there is
    none. The run holds `gpus`, none on CPUs; `limit_seconds` is its `timeout`, and
    `most_gpu_hours` what it could take with all its retries. `gaps` say what could not be read,
    and why."""

    run: RunHistory
    gpus: int
    limit_seconds: float | None = None
    most_gpu_hours: float | None = None
    retries: int = 0
    phases: tuple[RunPhase, ...] = ()
    spans: tuple[RankSpan, ...] = ()
    usage: tuple[UsagePlot, ...] = ()
    curves: tuple[MetricCurve, ...] = ()
    values: Mapping[str, float]
    last_lines: tuple[LastLines, ...] = ()
    diff: AttemptDiff | None = None
    gaps: tuple[str, ...] = ()
