"""What ranks do now: what they use, and what they wrote last."""

from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING

from sgpu_decl.frozen_dataclass import UNWRITTEN, dataclass

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_view import AttemptView

__all__ = ["RankActivity", "WatchedRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankActivity:
    """One rank now; what is not known is None.

    `cpu` is in percent of a core, and `memory` in MiB; `gpu` is the share of time in which its GPUs
    ran a kernel, in percent, and `gpu_memory` of `gpu_room` is in MiB, over all processes. `step`
    is what it reported itself. `last_line` is the last line of its log, and `written_at` when that
    was. `differs` says in which way it differs from the others, if it clearly does: see
    `runs.stragglers`.
    """

    rank: int
    step: int | None = None
    cpu: int | None = None
    memory: int | None = None
    gpu: int | None = None
    gpu_memory: int | None = None
    gpu_room: int | None = None
    last_line: str | None = None
    written_at: datetime | None = None
    differs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """An attempt as `sgpu top` shows it.

    `told` is whether its backend says what ranks do; without that `ranks` is empty. They were
    measured last at `measured_at`, None if not at all. The run holds `gpus` of `gpu_type`, none on
    CPUs, and is ended after `limit_seconds`.
    """

    view: "AttemptView" = field(metadata=UNWRITTEN)
    gpus: int
    gpu_type: str
    limit_seconds: float | None = None
    told: bool = False
    measured_at: datetime | None = None
    ranks: tuple[RankActivity, ...] = field(default=(), metadata=UNWRITTEN)

    def gpu_hours(self, now: datetime) -> float | None:
        """The GPU hours that it took so far; None if it did not start, or its end is unknown."""
        seconds = self.view.seconds(now)
        return None if seconds is None else self.gpus * seconds / 3600
