"""Looking at attempts, waiting for them and asking them to stop. Nothing here writes state:
`Session.close` records the ends that were seen."""

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Attempts
from sgpu_decl.errors import BackendError, NotFound, OutOfTime
from sgpu_decl.model.address import Address, Kind, cell_order
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView, RunHistory
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.jsonable import NO_FIELDS, Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.selectors import (
    is_glob,
    is_whole_name,
    match_addresses,
    names_any,
    split_attempt,
)
from sgpu_decl.model.state import Attempt, Resource, State
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.planning.live_state import (
    as_recorded,
    lost,
    naming_way_out,
    refs_in_launch,
    require_answer,
    require_here,
    unanswered,
    unseen,
)
from sgpu_decl.planning.project import Project
from sgpu_decl.runs.other_targets import other_targets_hint

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_diff import AttemptDiff
    from sgpu_decl.model.rank_output import LogLines, Output, RankStack
    from sgpu_decl.model.run_table import RunTable
    from sgpu_decl.model.step_progress import Progress
    from sgpu_decl.tracking.last_metrics import MetricSource

QUIET = 0.05  # seconds between two looks at a run that is being watched, at most
_STOPS = 16  # attempts that are asked to stop at once
SHORTEST = 0.002  # and at first: a run may be over at once


class ProjectRuns:
    """The attempts of one project and target, as their backends and the history know them."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._records: dict[AttemptRef, LaunchRecord] = {}  # they never change
        self._recorded_active: set[AttemptRef] = set()
        self._ends: dict[AttemptRef, AttemptView] = {}

    def ui_command(self, uri: str) -> str | None:
        """The command that shows a store of metrics of this project; `None` for another one."""
        from sgpu_decl.tracking.store_location import default_uri, ui_command

        home = self._project.state_dir.parent
        if uri == default_uri(home):
            return "`sgpu mlflow ui`"
        command = ui_command(uri, home=home)
        return None if command is None else f"`{command}`"

    def find(self, *texts: str) -> tuple[AttemptRef, ...]:
        """The attempts that names, addresses, `train#8` or globs stand for, the latest of each run,
        in the order of the texts.

        Raises:
            NotFound: one of them matches nothing.
        """
        return tuple(dict.fromkeys(ref for text in texts for ref in self._find(text)))

    def _find(self, text: str) -> tuple[AttemptRef, ...]:
        """Runs that are gone are found by their names, and among others not at all."""
        name, number = split_attempt(text)
        state = self._believed()
        resources = {
            a: resource for a, resource in state.resources.items() if resource.last is not None
        }
        jobs = {
            a for a, resource in state.resources.items() if a.kind is Kind.JOB and not resource.gone
        }
        if names_any(name, jobs) and not names_any(name, resources):
            raise NotFound(
                f"`{name}` is a job: only its platform launches it",
                hint=f"`sgpu show {shlex.quote(name)}` says how its last launch went, and where "
                "its logs are",
            )
        if not resources:
            hint = other_targets_hint(self._project.states, self._project.target)
            raise NotFound(
                f"no run matches `{name}`", hint=hint or "no run was launched from here yet"
            )
        refs = []
        active = {item.ref.address for item in state.active}
        gone = {a for a, resource in resources.items() if resource.gone and a not in active}
        named = match_addresses([name], resources)
        if number is not None:
            named = _with_attempt(name, number, named, resources)
        named = _not_gone(name, named, gone)
        for address in sorted(named, key=lambda one: _order(resources[one].last, one)):
            last = resources[address].last
            if last is None:
                continue
            if number is not None and not 1 <= number <= last.ref.number:
                raise NotFound(
                    f"`{address.label}` has no attempt {number}",
                    hint=f"its latest is `{last.ref}`",
                )
            refs.append(AttemptRef(address, number) if number is not None else last.ref)
        return tuple(refs)

    def latest(self) -> tuple[AttemptRef, int]:
        """The attempt that was launched last, and how many other runs there are. Runs that are gone
        do not count.

        Raises:
            NotFound: nothing was launched here, or all of it is gone.
        """
        resources = self._believed().resources.values()
        live = [item.last for item in resources if item.last is not None and not item.gone]
        if not live:
            hint = other_targets_hint(self._project.states, self._project.target)
            raise NotFound("there is no run here", hint=hint or "`sgpu apply` launches runs")
        last = max(live, key=lambda attempt: (attempt.created_at, attempt.ref))
        return last.ref, len(live) - 1

    def names_of_file(self) -> tuple[str, ...]:
        """The names of the runs that the file of this project declares, as far as they were
        launched and are not gone.

        Raises:
            NotFound: there are none.
        """
        project = self._project
        resources = self._believed().resources.values()
        names = {
            item.address.name
            for item in resources
            if item.last is not None and not item.gone and item.owner == project.owner
        }
        if not names:
            raise NotFound(
                f"no run of `{project.shown}` was launched",
                hint="`sgpu apply` launches its runs",
            )
        return tuple(sorted(names))

    def active(self) -> tuple[AttemptRef, ...]:
        """The attempts that are active."""
        refs = [item.ref for item in self._believed().active]
        return tuple(
            sorted(ref for ref, status in self._statuses(refs).items() if status.state.active)
        )

    def find_one(self, *texts: str) -> AttemptRef:
        """As `find`, for calls that are about one run.

        Raises:
            NotFound: it matches nothing, or several runs.
        """
        refs = self.find(*texts)
        if len(refs) > 1:
            named = " and ".join(f"`{text}`" for text in texts)
            raise NotFound(
                f"{named} {'names' if len(texts) == 1 else 'name'} {len(refs)} runs",
                hint=f"name one of them, such as `{refs[0]}`",
                code="ambiguous",
            )
        return refs[0]

    def find_active(self, *texts: str) -> tuple[AttemptRef, ...]:
        """As `find`, with every other attempt of the named runs that is active: `on_active:
        parallel` and `queue` leave several.

        Raises:
            NotFound: one of them matches nothing.
        """
        named = {
            ref.address
            for text in texts
            if split_attempt(text)[1] is None
            for ref in self._find(text)
        }
        others = [item.ref for item in self._believed().active if item.ref.address in named]
        active = (ref for ref, status in self._statuses(others).items() if status.state.active)
        return self._in_order({*self.find(*texts), *active})

    def active_calls(self, backend: str) -> int:
        """How many calls of functions are active on a backend, as far as this project knows."""
        active = [item for item in self._believed().active if item.backend == backend]
        calls = [attempt.ref for attempt in active if attempt.provenance.function is not None]
        return sum(status.state.active for status in self._statuses(calls).values())

    def current(self) -> tuple[AttemptRef, ...]:
        """The latest attempt of every run that is not gone, and older ones that are active."""
        state = self._believed()
        latest = {
            resource.last.ref
            for resource in state.resources.values()
            if resource.last and not resource.gone
        }
        older = [item.ref for item in state.active if item.ref not in latest]
        views = self._statuses(older, tolerant=True)
        return self._in_order({*latest, *(ref for ref in older if views[ref].state.active)})

    def _in_order(self, refs: Iterable[AttemptRef]) -> tuple[AttemptRef, ...]:
        """By address, the cells of a matrix as the file has them."""
        resources = self._believed().resources

        def order(ref: AttemptRef) -> tuple[object, ...]:
            resource = resources.get(ref.address)
            return _order(resource.last if resource else None, ref.address), ref.number

        return tuple(sorted(refs, key=order))

    def status(self, ref: AttemptRef) -> AttemptView:
        """What the backend says, else what was recorded.

        Raises:
            NotFound: neither knows the attempt.
        """
        return self._statuses([ref])[ref]

    def statuses(self, refs: Sequence[AttemptRef]) -> dict[AttemptRef, AttemptView]:
        """`status` of several attempts, which are asked about at once."""
        return self._statuses(refs)

    def _statuses(
        self, refs: Sequence[AttemptRef], *, whole: bool = False, tolerant: bool = False
    ) -> dict[AttemptRef, AttemptView]:
        """The attempts as their backends see them, `whole` with all that a person is shown. A
        backend that cannot be opened, as its package is not installed, is an error; if `tolerant`,
        its attempts are as they were recorded."""
        views: dict[AttemptRef, AttemptView] = {}
        for kind, records in self._by_backend(refs).items():
            try:
                attempts = self._project.backend(kind).attempts
            except BackendError as error:
                if not tolerant:
                    raise
                known = self._recorded([item.ref for item in records])
                views |= {
                    item.ref: as_recorded(known[item.ref], error.message, error.hint)
                    if item.ref in known
                    else replace(_staged(item), unavailable=error.message, way_out=error.hint)
                    for item in records
                }
                continue
            views.update(attempts.inspect(records) if whole else attempts.look(records))
        shown = self._views({ref: views.get(ref) for ref in refs})
        ended = (view for view in shown.values() if not (view.state.active or view.unavailable))
        self._ends |= {view.ref: view for view in ended if view.ref in self._recorded_active}
        return shown

    def take_ends(self) -> tuple[AttemptView, ...]:
        """The attempts that the state calls active and that have ended, as calls have seen since
        this was called last."""
        ends = tuple(self._ends.values())
        self._recorded_active -= self._ends.keys()
        self._ends.clear()
        return ends

    def _believed(self) -> State:
        state = self._project.believed()
        self._recorded_active |= {attempt.ref for attempt in state.active}
        return state

    def describe(self, refs: Sequence[AttemptRef]) -> list[AttemptView]:
        """All that is known of attempts, after MLflow was sent the ends that it lacked."""
        self._project.close_tracked()
        views = self._statuses(refs, whole=True, tolerant=True)
        resources = cache(lambda: self._believed().resources)
        return [self._with_missing_file(views[ref], resources) for ref in refs]

    def show(self, ref: AttemptRef) -> "RunHistory":
        """An attempt with the spec that was launched and the run's history."""

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

    def results(self, ref: AttemptRef) -> list[dict[str, Json]]:
        """What of each rank's result can be shown: `[{"rank", "value"}]` in rank order. In one that
        holds values of secrets they are masked, and `secrets` names them.

        Raises:
            NotFound: what the attempt left was deleted.
            BackendError: it cannot be read now.
        """
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

    def table(self, refs: Sequence[AttemptRef]) -> "RunTable":
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

    def returned(self, ref: AttemptRef) -> list[dict[str, Json]]:
        """What each rank returned, unmasked. A value with secrets has its masked form in `shown`.

        Raises:
            NotFound: what the attempt left was deleted.
        """
        self._must_be_kept(ref)
        record = self.record(ref)
        return self._attempts(record).results(record)

    def output(self, ref: AttemptRef, progress: "Progress | None" = None) -> "Output":
        """The files that ranks left in SGPU_OUTPUT_DIR, on this machine.

        Raises:
            NotFound: what the attempt left was deleted.
            BackendError: they cannot be had yet.
        """
        self._must_be_kept(ref)
        record = self.record(ref)
        view = self.status(ref)
        require_answer(view)
        with naming_way_out(record, ended=not view.state.active):
            return self._attempts(record).output(record, progress or Quiet())

    def stacks(self, ref: AttemptRef, ranks: Sequence[int] | None) -> "Sequence[RankStack]":
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

    def failure(self, ref: AttemptRef, rank: int) -> bytes | None:
        """The pickled exception of a rank of a called function, if it left one."""
        record = self.record(ref)
        return self._attempts(record).error(record, rank)

    def logs(
        self,
        ref: AttemptRef,
        *,
        ranks: tuple[int, ...] | None,
        follow: bool,
        restart: int | None = None,
    ) -> "Iterator[LogLines | None]":
        """Lines of the ranks and the restart (`None`: all), in the order of time where it is known.

        While following, `None` marks a quiet moment.

        Raises:
            NotFound: what the attempt left was deleted.
        """
        self._must_be_kept(ref)
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
        ranks: tuple[int, ...] | None,
        restart: int | None = None,
    ) -> "Iterator[LogLines | AttemptView | None]":
        """Log lines of several attempts until all have ended, and how each of them stands whenever
        it enters another state, waits for something else, or starts its ranks again. The lines that
        are there at the beginning come first, of all attempts; then how each of them stands.

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
        refs: Sequence[AttemptRef],
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
        pending = list(refs)
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
                statuses = self._statuses(refs)
                return [statuses[ref] for ref in refs]
            if deadline is not None and time.monotonic() >= deadline:
                names = ", ".join(f"`{ref}`" for ref in pending[:5])
                raise OutOfTime(
                    f"{names} did not end in time", hint="give a longer time, or none to wait on"
                )
            tick()
            # Looking at a thousand runs takes a while itself: rest as long as that took.
            time.sleep(max(QUIET, time.monotonic() - looked))

    def cancel(self, *refs: AttemptRef) -> None:
        """Ask attempts to stop, several at once: each may be far away. One that has ended is left
        as it is.

        Raises:
            BackendError: one cannot be asked from here; the others were asked.
        """
        from concurrent.futures import ThreadPoolExecutor
        from contextvars import copy_context

        def ask(record: LaunchRecord) -> None:
            self._require_here(record)
            with naming_way_out(record):
                self._project.backend(record.backend).launcher.cancel(record)

        self._load(refs)
        records = [self.record(ref) for ref in refs]
        for kind in {record.backend for record in records}:
            self._project.backend(kind)  # opened once, before several need it
        with ThreadPoolExecutor(_STOPS, thread_name_prefix="cancel") as pool:
            asked = [pool.submit(copy_context().run, ask, record) for record in records]
        for one in asked:
            one.result()

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

    def _attempts(self, record: LaunchRecord) -> Attempts:
        """Who watches the attempts of the backend that one was launched on."""
        return self._project.backend(record.backend).attempts

    def require_here(self, ref: AttemptRef) -> None:
        """Refuse an attempt that cannot be asked from here.

        Raises:
            BackendError: it can be asked elsewhere alone.
        """
        self._require_here(self.record(ref))

    def _require_here(self, record: LaunchRecord) -> None:
        require_here(record, self._project.backend, "cannot be asked from here")

    def remember(self, records: Iterable[LaunchRecord]) -> None:
        """Keep launches in memory: the state may be unable to say them, on a full disk."""
        launched = {record.ref: record for record in records}
        self._records |= launched
        self._recorded_active |= launched.keys()

    def record(self, ref: AttemptRef) -> LaunchRecord:
        """What is remembered of the launch of an attempt.

        Raises:
            NotFound: there is no such attempt.
        """
        self._load([ref])
        if ref not in self._records:
            raise NotFound(
                f"there is no `{ref}`",
                hint="`sgpu status` lists the runs",
            )
        return self._records[ref]

    def _load(self, refs: Iterable[AttemptRef]) -> None:
        """Remember the launches of attempts. However many these are, the state is read once."""
        missing = [ref for ref in refs if ref not in self._records]
        if not missing:
            return
        state = self._believed()
        self._records.update(state.launches())
        older = [ref for ref in missing if ref not in self._records]
        for ref, attempt in self._recorded(older).items():
            self._records.setdefault(ref, state.launch_of(attempt))

    def _recorded(self, refs: Iterable[AttemptRef]) -> dict[AttemptRef, Attempt]:
        """What the histories of these attempts record, read at once."""
        addresses = {ref.address for ref in refs}
        if len(addresses) > 1:
            everything = self._project.states.read_all()
            attempts = everything[1] if everything is not None else ()
            return {one.ref: one for one in attempts if one.ref.address in addresses}
        states = self._project.states
        return {one.ref: one for address in addresses for one in states.history(address)}

    def _views(
        self, answers: Mapping[AttemptRef, AttemptView | None]
    ) -> dict[AttemptRef, AttemptView]:
        """Attempts as the answers of their backends have them; from the record where there is no
        answer, or it says only that the attempt is staged. The state is read once."""
        views = {
            ref: answer
            for ref, answer in answers.items()
            if answer is not None
            and (answer.unavailable or answer.state is not AttemptState.STAGING)
        }
        lacking = [ref for ref in answers if ref not in views]
        if not lacking:
            return views
        self._load(lacking)
        records = {ref: self.record(ref) for ref in lacking}
        elsewhere = {ref: self._attempts(one).elsewhere(one) for ref, one in records.items()}
        state, recorded = self._project.state(), self._recorded(lacking)
        launching = refs_in_launch(state)
        # They may have got up between the look at their backend and the look at the state.
        here = [ref for ref in lacking if elsewhere[ref] is None and ref not in launching]
        now = self._look(here)
        begun = [intent.attempt_record for intent in state.intents]
        known = {one.ref: one for one in begun if one is not None} | recorded
        for ref, record in records.items():
            answer, staging = answers[ref], AttemptState.STAGING
            links = answer.links if answer is not None else {}
            if (barrier := elsewhere[ref]) is not None:
                views[ref] = (
                    unseen(known[ref], record, barrier, self._attempts(record))
                    if ref in known
                    else replace(_staged(record), unavailable=barrier.reason, way_out=barrier.hint)
                )
            elif ref in launching:
                views[ref] = replace(_staged(record), links=links)
            elif ref in now and now[ref].state is not staging:
                views[ref] = now[ref]
            elif ref not in recorded or recorded[ref].state.active:
                views[ref] = replace(lost(record), links=links)  # the state lacks it, or its end
            else:
                views[ref] = replace(as_recorded(recorded[ref], None), links=links)
        return views

    def _look(self, refs: Sequence[AttemptRef]) -> dict[AttemptRef, AttemptView]:
        """What backends say of attempts now."""
        views: dict[AttemptRef, AttemptView] = {}
        for kind, records in self._by_backend(refs).items():
            views.update(self._project.backend(kind).attempts.look(records))
        return views

    def _must_be_kept(self, ref: AttemptRef) -> None:
        record = self.record(ref)
        self._require_here(record)
        views = self._attempts(record).look([record])
        if not views and not self._views({ref: None})[ref].state.active:
            raise self._was_freed(ref)

    def _by_backend(self, refs: Sequence[AttemptRef]) -> dict[str, list[LaunchRecord]]:
        """The launches of attempts by backend, so that each is asked once about all of its own."""
        self._load(refs)
        by_kind: dict[str, list[LaunchRecord]] = {}
        for record in map(self.record, refs):
            by_kind.setdefault(record.backend, []).append(record)
        return by_kind

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


def _staged(record: LaunchRecord) -> AttemptView:
    """The view of an attempt of which no more is known than that its launch was begun."""
    return AttemptView(ref=record.ref, backend=record.backend, state=AttemptState.STAGING)


def _with_attempt(
    name: str, number: int, named: frozenset[Address], resources: Mapping[Address, Resource]
) -> frozenset[Address]:
    """Those that have an attempt of that number: the address itself, if that has one, rather than
    the cells of a matrix of its name. All of them where none has it."""
    having = frozenset(
        address
        for address in named
        if (last := resources[address].last) is not None and 1 <= number <= last.ref.number
    )
    exact = frozenset(address for address in having if is_whole_name(name, address))
    return exact or having or named


def _order(last: Attempt | None, address: Address) -> tuple[str, tuple[int, ...], str]:
    return cell_order(address, last.inputs.cell if last is not None else None)


def _not_gone(
    pattern: str, matches: frozenset[Address], gone: Collection[Address]
) -> frozenset[Address]:
    """Those of the addresses that a pattern stands for which are not gone; all of them, where all
    are gone and it is their name.

    Raises:
        NotFound: it is a glob, and nothing but what is gone matches.
    """
    live = matches.difference(gone)
    if not live and is_glob(pattern) and not any(is_whole_name(pattern, one) for one in matches):
        raise NotFound(
            f"no run matches `{pattern}` but destroyed ones",
            hint=f"one of those is found by its name, such as `{min(matches).label}`",
        )
    return live or matches
