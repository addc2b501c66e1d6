"""The calls that the command line, notebooks and other programs use: one opened project and target.

Everything heavy is imported inside the calls, so that importing this module costs little.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl import __version__
from sgpu_decl.applying.naming import match_addresses, split_attempt
from sgpu_decl.applying.opening import Location, Opened, open_project
from sgpu_decl.errors import NotFound, SgpuError, StalePlan
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptStatus
from sgpu_decl.model.event import ApplyEvent
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Action, Plan
from sgpu_decl.model.state import Resource, State

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sgpu_decl.applying.executor import Applied
    from sgpu_decl.backends.base import Backend, LogLine
    from sgpu_decl.config.reading import Loaded
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.staging.snapshot import Snapshot
    from sgpu_decl.staging.store import Store
    from sgpu_decl.storing.store import StateWriter

__all__ = ["Location", "PlanOptions", "Session", "Validated"]

QUIET = 0.05  # seconds between two looks at a run that is being watched


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of `plan` and `apply`; globs as the user typed them."""

    rerun: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    retry_failed: bool = False
    on_active: str | None = None
    destroy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """`source` is the text of the file, for excerpts."""

    loaded: "Loaded"
    findings: "tuple[Diagnostic, ...]"
    source: str


class Session:
    """A project and a target. Cheap to make; reads what it needs when it needs it."""

    def __init__(self, opened: Opened, location: Location) -> None:
        from sgpu_decl.storing.sqlite import SqliteStore

        self.opened = opened
        self.root = opened.root
        self.target = opened.target
        self.state_dir = opened.state_dir
        self.notes = opened.notes
        self._location = location
        self._states = SqliteStore(opened.state_dir / "state.db")
        self._kinds: dict[Address, str] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._opened_backends: dict[str, Backend] = {}

    @classmethod
    def open(cls, location: Location) -> "Session":
        """Find the project of `location`.

        Raises:
            NotFound: the project folder does not exist.
        """
        return cls(open_project(location, here=Path.cwd()), location)

    # Planning

    def validate(self) -> Validated:
        """Read the file and say everything that is wrong with it.

        Raises:
            InvalidInput: it holds errors.
        """
        from sgpu_decl.applying.gathering import read_file

        loaded, findings, source = read_file(self.opened, self._location)
        return Validated(loaded=loaded, findings=findings, source=source)

    def plan(self, options: PlanOptions = PlanOptions()) -> Plan:
        """Say what apply would do. Writes nothing but the hash cache."""
        from sgpu_decl.applying.gathering import Gathered, gather
        from sgpu_decl.applying.observing import believe_intents, observe
        from sgpu_decl.planning import planner

        validated = None if options.destroy and self.opened.file is None else self.validate()
        state = self._state()
        gathered = Gathered(desired=(), findings=(), snapshots={})
        if validated is not None and not options.destroy:
            gathered = gather(validated.loaded, opened=self.opened, state=state, store=self._store)
            self._snapshots = dict(gathered.snapshots)
        state = believe_intents(state, self._backend)
        wanted = {desired.address for desired in gathered.desired}
        known = wanted | {address for address, it in state.resources.items() if not it.gone}
        return planner.plan(
            desired=gathered.desired,
            state=state,
            observed=observe(state, self._backend),
            request=planner.Request(
                target=self.target,
                project=os.fspath(self.root),
                rerun=match_addresses(options.rerun, known),
                select=self._selection(options, known),
                retry_failed=options.retry_failed,
                on_active=options.on_active,
                whole_project=validated is None or validated.loaded.kind == "project",
                destroy=options.destroy,
            ),
            owner=self._owner() if validated else None,
            now=_now(),
            tool_version=__version__,
            config_digest=validated.loaded.config_digest if validated else "",
            findings=(*(validated.findings if validated else ()), *gathered.findings),
        )

    def save(self, plan: Plan, path: Path) -> None:
        """Write a plan and pin the code behind it in the local store.

        Raises:
            SgpuError: the file cannot be written.
        """
        from sgpu_decl.planning.writing import saved_text

        self._pin(plan)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        codes = {it.launch.code_digest for it in plan.changes if it.launch and it.launch.token}
        try:
            temporary.write_text(saved_text(plan), encoding="utf-8")
            temporary.chmod(0o600)
            temporary.rename(path)
            self._store.refer(path.resolve(), {code for code in codes if code})
        except OSError as error:
            raise SgpuError(f"the plan cannot be written to `{path}`: {error.strerror}") from None

    @staticmethod
    def is_saved_plan(path: Path) -> bool:
        """Whether a file is (or was meant to be) a saved plan, by its first character."""
        try:
            with path.open("rb") as file:
                return file.read(64).lstrip().startswith(b"{")
        except OSError:
            return False

    @staticmethod
    def load_plan(path: Path) -> Plan:
        """Read a saved plan.

        Raises:
            InvalidInput: truncated, of another format, or no plan at all.
        """
        from sgpu_decl.errors import InvalidInput
        from sgpu_decl.planning.writing import saved_from_json

        plan, findings = saved_from_json(path.read_text(encoding="utf-8", errors="replace"))
        if plan is None:
            raise InvalidInput(
                f"`{path}` is not a plan that can be applied",
                hint="make a new one with `sgpu plan --out FILE`",
                diagnostics=findings,
            )
        return plan

    # Applying

    def apply(
        self,
        plan: Plan,
        *,
        sink: Callable[[ApplyEvent], None] = lambda _: None,
        parallelism: int = 4,
    ) -> "Applied":
        """Carry a plan out; returns once everything is launched, not when it has ended.

        Raises:
            StalePlan: the state moved on since the plan was made, or it was applied already.
            Locked: another sgpu is at work on this state.
            SgpuError: an error check stands in the way.
        """
        from sgpu_decl.applying.executor import Applied, execute
        from sgpu_decl.applying.observing import refresh, settle_intents
        from sgpu_decl.planning.writing import plan_id

        identity = plan_id(plan)
        idle = all(change.action is Action.NO_OP for change in plan.changes)
        if idle and not self._loose_ends():
            return Applied()
        self._pin(plan)
        backends = {change.backend: self._backend(change.backend) for change in plan.changes}
        with self._states.lock("apply", lineage=plan.lineage) as writer:
            if writer.applied(identity):
                raise StalePlan(
                    "this plan was applied already", hint="plan again", code="plan_applied"
                )
            _check_fresh(plan, writer.state)
            settle_intents(writer, self._backend)
            refresh(writer, self._backend)
            if idle:
                return Applied()
            applied = execute(
                plan,
                plan_id=identity,
                writer=writer,
                backends=backends,
                sink=sink,
                clock=_now,
                parallelism=parallelism,
            )
        self._refer()
        for change in plan.changes:
            if change.action is Action.DESTROY:
                self._unstage(change.address)
        return applied

    # Watching

    def find(self, text: str) -> tuple[AttemptRef, ...]:
        """The attempts that a name, address, `train#8` or glob stands for, the latest of each run.

        Raises:
            NotFound: nothing matches.
        """
        name, number = split_attempt(text)
        state = self._believed()
        resources = {a: it for a, it in state.resources.items() if it.last is not None}
        found = []
        for address in sorted(match_addresses([name], resources)):
            last = resources[address].last
            if last is None:
                continue
            if number is not None and not 1 <= number <= last.ref.number:
                raise NotFound(
                    f"`{address.label}` has no attempt {number}",
                    hint=f"its latest is `{last.ref}`",
                )
            found.append(AttemptRef(address, number) if number is not None else last.ref)
        return tuple(found)

    def find_active(self, text: str) -> tuple[AttemptRef, ...]:
        """As `find`, with every other attempt of the named runs that is active: `on_active:
        parallel` and `queue` leave several.

        Raises:
            NotFound: nothing matches.
        """
        found = set(self.find(text))
        if split_attempt(text)[1] is None:
            named = {ref.address for ref in found}
            others = [it.ref for it in self._believed().active if it.ref.address in named]
            found |= {ref for ref in others if self._status(ref).state.active}
        return tuple(sorted(found))

    def statuses(self, refs: Sequence[AttemptRef] | None = None) -> list[dict[str, Json]]:
        """The `status` objects of the public contract; without `refs`, the latest of every run and
        older ones that are active still."""
        if refs is None:
            state = self._believed()
            latest = {it.last.ref for it in state.resources.values() if it.last and not it.gone}
            older = [it.ref for it in state.active if it.ref not in latest]
            refs = sorted({*latest, *(ref for ref in older if self._status(ref).state.active)})
        return [self._describe(ref) for ref in refs]

    def show(self, ref: AttemptRef) -> dict[str, Json]:
        """One `status` object whole, with the spec that was launched and the run's history."""
        import json

        from sgpu_decl.storing.pulling import attempt_to_json

        history = self._states.history(ref.address)
        spec = next((attempt.spec for attempt in history if attempt.ref == ref), "{}")
        return {
            **self._describe(ref),
            "spec": json.loads(spec),
            "history": [
                {**attempt_to_json(attempt), **self._live(attempt.ref)} for attempt in history
            ],
        }

    def results(self, ref: AttemptRef) -> list[dict[str, Json]]:
        """What each rank returned: `[{"rank", "value"}]` in rank order."""
        return self._backend_of(ref).results(ref)

    def logs(
        self,
        ref: AttemptRef,
        *,
        ranks: tuple[int, ...] | None,
        follow: bool,
        restart: int | None = None,
    ) -> "Iterator[LogLine | None]":
        """Lines of the ranks and the restart (`None`: all), in the order of time where it is known.

        While following, `None` marks a quiet moment.
        """
        backend = self._backend_of(ref)
        for line in backend.logs(ref, ranks=ranks, follow=follow, restart=restart):
            if line is None:
                time.sleep(QUIET)
            yield line

    def follow(
        self,
        refs: Sequence[AttemptRef],
        *,
        ranks: tuple[int, ...] | None,
        restart: int | None = None,
    ) -> "Iterator[LogLine | AttemptStatus | None]":
        """Log lines and changes of state of several attempts until all have ended.

        Yields `None` at quiet moments, several times a second, so that the caller can look around.
        """
        streams = {
            ref: self._backend_of(ref).logs(ref, ranks=ranks, follow=True, restart=restart)
            for ref in refs
        }
        known: dict[AttemptRef, AttemptStatus] = {}
        while streams:
            quiet = True
            for ref, stream in list(streams.items()):
                for line in stream:
                    if line is None:
                        break
                    quiet = False
                    yield line
                else:
                    del streams[ref]
                status = self._status(ref)
                if known.get(ref) is None or known[ref].state is not status.state:
                    known[ref] = status
                    yield status
            if quiet and streams:
                yield None
                time.sleep(QUIET)

    def wait(
        self,
        refs: Sequence[AttemptRef],
        timeout: float | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> list[AttemptStatus]:
        """Wait until all have ended; `tick` is called between looks.

        Raises:
            SgpuError: `timeout` seconds went by first.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pending = list(refs)
        while pending := [ref for ref in pending if self._status(ref).state.active]:
            if deadline is not None and time.monotonic() >= deadline:
                names = ", ".join(f"`{ref}`" for ref in pending[:5])
                raise SgpuError(
                    f"{names} did not end in time", code="wait_timeout", hint="wait longer"
                )
            tick()
            time.sleep(QUIET)
        return [self._status(ref) for ref in refs]

    def cancel(self, ref: AttemptRef, *, wait: bool = True) -> AttemptStatus:
        """Ask an attempt to stop. One that has ended is left as it is."""
        self._backend_of(ref).cancel(ref)
        return self.wait([ref])[0] if wait else self._status(ref)

    # State

    def state_list(self) -> list[Resource]:
        """Every resource that is not gone, by address."""
        return [it for _, it in sorted(self._state().resources.items()) if not it.gone]

    def state_show(self, text: str) -> Resource:
        resources = self._state().resources
        (address, *more) = sorted(match_addresses([text], resources))
        if more:
            raise SgpuError(f"`{text}` matches several resources", hint="give one address")
        return resources[address]

    def state_move(self, source: str, destination: str) -> None:
        """Rename a resource: its history follows."""
        try:
            new = Address.parse(destination)
        except ValueError as error:
            raise SgpuError(str(error), hint="addresses look like `run.train`") from None
        old = self.state_show(source).address
        with self._existing("state mv") as writer:
            active = [it.ref for it in writer.state.active if it.ref.address == old]
            if any(self._status(ref).state.active for ref in active):
                raise SgpuError(
                    f"`{old}` is active: its folders cannot be moved",
                    hint="wait for it with `sgpu wait`, or cancel it first",
                    code="move_refused",
                )
            backend = writer.state.resources[old].backend
            writer.move(old, new)
            try:
                self._backend(backend).move(old, new)
            except SgpuError:
                writer.move(new, old)
                raise

    def state_remove(self, text: str) -> None:
        """Forget a resource; its attempts stay in history."""
        from sgpu_decl.applying.observing import refresh

        old = self.state_show(text).address
        active = [ref for ref in self.find_active(text) if self._status(ref).state.active]
        if active:
            raise SgpuError(
                f"`{active[0]}` is active: without its record nothing would stop it",
                hint="wait for it with `sgpu wait`, or cancel it first",
                code="active_run",
            )
        with self._existing("state rm") as writer:
            refresh(writer, self._backend)
            writer.remove(old)

    def state_pull(self) -> dict[str, Json]:
        from sgpu_decl.storing.pulling import pull

        return pull(self._states)

    def state_unlock(self, lock_id: str) -> None:
        self._states.unlock(lock_id)

    def gc(
        self, *, keep_last: int | None, older_than: float | None, dry_run: bool
    ) -> dict[str, Json]:
        """Free folders of ended attempts; history's record stays.

        Args:
            keep_last: so many newest attempts of each run are kept (default 3 without an age).
            older_than: only attempts that ended more than so many seconds ago.
        """
        from sgpu_decl.applying.collecting import collect

        return collect(
            self._states,
            backend=self._backend,
            store=self._store,
            owner=self.state_dir / "state.db",
            keep_last=keep_last,
            older_than=older_than,
            dry_run=dry_run,
            now=_now(),
        )

    # Inside

    @cached_property
    def _store(self) -> "Store":
        from sgpu_decl.staging.store import Store, default_root

        return Store(default_root())

    def _backend(self, kind: str) -> "Backend":
        from sgpu_decl.backends.registry import open_backend

        if kind not in self._opened_backends:
            self._opened_backends[kind] = open_backend(
                kind, project=self.root, state_dir=self.state_dir, store=self._store
            )
        return self._opened_backends[kind]

    def _backend_of(self, ref: AttemptRef) -> "Backend":
        """The backend that a run was last applied to; the state is read once, not for each run."""
        if ref.address not in self._kinds:
            resources = self._believed().resources
            self._kinds.update({address: it.backend for address, it in resources.items()})
        return self._backend(self._kinds.get(ref.address, "local"))

    def _state(self) -> State:
        import uuid

        return self._states.read() or State(lineage=str(uuid.uuid4()), serial=0, resources={})

    def _believed(self) -> State:
        """The state with the launches that a crash kept from being recorded."""
        from sgpu_decl.applying.observing import believe_intents

        state = self._state()
        return believe_intents(state, self._backend) if state.intents else state

    def _existing(self, operation: str) -> "AbstractContextManager[StateWriter]":
        return self._states.lock(operation, lineage=self._state().lineage)

    def _owner(self) -> str | None:
        if self.opened.file is None:
            return None
        return os.path.relpath(self.opened.file.resolve(), self.root)

    def _selection(self, options: PlanOptions, known: set[Address]) -> frozenset[Address] | None:
        if not options.select and not options.exclude:
            return None
        chosen = match_addresses(options.select, known) if options.select else frozenset(known)
        return chosen - match_addresses(options.exclude, known)

    def _pin(self, plan: Plan) -> None:
        """Put the code of every launch into the store; refuse where the tree has other bytes."""
        needed = {
            change.launch.code_digest
            for change in plan.changes
            if change.launch and change.launch.token and change.launch.code_digest
        }
        missing = [digest for digest in sorted(needed) if not self._store.touch(digest)]
        if not missing:
            return
        here = self._snapshots_here(missing)
        for digest in missing:
            if digest not in here:
                raise StalePlan(
                    "the code here is not the code that was planned",
                    hint="check out the planned commit, or plan again",
                    code="code_differs",
                )
            self._store.put(here[digest])

    def _loose_ends(self) -> bool:
        """Whether something was launched or has ended that the state does not say yet."""
        state = self._states.read()
        return state is not None and bool(state.intents or state.active)

    def _refer(self) -> None:
        """Tell the shared store which code this state needs, so that no other project's gc takes
        it."""
        state = self._state()
        used = {it.last.code_digest for it in state.resources.values() if it.last}
        used |= {attempt.code_digest for attempt in state.active}
        self._store.refer(self.state_dir / "state.db", {it for it in used if it})

    def _snapshots_here(self, digests: Sequence[str]) -> "dict[str, Snapshot]":
        if all(digest in self._snapshots for digest in digests):
            return self._snapshots
        from sgpu_decl.applying.gathering import gather

        validated = self.validate()
        gathered = gather(
            validated.loaded, opened=self.opened, state=self._state(), store=self._store
        )
        return dict(gathered.snapshots)

    def _status(self, ref: AttemptRef) -> AttemptStatus:
        from sgpu_decl.model.attempt import AttemptState

        known = self._backend_of(ref).read([ref]).get(ref)
        if known is not None:
            return known
        recorded = next((it for it in self._states.history(ref.address) if it.ref == ref), None)
        if recorded is None and ref in {it.ref for it in self._believed().active}:
            return AttemptStatus(ref=ref, state=AttemptState.STAGING)
        if recorded is None:
            raise NotFound(f"there is no `{ref}`", hint="`sgpu status` lists the runs")
        state = AttemptState.LOST if recorded.state.active else recorded.state
        return AttemptStatus(
            ref=ref,
            state=state,
            started_at=recorded.started_at,
            ended_at=recorded.ended_at,
            exit_code=recorded.exit_code,
            failure=recorded.failure,
        )

    def _live(self, ref: AttemptRef) -> dict[str, Json]:
        status = self._status(ref)
        return {
            "state": str(status.state),
            **_times(status),
            "exit_code": status.exit_code,
            "class": str(status.failure) if status.failure else None,
        }

    def _describe(self, ref: AttemptRef) -> dict[str, Json]:
        named: dict[str, Json] = {"address": str(ref.address), "name": ref.address.label}
        described = self._backend_of(ref).describe(ref)
        if described is not None:
            return {**named, **described}
        status = self._status(ref)
        return {
            **named,
            "attempt": ref.number,
            "state": str(status.state),
            "backend": "local",
            **_times(status),
            "exit_code": status.exit_code,
            "ranks": [],
            "first_cause": None,
            "links": {},
        }

    def _unstage(self, address: Address) -> None:
        for attempt in self._states.history(address):
            self._backend(attempt.backend).unstage(attempt.ref)


def _check_fresh(plan: Plan, state: State) -> None:
    if plan.lineage != state.lineage:
        raise StalePlan(
            "this plan was made for another state",
            hint="apply it in the project it was made for, or plan again",
            code="other_lineage",
        )
    if plan.serial != state.serial:
        raise StalePlan(
            f"the state moved on since this plan (serial {plan.serial}, now {state.serial})",
            hint="plan again",
        )


def _times(status: AttemptStatus) -> dict[str, Json]:
    return {
        "started_at": _text(status.started_at),
        "ended_at": _text(status.ended_at),
    }


def _text(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None


def _now() -> datetime:
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
