"""Looking at attempts, waiting for them and asking them to stop. Nothing here writes state:
`Session.close` records the ends that were seen."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from sgpu_decl.errors import BackendError, NotFound, OutOfTime, SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.jsonable import NO_FIELDS, Json
from sgpu_decl.model.state import Resource
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.planning.live_state import (
    naming_way_out,
    require_answer,
    unanswered,
)
from sgpu_decl.runs.run_finder import RunFinder

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_diff import AttemptDiff
    from sgpu_decl.model.attempt_report import AttemptReport
    from sgpu_decl.model.attempt_view import RunHistory
    from sgpu_decl.model.rank_output import LogLines, Output, RankStack
    from sgpu_decl.model.run_table import RunTable
    from sgpu_decl.model.step_progress import Progress
    from sgpu_decl.runs.run_watch import RunWatch
    from sgpu_decl.tracking.last_metrics import MetricSource
    from sgpu_decl.tracking.stores.store_protocol import MetricHistory

REPORT_NAME = "sgpu-report.html"
QUIET = 0.05  # seconds between two looks at a run that is being watched, at most
_NAMED = 5  # attempts in a message
SHORTEST = 0.002  # and at first: a run may be over at once


@checked_calls
class ProjectRuns(RunFinder):
    """The attempts of one project and target, as their backends and the history know them."""

    def ui_command(self, uri: str, *, elsewhere: bool = False) -> str | None:
        """The command that shows a store of metrics of this project, which may be on another
        machine; None for one that is not the project's."""
        from sgpu_decl.tracking.store_location import default_uri, ui_command

        home = self._project.state_dir.parent
        if elsewhere or uri == default_uri(home):
            return "`sgpu mlflow ui`"
        command = ui_command(uri, home=home)
        return None if command is None else f"`{command}`"

    def describe(self, refs: Sequence[AttemptRef | str]) -> list[AttemptView]:
        """All that is known of attempts, after MLflow was sent the ends that it lacked."""
        found = [self._ref(ref) for ref in refs]
        self._project.close_tracked()
        views = self._statuses(found, whole=True, tolerant=True)
        resources = cache(lambda: self._believed().resources)
        return [self._with_missing_file(views[ref], resources) for ref in found]

    def show(self, ref: AttemptRef | str) -> "RunHistory":
        """An attempt with the spec that was launched and the run's history."""
        from sgpu_decl.model.attempt_view import RunHistory

        ref = self._ref(ref)
        history = self._project.states.history(ref.address)
        spec = next((attempt.inputs.spec for attempt in history if attempt.ref == ref), NO_FIELDS)
        views = self._statuses([attempt.ref for attempt in history], tolerant=True)
        resource = self._believed().resources.get(ref.address)
        return RunHistory(
            view=self.describe([ref])[0],
            spec=spec,
            attempts=tuple((attempt, views[attempt.ref]) for attempt in history),
            owner=resource.owner if resource is not None else "",
        )

    def results(self, ref: AttemptRef | str) -> list[dict[str, Json]]:
        """What of each rank's result can be shown: `[{"rank", "value"}]` in rank order. In one that
        holds values of secrets they are masked, and `secrets` names them.

        Raises:
            NotFound: what the attempt left was deleted.
            BackendError: it cannot be read now.
        """
        ref = self._ref(ref)
        self._must_be_kept(ref)
        results = self._shown_results(ref)
        if not results and (view := self.status(ref)).unavailable:
            raise unanswered(view)
        return results

    def _shown_results(self, ref: AttemptRef) -> list[dict[str, Json]]:
        record = self.record(ref)
        results = self._attempts(record).results(record)
        pairs = [(result.pop("shown", result["value"]), result) for result in results]
        return [{**result, "value": shown} for shown, result in pairs]

    def table(self, refs: Sequence[AttemptRef | str]) -> "RunTable":
        """Attempts side by side, in this order: the values of their matrix, what they returned, and
        the last value of each metric of their MLflow runs."""
        from sgpu_decl.runs.table_rows import run_table

        def metric_source(ref: AttemptRef, link: Mapping[str, Json]) -> "MetricSource | None":
            record = self.record(ref)
            return self._attempts(record).metric_source(record, link)

        return run_table(self.describe(refs), self._shown_results, self._freed, metric_source)

    def _freed(self, refs: Sequence[AttemptRef]) -> dict[AttemptRef, NotFound]:
        """Those of ended attempts of which nothing is kept but the record."""
        kept = self._look(refs)
        return {ref: self._was_freed(ref) for ref in refs if ref not in kept}

    def _was_freed(self, ref: AttemptRef) -> NotFound:
        return NotFound(
            f"what `{ref}` left was deleted, by `sgpu gc` or by hand",
            hint=f"its record is kept: `sgpu show {shlex.quote(str(ref))}`",
            code="attempt_freed",
        )

    def previous(self, ref: AttemptRef) -> AttemptRef:
        """The attempt before.

        Raises:
            NotFound: there is none.
        """
        history = self._project.states.history(ref.address)
        earlier = [attempt.ref for attempt in history if attempt.ref.number < ref.number]
        if not earlier:
            raise NotFound(
                f"`{ref}` is the first attempt of its run",
                hint="name the other attempt, too: `sgpu diff` takes two, also of different runs",
            )
        return earlier[-1]

    def diff(self, before: AttemptRef, after: AttemptRef) -> "AttemptDiff":
        """What differs between two attempts, of one run or of two."""
        from sgpu_decl.runs.attempt_comparison import compare_attempts

        inputs = [self.record(ref).inputs for ref in (before, after)]
        return compare_attempts(self._project, self.table([before, after]), inputs)

    def report(self, ref: AttemptRef | str) -> "AttemptReport":
        """All that is known of an attempt, for a page about it. What cannot be read is named in its
        `gaps`."""
        from sgpu_decl.runs.attempt_reports import ReportGatherer

        ref = self._ref(ref)
        record = self.record(ref)
        attempts = self._attempts(record)

        def history(view: AttemptView, names: Sequence[str]) -> "MetricHistory":
            source, run_id = self.tracked(view)
            return {} if source is None else source.metric_history(run_id, names)

        return ReportGatherer(self, ref, partial(attempts.node_files, record), history).report()

    def wants_report(self, ref: AttemptRef) -> bool:
        """Whether the config of an attempt asks for a report beside its MLflow run."""
        return self.record(ref).inputs.spec.fields.get("report") is True

    def upload_report(self, ref: AttemptRef, page: str) -> str:
        """Keep a report as an artifact of the MLflow run of an attempt; return its name there.

        Raises:
            NotFound: the attempt has no MLflow run that is known here.
            BackendError: its store does not take it.
        """
        from sgpu_decl.tracking.stores.store_protocol import StoreError

        source, run_id = self.tracked(self.describe([ref])[0])
        if source is None:
            raise NotFound(
                f"`{ref}` has no MLflow run that is known here",
                hint=f"`sgpu report {shlex.quote(str(ref))}` writes a file",
                code="not_tracked",
            )
        try:
            source.log_text(run_id, REPORT_NAME, page)
        except StoreError as error:
            raise BackendError(
                f"the report of `{ref}` could not be added to its MLflow run: {error}",
                hint=f"`sgpu report {shlex.quote(str(ref))}` writes a file; `--upload` tries it "
                "again",
                code="tracking_unreachable",
            ) from error
        return REPORT_NAME

    def tracked(self, view: AttemptView) -> "tuple[MetricSource | None, str]":
        """Where the MLflow run of an attempt is, and its id."""
        from sgpu_decl.runs.table_rows import mlflow_link

        link = mlflow_link(view)
        if link is None:
            return None, ""
        record = self.record(view.ref)
        return self._attempts(record).metric_source(record, link), str(link["run_id"])

    def returned(self, ref: AttemptRef) -> list[dict[str, Json]]:
        """What each rank returned, unmasked. A value with secrets has its masked form in `shown`.

        Raises:
            NotFound: what the attempt left was deleted.
        """
        self._must_be_kept(ref)
        record = self.record(ref)
        return self._attempts(record).results(record)

    def output(self, ref: AttemptRef | str, progress: "Progress | None" = None) -> "Output":
        """The files that ranks left in SGPU_OUTPUT_DIR, on this machine.

        Raises:
            NotFound: what the attempt left was deleted.
            BackendError: they cannot be had yet.
        """
        ref = self._ref(ref)
        self._must_be_kept(ref)
        record = self.record(ref)
        view = self.status(ref)
        require_answer(view)
        with naming_way_out(record, ended=not view.state.active):
            return self._attempts(record).output(record, progress or Quiet())

    def stacks(self, ref: AttemptRef, ranks: Sequence[int] | None = None) -> "Sequence[RankStack]":
        """The Python stacks of the running ranks of an attempt, or of some (`None`: all).

        Raises:
            NotFound: no rank runs now, or one that is asked for does not.
            BackendError: the ranks of this backend cannot be asked.
        """
        record = self.record(ref)
        self._require_here(record)
        view = self.status(ref)
        require_answer(view)
        running = [rank.rank for rank in view.ranks if rank.state == "running"]
        if not (view.state.active and running):
            raise NotFound(
                f"no rank of `{ref}` runs now: its state is {view.state}",
                hint=f"`sgpu logs {shlex.quote(str(ref))}` shows what its ranks wrote",
            )
        for rank in view.ranks:
            if ranks is not None and rank.rank in ranks and rank.rank not in running:
                raise NotFound(
                    f"rank {rank.rank} of `{ref}` does not run now: its state is {rank.state}",
                    hint="leave `--rank` out to see those that run",
                )
        return self._attempts(record).stacks(record, ranks)

    def watch(self, ref: AttemptRef) -> "RunWatch":
        """What looks at an attempt again and again, and says what its ranks do.

        Raises:
            NotFound: there is no such attempt.
            BackendError: its backend cannot be opened.
        """
        from sgpu_decl.runs.run_watch import RunWatch

        record = self.record(ref)
        return RunWatch(self._attempts(record), record)

    def failure(self, ref: AttemptRef, rank: int) -> bytes | None:
        """The pickled exception of a rank of a called function, if it left one."""
        record = self.record(ref)
        return self._attempts(record).error(record, rank)

    def logs(
        self,
        ref: AttemptRef | str,
        *,
        ranks: Sequence[int] | None = None,
        follow: bool = False,
        restart: int | None = None,
    ) -> "Iterator[LogLines | None]":
        """Lines of the ranks and the restart (`None`: all), in the order of time where it is known.

        While following, `None` marks a quiet moment.

        Raises:
            NotFound: what the attempt left was deleted.
        """
        ref = self._ref(ref)
        self._must_be_kept(ref, here=follow)
        if follow:
            items = self.follow([ref], ranks=ranks, restart=restart)
            yield from (item for item in items if not isinstance(item, AttemptView))
            return
        record = self.record(ref)
        log = self._attempts(record).logs(record, ranks=ranks, follow=False, restart=restart)
        with naming_way_out(record, ended=not self.status(ref).state.active):
            yield from log.read()[0]

    def unhidden(self, refs: Sequence[AttemptRef]) -> tuple[str, ...]:
        """References of secrets that `logs` and `follow` cannot hide here, each once."""
        references: dict[str, None] = {}
        for record in map(self.record, refs):
            references |= dict.fromkeys(self._attempts(record).unresolved_secrets(record))
        return tuple(references)

    def follow(
        self,
        refs: Sequence[AttemptRef],
        *,
        ranks: Sequence[int] | None = None,
        restart: int | None = None,
    ) -> "Iterator[LogLines | AttemptView | None]":
        """Log lines of several attempts until all have ended, and how each of them stands whenever
        it enters another state, waits for something else, starts its ranks again, or is not known
        any more. The lines that are there at the beginning come first, of all attempts; then how
        each of them stands.

        Yields `None` at quiet moments, several times a second, so that the caller can look around.
        Attempts that cannot be asked from here are not followed: how they were recorded comes
        first.
        """
        every = {ref: self.record(ref) for ref in refs}
        records = {
            ref: record
            for ref, record in every.items()
            if self._attempts(record).elsewhere(record) is None
        }
        yield from (self.status(ref) for ref in every if ref not in records)
        logs = {
            ref: self._attempts(record).logs(record, ranks=ranks, follow=True, restart=restart)
            for ref, record in records.items()
        }
        due = dict.fromkeys(logs, 0.0)
        reported: dict[AttemptRef, tuple[object, ...]] = {}
        rest = SHORTEST
        while logs:
            quiet = True
            looked_at = time.monotonic()
            watched = [ref for ref in logs if due[ref] <= looked_at]
            for ref in watched:
                # Each may be far away; whoever presses Ctrl-C does not wait for all of them.
                if time.monotonic() - looked_at > QUIET:
                    yield None
                    looked_at = time.monotonic()
                due[ref] = time.monotonic() + self._attempts(records[ref]).poll_seconds
                with naming_way_out(records[ref]):
                    lines, ended = logs[ref].read()
                    for line in lines:
                        quiet = False
                        yield line
                if ended:
                    del logs[ref]
            self._settle(watched)
            for ref, status in self._statuses(watched).items():  # later than the last line
                standing = (
                    status.state, status.restart, status.waiting_for, status.tracking,
                    status.unavailable is None,
                )  # fmt: skip
                if reported.get(ref) != standing:
                    reported[ref] = standing
                    yield status
            if quiet and logs:
                yield None
                time.sleep(rest)
                rest = min(rest * 1.25, QUIET)

    def wait(
        self,
        refs: Sequence[AttemptRef | str],
        timeout: float | None = None,
        tick: Callable[[], None] = lambda: None,
        silent: Callable[[Sequence[AttemptView]], None] = lambda _: None,
    ) -> list[AttemptView]:
        """Wait until all have ended; `tick` is called between looks, and `silent` with those whose
        platform stops answering for a while.

        Raises:
            OutOfTime: `timeout` seconds went by first.
            BackendError: one is active that cannot be asked from here.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        found = [self._ref(ref) for ref in refs]
        pending = list(found)
        told: set[AttemptRef] = set()
        while True:
            looked = time.monotonic()
            self._settle(pending)
            views = self._statuses(pending)
            pending = [ref for ref in pending if views[ref].state.active]
            for ref in views:
                view = views[ref]  # it cannot be asked for good, or for a while
                if view.unavailable and (view.state.active or view.overdue):
                    self._require_here(self.record(ref))
            unanswered = {ref for ref in pending if views[ref].unavailable}
            if new := [views[ref] for ref in pending if ref in unanswered - told]:
                silent(new)
            told = unanswered
            if not pending:
                statuses = self._statuses(found)
                return [statuses[ref] for ref in found]
            if deadline is not None and time.monotonic() >= deadline:
                names = ", ".join(f"`{ref}`" for ref in pending[:5])
                raise OutOfTime(
                    f"{names} did not end in time", hint="give a longer time, or none to wait on"
                )
            tick()
            # Looking at a thousand runs takes a while itself: rest as long as that took.
            time.sleep(max(QUIET, time.monotonic() - looked))

    def cancel(self, *refs: AttemptRef | str) -> None:
        """Ask attempts to stop, several at once: each may be far away. One that has ended is left
        as it is.

        Raises:
            BackendError: one cannot be asked from here; the others were asked.
        """
        from sgpu_decl.backends.base import errors_of

        found = [self._ref(ref) for ref in refs]
        self._load(found)
        errors: dict[AttemptRef, SgpuError] = {}
        for kind, records in self._by_backend(found).items():
            backend = self._project.backend(kind)
            elsewhere = errors_of(self._require_here, records)
            here = [record for record in records if record.ref not in elsewhere]
            errors |= {**elsewhere, **backend.launcher.cancel_all(here)}
        for ref, error in errors.items():
            with naming_way_out(self.record(ref)):
                raise error if len(errors) == 1 else _first_of(errors, len(found))

    def forced_stops(
        self,
        refs: Sequence[AttemptRef],
        say: Callable[[str], None],
        patience: float | None = None,
    ) -> Callable[[], None]:
        """Return a function to call from time to time while attempts stop. It ends those whose
        supervisor is silent for `patience` seconds, and says so; see `Launcher.forced_stop`."""
        ends = {
            item.ref: self._project.backend(item.backend).launcher.forced_stop(item, patience)
            for item in map(self.record, refs)
        }

        def look() -> None:
            for ref, end in ends.items():
                done = end.look() if end is not None else None
                if done:
                    say(f"{ref}: {done}")

        return look

    def sweep(self, ref: AttemptRef) -> int:
        """Stop what is left of an attempt that is lost; returns how many processes that were."""
        record = self.record(ref)
        return self._project.backend(record.backend).storage.kill_orphans(record)

    def _settle(self, refs: Sequence[AttemptRef]) -> None:
        for kind, records in self._by_backend(refs).items():
            self._project.backend(kind).attempts.cancel_doomed(records)

    def _must_be_kept(self, ref: AttemptRef, *, here: bool = True) -> None:
        """Refuse an attempt that was freed, or that cannot be asked from here; if not `here`, one
        that its backend shows as it was seen last goes."""
        record = self.record(ref)
        views = self._attempts(record).look([record])
        if here or not views:
            self._require_here(record)
        if not views and not self._views({ref: None})[ref].state.active:
            raise self._was_freed(ref)

    def _with_missing_file(
        self, view: AttemptView, resources: Callable[[], Mapping[Address, Resource]]
    ) -> AttemptView:
        """Add the rule that excluded a file which ranks did not find, if one did."""
        cause = view.first_cause
        if cause is None or cause.missing is None:
            return view
        from sgpu_decl.runs.missing_file import with_ignore_rule

        resource = resources().get(view.ref.address)
        if resource is None:
            return view
        spec = self.record(view.ref).inputs.spec.fields
        owner = self._project.root / resource.owner
        missing = with_ignore_rule(cause.missing, spec, owner, links=not is_remote(view.backend))
        return replace(view, first_cause=replace(cause, missing=missing))


def _first_of(errors: Mapping[AttemptRef, SgpuError], asked: int) -> BackendError:
    """The error of a command that asked several attempts, of which some were not to be asked."""
    names = ", ".join(f"`{ref}`" for ref in list(errors)[:_NAMED])
    more = f" and {len(errors) - _NAMED:,} more" if len(errors) > _NAMED else ""
    first = next(iter(errors.values()))
    error = BackendError(
        f"{len(errors):,} of {asked:,} attempts were not asked to stop, {names}{more}: "
        f"{first.message}",
        hint=first.hint,
        code=first.code,
    )
    error.retryable = isinstance(first, BackendError) and first.retryable
    return error
