"""Looking at attempts, waiting for them and asking them to stop. Nothing here writes state."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.applying.naming import match_addresses, names_any, split_attempt
from sgpu_decl.applying.neighbouring import elsewhere
from sgpu_decl.applying.observing import being_launched, lost
from sgpu_decl.applying.site import Site
from sgpu_decl.errors import NotFound, OutOfTime
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef, AttemptState, AttemptStatus
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state import Attempt
from sgpu_decl.storing.times import to_text

if TYPE_CHECKING:
    from sgpu_decl.backends.base import Backend, LogLine, Output
    from sgpu_decl.environments.progress import Progress

__all__ = ["Runs"]

QUIET = 0.05  # seconds between two looks at a run that is being watched, at most
_CALL = ('"on_active":"parallel"', '"until":"always"')  # what each says of itself
SHORTEST = 0.002  # and at first: a run may be over at once


class Runs:
    """The attempts of one project and target, as their backends and the history know them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kinds: dict[AttemptRef, str] = {}

    def find(self, *texts: str) -> tuple[AttemptRef, ...]:
        """The attempts that names, addresses, `train#8` or globs stand for, the latest of each run,
        in the order of the texts.

        Raises:
            NotFound: one of them matches nothing.
        """
        return tuple(dict.fromkeys(ref for text in texts for ref in self._find(text)))

    def _find(self, text: str) -> tuple[AttemptRef, ...]:
        name, number = split_attempt(text)
        state = self._site.believed()
        resources = {a: it for a, it in state.resources.items() if it.last is not None}
        jobs = {a for a, it in state.resources.items() if a.kind is Kind.JOB and not it.gone}
        if names_any(name, jobs) and not names_any(name, resources):
            raise NotFound(
                f"`{name}` is a job: it is launched where it is kept, not from here",
                hint=f"`sgpu show {name}` says how its last launch went, and where its logs are",
            )
        if not resources:
            hint = elsewhere(self._site.state_dir) or "no run was launched from here yet"
            raise NotFound(f"no run matches `{name}`", hint=hint)
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

    def find_one(self, text: str) -> AttemptRef:
        """As `find`, for calls that are about one run.

        Raises:
            NotFound: it matches nothing, or several runs.
        """
        found = self.find(text)
        if len(found) > 1:
            raise NotFound(
                f"`{text}` names {len(found)} runs",
                hint=f"name one of them, such as `{found[0]}`",
                code="ambiguous",
            )
        return found[0]

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
        others = [it.ref for it in self._site.believed().active if it.ref.address in named]
        active = (ref for ref, it in self._statuses(others).items() if it.state.active)
        return tuple(sorted({*self.find(*texts), *active}))

    def active_calls(self, backend: str) -> int:
        """How many calls of functions are active on a backend, as far as this project knows."""
        active = [it for it in self._site.believed().active if it.backend == backend]
        calls = [it.ref for it in active if all(mark in it.spec for mark in _CALL)]
        return sum(it.state.active for it in self._statuses(calls).values())

    def current(self) -> tuple[AttemptRef, ...]:
        """The latest attempt of every run that is not gone, and older ones that are active."""
        state = self._site.believed()
        latest = {it.last.ref for it in state.resources.values() if it.last and not it.gone}
        older = [it.ref for it in state.active if it.ref not in latest]
        active = (ref for ref, it in self._statuses(older).items() if it.state.active)
        return tuple(sorted({*latest, *active}))

    def status(self, ref: AttemptRef) -> AttemptStatus:
        """What the backend says, else what was recorded.

        Raises:
            NotFound: neither knows the attempt.
        """
        return self._statuses([ref])[ref]

    def _statuses(self, refs: Sequence[AttemptRef]) -> dict[AttemptRef, AttemptStatus]:
        known: dict[AttemptRef, AttemptStatus] = {}
        for backend, own in self._by_backend(refs):
            known.update(backend.read(own))
        return {
            ref: known[ref]
            if ref in known and known[ref].state is not AttemptState.STAGING
            else self._recorded_status(ref)
            for ref in refs
        }

    def describe(self, refs: Sequence[AttemptRef]) -> list[dict[str, Json]]:
        """The `status` objects of the public contract."""
        known: dict[AttemptRef, dict[str, Json]] = {}
        for backend, own in self._by_backend(refs):
            known.update(backend.describe(own))
        return [self._whole(ref, known.get(ref)) for ref in refs]

    def show(self, ref: AttemptRef) -> dict[str, Json]:
        """One `status` object whole, with the spec that was launched and the run's history."""
        from sgpu_decl.storing.pulling import attempt_to_json

        history = self._site.states.history(ref.address)
        spec = next((attempt.spec for attempt in history if attempt.ref == ref), "{}")
        statuses = self._statuses([attempt.ref for attempt in history])
        return {
            **self.describe([ref])[0],
            "spec": json.loads(spec),
            "history": [
                {**attempt_to_json(attempt), **_live(statuses[attempt.ref])} for attempt in history
            ],
        }

    def results(self, ref: AttemptRef) -> list[dict[str, Json]]:
        """What each rank returned: `[{"rank", "value"}]` in rank order.

        Raises:
            NotFound: what the attempt left was deleted.
        """
        self._must_be_kept(ref)
        return self._backend_of(ref).results(ref)

    def output(self, ref: AttemptRef, progress: "Progress | None" = None) -> "Output":
        """The files that ranks left in SGPU_OUTPUT_DIR, on this machine.

        Raises:
            NotFound: what the attempt left was deleted.
            BackendError: they cannot be had yet.
        """
        from sgpu_decl.environments.progress import Quiet

        self._must_be_kept(ref)
        return self._backend_of(ref).output(ref, progress or Quiet())

    def failure(self, ref: AttemptRef, rank: int) -> bytes | None:
        """The pickled exception of a rank of a called function, if it left one."""
        return self._backend_of(ref).failure(ref, rank)

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

        Raises:
            NotFound: what the attempt left was deleted.
        """
        self._must_be_kept(ref)
        backend = self._backend_of(ref)
        for line in backend.logs(ref, ranks=ranks, follow=follow, restart=restart):
            if line is None:
                time.sleep(QUIET)
            yield line

    def unhidden(self, refs: Sequence[AttemptRef]) -> tuple[str, ...]:
        """References of secrets that `logs` and `follow` cannot hide here, each once."""
        found = (it for ref in refs for it in self._backend_of(ref).unhidden(ref))
        return tuple(dict.fromkeys(found))

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
        known: dict[AttemptRef, AttemptState] = {}
        rest = SHORTEST
        while streams:
            quiet = True
            watched = list(streams)
            told = time.monotonic()
            for ref in watched:
                # Each may be far away; whoever presses Ctrl-C does not wait for all of them.
                if time.monotonic() - told > QUIET:
                    yield None
                    told = time.monotonic()
                for line in streams[ref]:
                    if line is None:
                        break
                    quiet = False
                    yield line
                else:
                    del streams[ref]
            for ref, status in self._statuses(watched).items():  # later than the last line
                if known.get(ref) is not status.state:
                    known[ref] = status.state
                    yield status
            if quiet and streams:
                yield None
                time.sleep(rest)
                rest = min(rest * 1.25, QUIET)

    def wait(
        self,
        refs: Sequence[AttemptRef],
        timeout: float | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> list[AttemptStatus]:
        """Wait until all have ended; `tick` is called between looks.

        Raises:
            OutOfTime: `timeout` seconds went by first.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pending = list(refs)
        while True:
            looked = time.monotonic()
            pending = [ref for ref, it in self._statuses(pending).items() if it.state.active]
            if not pending:
                statuses = self._statuses(refs)
                return [statuses[ref] for ref in refs]
            if deadline is not None and time.monotonic() >= deadline:
                names = ", ".join(f"`{ref}`" for ref in pending[:5])
                raise OutOfTime(f"{names} did not end in time", hint="wait longer")
            tick()
            # Looking at a thousand runs takes a while itself: rest as long as that took.
            time.sleep(max(QUIET, time.monotonic() - looked))

    def cancel(self, ref: AttemptRef) -> None:
        """Ask an attempt to stop. One that has ended is left as it is."""
        self._backend_of(ref).cancel(ref)

    def _backend_of(self, ref: AttemptRef) -> "Backend":
        """The backend that the attempt was launched on."""
        return self._site.backend(self._kind_of(ref))

    def _kind_of(self, ref: AttemptRef) -> str:
        if ref not in self._kinds:
            state = self._site.believed()
            known = [*state.active, *(it.last for it in state.resources.values() if it.last)]
            self._kinds.update({attempt.ref: attempt.backend for attempt in known})
        if ref not in self._kinds:
            self._kinds[ref] = self._recorded(ref).backend
        return self._kinds[ref]

    def _recorded(self, ref: AttemptRef) -> Attempt:
        history = self._site.states.history(ref.address)
        recorded = next((attempt for attempt in history if attempt.ref == ref), None)
        if recorded is None:
            raise NotFound(f"there is no `{ref}`", hint="`sgpu status` lists the runs")
        return recorded

    def _recorded_status(self, ref: AttemptRef) -> AttemptStatus:
        """What is known of an attempt whose backend says nothing, or no more than that it is
        staged."""
        if ref in being_launched(self._site.state()):
            return AttemptStatus(ref=ref, state=AttemptState.STAGING)
        recorded = self._recorded(ref)
        # It may have got up between the look at its backend and the look at the state.
        now = self._backend_of(ref).read([ref]).get(ref)
        if now is not None and now.state is not AttemptState.STAGING:
            return now
        if recorded.state.active:
            return lost(ref)
        return AttemptStatus(
            ref=ref,
            state=recorded.state,
            started_at=recorded.started_at,
            ended_at=recorded.ended_at,
            exit_code=recorded.exit_code,
            failure=recorded.failure,
        )

    def _must_be_kept(self, ref: AttemptRef) -> None:
        backend = self._backend_of(ref)
        if not backend.read([ref]) and not self._recorded_status(ref).state.active:
            raise NotFound(
                f"what `{ref}` left was deleted, by `sgpu gc` or by hand",
                hint=f"its record is kept: `sgpu show '{ref}'`",
                code="attempt_freed",
            )

    def _by_backend(
        self, refs: Sequence[AttemptRef]
    ) -> "Iterator[tuple[Backend, list[AttemptRef]]]":
        """Each backend with its own of the attempts: it is asked once about all of them."""
        by_kind: dict[str, list[AttemptRef]] = {}
        for ref in refs:
            by_kind.setdefault(self._kind_of(ref), []).append(ref)
        for kind, own in by_kind.items():
            yield self._site.backend(kind), own

    def _whole(self, ref: AttemptRef, described: "dict[str, Json] | None") -> dict[str, Json]:
        """A `status` object with its names, from what the backend says, else from the record."""
        named: dict[str, Json] = {"address": str(ref.address), "name": ref.address.label}
        if described is not None and described["state"] != AttemptState.STAGING:
            return {**named, **described}
        status = self._recorded_status(ref)
        return {
            **named,
            "attempt": ref.number,
            "state": str(status.state),
            "backend": self._kinds[ref],
            "started_at": to_text(status.started_at),
            "ended_at": to_text(status.ended_at),
            "exit_code": status.exit_code,
            "ranks": [],
            "first_cause": None,
            "links": described["links"] if described is not None else {},
        }


def _live(status: AttemptStatus) -> dict[str, Json]:
    return {
        "state": str(status.state),
        "started_at": to_text(status.started_at),
        "ended_at": to_text(status.ended_at),
        "exit_code": status.exit_code,
        "class": str(status.failure) if status.failure else None,
    }
