"""Gathers what a report says of an attempt: from its backend, from what its nodes left, from MLflow
and from the history. What cannot be read is a gap in the report, and no error."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgpu_decl.agent.attempt.attempt_files import EVENTS
from sgpu_decl.agent.attempt.metrics_file import METRICS, read_metrics
from sgpu_decl.agent.attempt.monitor_files import SERIES
from sgpu_decl.content.output_pieces import OUTPUT
from sgpu_decl.diagnostics.amounts import read_duration
from sgpu_decl.errors import NotFound, SgpuError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_report import AttemptReport, LastLines, MetricCurve
from sgpu_decl.model.attempt_view import AttemptView, RunHistory
from sgpu_decl.model.run_table import SYSTEM_METRICS
from sgpu_decl.planner.estimate import gpus_of, worst_hours
from sgpu_decl.runs import attempt_records as records
from sgpu_decl.tracking.stores.store_protocol import StoreError

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_diff import AttemptDiff
    from sgpu_decl.runs.project_runs import ProjectRuns

_MOST_TAILS = 8  # ranks
_LINES = 30
_MOST_METRICS = 60
T = TypeVar("T")


class ReportGatherer:
    """For one attempt. `files` gives what nodes left, as `Attempts.node_files` does."""

    def __init__(
        self,
        runs: "ProjectRuns",
        ref: AttemptRef,
        files: Callable[[str], Mapping[int, Path]],
        history_of: "Callable[[AttemptView, list[str]], Mapping[str, list[tuple[int, float]]]]",
    ) -> None:
        self._runs = runs
        self._ref = ref
        self._files = files
        self._history_of = history_of
        self._gaps: dict[str, None] = {}

    def report(self) -> AttemptReport:
        run = self._runs.show(self._ref)
        view, spec = run.view, run.spec.fields
        if view.unavailable is not None:
            self._gaps[f"the attempt is shown as it was recorded: {view.unavailable}"] = None
        events = self._events()
        own = events.get(0, [])
        seen = max((one[-1]["seconds"] for one in events.values() if one), default=0.0)
        if view.state.active and view.started_at is not None:
            seen = max(seen, self._age(view))
        values = dict(view.metrics)
        table = self._tried("results and metrics", lambda: self._runs.table([self._ref]), None)
        if table is not None:
            (row,) = table.rows
            values = dict(row.metrics)
            self._gaps |= dict.fromkeys(table.problems)
            if row.unread is not None:
                self._gaps[row.unread.reason] = None
        usage, gaps = records.usage_in(self._found(SERIES, "what the ranks used"), events)
        self._gaps |= dict.fromkeys(gaps)
        limit, retry = spec.get("timeout"), spec.get("retry")
        retries = retry.get("max", 0) if isinstance(retry, Mapping) else 0
        return AttemptReport(
            run=run,
            gpus=gpus_of(spec),
            limit_seconds=None if limit is None else read_duration(str(limit)),
            most_gpu_hours=worst_hours(spec),
            retries=retries if isinstance(retries, int) else 0,
            phases=records.phases_in(own, seen),
            spans=records.spans_in(events, seen, _endings(view)),
            usage=usage,
            curves=self._curves(view, values),
            values={name: one for name, one in values.items() if _of_run(name)},
            last_lines=self._last_lines(view),
            diff=self._diff(run),
            gaps=tuple(self._gaps),
        )

    @staticmethod
    def _age(view: AttemptView) -> float:
        from datetime import UTC, datetime

        return view.seconds(datetime.now(UTC)) or 0.0

    def _events(self) -> dict[int, list[records.Event]]:
        found: dict[int, list[records.Event]] = {}
        for node, path in self._found(EVENTS, "the timeline").items():
            try:
                found[node] = records.read_events(path)
            except OSError as error:
                self._gaps[f"the timeline of node {node}: {error.strerror}"] = None
        moved = records.offsets(found)
        return {
            node: [{**event, "seconds": event["seconds"] + moved[node]} for event in events]
            for node, events in found.items()
        }

    def _curves(self, view: AttemptView, values: Mapping[str, float]) -> tuple[MetricCurve, ...]:
        names = [name for name in values if _of_run(name)][:_MOST_METRICS]
        history: dict[str, list[tuple[int, float]]] = {}
        for path in self._found(SERIES, "what the ranks used").values():
            history = history or records.reported_in(path)
        for path in self._found(f"{OUTPUT}{METRICS}", f"`{METRICS}`").values():
            history |= records.rows_of_file(read_metrics(str(path.parent)).rows)
        none: Mapping[str, list[tuple[int, float]]] = {}
        tracked = self._tried(
            "the history of the metrics", lambda: self._history_of(view, names), none
        )
        history |= {name: rows for name, rows in tracked.items() if rows}
        return tuple(records.curve(name, rows) for name, rows in history.items() if _of_run(name))

    def _last_lines(self, view: AttemptView) -> tuple[LastLines, ...]:
        """Of each rank that failed; where a run failed, and none of its ranks is known to have, of
        the first one."""
        if view.state in (AttemptState.SUCCEEDED, AttemptState.QUEUED) or view.unavailable:
            return ()
        failed = [rank.rank for rank in view.ranks if rank.state == "failed"]
        first = view.first_cause.rank if view.first_cause is not None else None
        if first is not None:
            failed = [first, *(rank for rank in failed if rank != first)]
        ranks = failed or [rank.rank for rank in view.ranks[:1]]
        if not ranks:
            return ()
        return self._tried("the last lines of ranks", lambda: self._tails(view, ranks), ())

    def _tails(self, view: AttemptView, ranks: Sequence[int]) -> tuple[LastLines, ...]:
        if secrets := self._runs.unhidden([self._ref]):
            hidden = ", ".join(f"`{name}`" for name in secrets)
            raise NotFound(f"the value of {hidden} could not be hidden here")
        watch = self._runs.watch(self._ref)
        tails = [(rank, watch.newest_lines(view, rank)) for rank in ranks[:_MOST_TAILS]]
        return tuple(
            LastLines(rank=rank, lines=tuple(lines)[-_LINES:]) for rank, lines in tails if lines
        )

    def _diff(self, run: RunHistory) -> "AttemptDiff | None":
        good = [
            view.ref
            for attempt, view in run.attempts
            if view.ref.number < self._ref.number and view.state is AttemptState.SUCCEEDED
        ]
        if not good:
            return None
        what = "the differences to the last good attempt"
        return self._tried(what, lambda: self._runs.diff(good[-1], self._ref), None)

    def _found(self, name: str, what: str) -> Mapping[int, Path]:
        return self._tried(what, lambda: self._files(name), {})

    def _tried(self, what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (SgpuError, StoreError) as error:
            self._gaps[f"{what}: {error}"] = None
            return otherwise


def _of_run(name: str) -> bool:
    return not name.startswith(SYSTEM_METRICS)


def _endings(view: AttemptView) -> dict[int, tuple[str, str]]:
    said = {}
    for rank in view.ranks:
        detail = rank.signal or rank.exit_code
        said[rank.rank] = (rank.state, "" if detail is None else str(detail))
    return said
