"""Attempts as their backends see them now, and from the record where these do not answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sgpu_decl.backends.base import Attempts
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.state import Attempt, State
from sgpu_decl.planning.live_state import (
    as_recorded,
    lost,
    refs_in_launch,
    require_here,
    unseen,
)
from sgpu_decl.planning.project import Project


@checked_calls
class AttemptViews:
    """What is known of the attempts of one project and target. The ends that were seen are kept
    for who records them."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._records: dict[AttemptRef, LaunchRecord] = {}  # they never change
        self._recorded_active: set[AttemptRef] = set()
        self._ends: dict[AttemptRef, AttemptView] = {}

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

    def _by_backend(self, refs: Sequence[AttemptRef]) -> dict[str, list[LaunchRecord]]:
        """The launches of attempts by backend, so that each is asked once about all of its own."""
        self._load(refs)
        by_kind: dict[str, list[LaunchRecord]] = {}
        for record in map(self.record, refs):
            by_kind.setdefault(record.backend, []).append(record)
        return by_kind

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


def _staged(record: LaunchRecord) -> AttemptView:
    """The view of an attempt of which no more is known than that its launch was begun."""
    return AttemptView(ref=record.ref, backend=record.backend, state=AttemptState.STAGING)
