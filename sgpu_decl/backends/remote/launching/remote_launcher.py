"""Launches on other machines: staged in a launch folder, and started by the platform."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from sgpu_decl.backends.base import Launcher
from sgpu_decl.backends.launch_request import LaunchRequest, require_code, require_upstreams
from sgpu_decl.backends.remote.launching.launch_folder import NodeProgram
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches, is_started
from sgpu_decl.backends.remote.launching.uploader import Uploader
from sgpu_decl.backends.remote.staging.remote_layout import Uses
from sgpu_decl.backends.remote.watching.remote_attempts import RemoteAttempts
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext


class RemoteLauncher(Launcher):
    """Stages launches, and marks those that were staged. A backend says how nodes are started
    (`start`) and stopped (`cancel`).

    Args:
        program: how the backend starts the agent on its nodes.
    """

    knows_earlier_starts: ClassVar[bool] = False
    """Whether `start` knows of each start of a launch, by whichever user and process, so that its
    refusal says that there was none."""

    marks_states: ClassVar[bool] = False
    """Whether plans read the marks of states in a staging folder (`state_marks`)."""

    def __init__(
        self,
        context: "BackendContext",
        launches: RemoteLaunches,
        attempts: RemoteAttempts,
        program: NodeProgram,
    ) -> None:
        self.uploader = Uploader(
            context, lambda item: launches.area(item.record), program, marks=self.marks_states
        )
        self._store = context.store
        self._launches = launches
        self._attempts = attempts
        self._staged: dict[AttemptRef, Uses] = {}  # by this process, and not launched yet
        self._known: set[str] = set()  # the tokens of what `staged` found

    @abstractmethod
    def start(self, request: LaunchRequest, folder: str) -> Mapping[str, Json]:
        """Start the nodes of a launch, whose launch folder is whole. A second call with the same
        token starts nothing new.

        Returns:
            What the marker is to say of it, such as the id of the run that it became.

        Raises:
            OutcomeUnknown: it may have been started.
            BackendError: nothing was started.
        """

    def staged_facts(self, request: LaunchRequest) -> Mapping[str, Json]:  # noqa: ARG002
        """What the marker of a launch that is staged says beside what it uses."""
        return {}

    def is_whole(
        self,
        record: LaunchRecord,  # noqa: ARG002  a default
        marker: Mapping[str, Any],  # noqa: ARG002
    ) -> bool:
        """Whether a launch with a marker, which does not say that it was started, has all that
        `launch` needs to complete it. If not, nothing can have been started."""
        return True

    def require_completable(self, record: LaunchRecord) -> None:
        """Refuse to start a launch that another process staged, and may have started, if `start`
        might start it twice.

        Raises:
            OutcomeUnknown: it has to stay open.
        """

    def check(self, request: LaunchRequest) -> None:
        require_code(self._store(), request)

    def require_upstreams(self, request: LaunchRequest, elsewhere: str) -> None:
        """Refuse a launch whose nodes would not find an upstream, or the output of one. `elsewhere`
        says where one was launched that is not in the same staging area."""
        require_upstreams(
            request,
            elsewhere,
            is_beside=lambda one: self._launches.shares_area(one, request.config),
            has_output=lambda one: self._attempts.place(one) is not None,
        )

    def prepare(
        self, requests: Sequence[LaunchRequest], progress: Progress
    ) -> Sequence[Diagnostic]:
        self.uploader.share(requests, progress)
        return ()

    def provisional_reference(self, record: LaunchRecord) -> str:
        return self._launches.reference(record)

    def place_words(self, record: LaunchRecord) -> str | None:
        return f"from the folder `{self._launches.folder(record)}`"

    def stage(self, request: LaunchRequest) -> None:
        record = request.record
        # The storage is not asked for a marker: after a crash `staged` was, and only this apply
        # knows the token of a new launch.
        if record.token in self._known or self._launches.was_started(record):
            self.uploader.release(record.ref)
            return
        try:
            uses = self.uploader.fill(request)
            self._launches.mark(record, uses, **self.staged_facts(request))
            self._staged[record.ref] = uses
            self._known.add(record.token)
        except SgpuError:
            self._undo(record)
            raise
        finally:
            self.uploader.release(record.ref)

    def staged(self, record: LaunchRecord) -> bool:
        self._staged.pop(record.ref, None)  # whoever asks does not know who has launched it
        marker = self._launches.marker(record)
        if marker is None or not (is_started(marker) or self.is_whole(record, marker)):
            return False
        self._known.add(record.token)
        return True

    def launch(self, request: LaunchRequest) -> str:
        record, folder = request.record, self._launches.folder(request.record)
        uses: Uses | Mapping[str, Json] | None = self._staged.pop(record.ref, None)
        staged_here = uses is not None
        if uses is None:
            try:
                marker = self._launches.marker(record)
            except BackendError as error:
                raise _maybe_started(record, error) from error
            if marker is None:
                raise BackendError(f"`{record.ref}` is not staged", code="launch_failed")
            if is_started(marker):
                return self._launches.reference(record)
            self.require_completable(record)
            uses = marker["uses"]
        try:
            facts = self.start(request, folder)
        except OutcomeUnknown:
            raise
        except SgpuError as error:
            # Who staged it may have started it before. That this user may not says nothing.
            if not staged_here and not self.knows_earlier_starts:
                raise _maybe_started(record, error) from error
            self._undo(record)
            raise
        try:
            if facts:
                self._launches.mark(record, uses, **facts)
        except BackendError as error:
            raise OutcomeUnknown(
                f"`{record.ref}` was started, which could not be noted: {error.message}",
                hint="apply again: it is found, and not started once more",
            ) from error
        return self._launches.reference(record)

    def unstage(self, request: LaunchRequest) -> None:
        self._staged.pop(request.ref, None)
        self._undo(request.record)

    def _undo(self, record: LaunchRecord) -> None:
        """Undo `stage`. A plan after a failed launch has the same attempt number, and so the same
        token: that launch is staged anew. What another process has started stays: this one may have
        been stopped meanwhile, and have lost its lock."""
        self._known.discard(record.token)
        with suppress(BackendError):
            marker = self._launches.marker(record)
            if marker is None or not is_started(marker):
                self._launches.unstage(record)


def _maybe_started(record: LaunchRecord, error: SgpuError) -> OutcomeUnknown:
    """The error of a launch that another process staged, and may have started."""
    return OutcomeUnknown(f"`{record.ref}` may have been started: {error.message}", hint=error.hint)
