"""What a backend is to the rest of sgpu: four protocols. `Survey` answers planning, `Launcher`
starts and stops, `Attempts` watches what was started, `Storage` looks after what is left of it.

The classes are the defaults too: a backend derives from them and writes what it has. Attempts are
named by their `LaunchRecord`, which holds what is remembered of a launch, so that no backend asks
the state for anything. Unless a docstring says otherwise, a call works for any record of the
backend: one of an attempt that is active, has ended, was deleted, or was launched by another
machine.
"""

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.storing.state_store import user_name

if TYPE_CHECKING:  # `sgpu status` knows backends, and reads no file
    from sgpu_decl.backends.activity_reader import ActivityReader
    from sgpu_decl.backends.job_backend import JobBackend
    from sgpu_decl.backends.platform_checks import PlatformChecks
    from sgpu_decl.code.sources import Source
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.env import Env
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.diagnostics.place import Place
    from sgpu_decl.model.desired import Interpreter, Placement
    from sgpu_decl.model.gpu_offer import GpuOffer
    from sgpu_decl.model.plan import PlanPlatform
    from sgpu_decl.model.rank_output import LogLines, Output, RankStack
    from sgpu_decl.model.ray_size import NodeShape
    from sgpu_decl.model.run_usage import RunUsage
    from sgpu_decl.model.state_mark import StateMark
    from sgpu_decl.model.step_progress import Progress
    from sgpu_decl.tracking.last_metrics import MetricSource

__all__ = [
    "Attempts",
    "Backend",
    "Elsewhere",
    "ForcedStop",
    "Launcher",
    "LogReader",
    "NoLog",
    "Storage",
    "Survey",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Why an attempt can be asked from another machine alone, or by another user: a sentence
    without its full stop, which names the place and, where it is known, the user. `hint` is the
    next step. `hidden_from` is the user from whom its platform hides it. `ended` says that it has
    ended, and that only how is not to be seen; `retryable`, that its platform may answer later."""

    reason: str
    hint: str
    hidden_from: str | None = None
    ended: bool = False
    retryable: bool = False


_ASKED = 16  # attempts that are asked at once


class Survey(Protocol):
    """What a backend knows of a run before it is planned. Nothing is started or changed; folders
    are those that paths in the run's YAML start from."""

    def expect(self, config: "RunConfig") -> None:  # noqa: ARG002  a default
        """Called before a run is planned: slow requests can start in the background."""
        return

    def interpreter(self, env: "Env", folder: Path) -> "Interpreter | None":  # noqa: ARG002
        """The Python of this machine that ranks use, or that a declared environment is made from;
        `None` where there is none, or none of this machine is used."""
        return None

    def placement(
        self,
        config: "RunConfig",  # noqa: ARG002  a default
    ) -> "tuple[Placement | None, Sequence[Diagnostic]]":
        """Where the backend puts a run, and what is wrong with the choice; `None` where there is
        nothing to choose.

        Raises:
            BackendError: the backend cannot be asked.
        """
        return None, ()

    def nodes(self, config: "RunConfig") -> "NodeShape | None":  # noqa: ARG002  a default
        """The nodes that a run gets; None where the backend cannot tell."""
        return None

    def account(self, config: "RunConfig") -> "PlanPlatform | None":  # noqa: ARG002  a default
        """Where the launches of a run go, and as whom: of what `check` has learnt. None for this
        machine, and where that is not known."""
        return None

    def person(self, block: "BackendOptions") -> str | None:  # noqa: ARG002  a default
        """Who launches with this `backend` block: the name of a user, or the display name of a
        service principal; by default the user of this machine. None where that is not known."""
        return user_name()

    def lookup(self, block: "BackendOptions", kind: str, name: str) -> str | None:  # noqa: ARG002
        """The id of what has this name there, of a kind of `text.lookups`; None if there are no
        such names. Raises BackendError: not exactly one thing has the name."""
        return None

    def offers(self, block: "BackendOptions") -> "Sequence[GpuOffer]":  # noqa: ARG002  a default
        """The GPUs that runs with this `backend` block can ask for, as far as the backend can tell.

        Raises:
            BackendError: the backend cannot be asked.
        """
        return ()

    def site(self, config: "RunConfig") -> str:  # noqa: ARG002  a default
        """In words, the place of a run's attempts, if the backend has several: a run can come after
        those of the same place alone."""
        return ""

    def other_states(
        self,
        config: "RunConfig",  # noqa: ARG002  a default
        own: "StateMark",  # noqa: ARG002
    ) -> "Mapping[str, StateMark]":
        """The marks of other states of the same project and target where a run would be staged, by
        the paths of their files.

        Raises:
            BackendError: the backend cannot be asked.
        """
        return {}

    def rules(
        self,
        config: "RunConfig",  # noqa: ARG002  a default
        places: "Mapping[str, Place]",  # noqa: ARG002
        folder: Path,  # noqa: ARG002
    ) -> "Sequence[Diagnostic]":
        """Errors in a config that do not depend on this machine or the platform. `check` returns
        them too."""
        return ()

    def check(
        self,
        config: "RunConfig",
        places: "Mapping[str, Place]",
        folder: Path,
        *,
        called: bool,  # noqa: ARG002  a default
    ) -> "Sequence[Diagnostic]":
        """What keeps a run from running there, each with its place. A run that is `called` is a
        function of this process.

        Raises:
            BackendError: the backend cannot be asked.
        """
        return self.rules(config, places, folder)

    def check_code(
        self,
        config: "RunConfig",  # noqa: ARG002  a default
        places: "Mapping[str, Place]",  # noqa: ARG002
        executed: "Sequence[Source]",  # noqa: ARG002
    ) -> "Sequence[Diagnostic]":
        """Code of the run that cannot work there, as far as that is certain. Places are as the
        sources show them."""
        return ()


class ForcedStop(Protocol):
    """Ends an attempt by force if its supervisor does not answer."""

    def look(self) -> str | None:
        """Take the next step if it is due; return in words what was done."""


def errors_of(
    ask: Callable[[LaunchRecord], None], records: Sequence[LaunchRecord]
) -> dict[AttemptRef, SgpuError]:
    """Ask about several attempts at once, as each may be far away. Returns what was raised."""
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context

    def error_of(record: LaunchRecord) -> SgpuError | None:
        try:
            ask(record)
        except SgpuError as error:
            return error
        return None

    with ThreadPoolExecutor(_ASKED, thread_name_prefix="ask") as pool:
        asked = [pool.submit(copy_context().run, error_of, record) for record in records]
    answers = {record.ref: one.result() for record, one in zip(records, asked, strict=True)}
    return {ref: error for ref, error in answers.items() if error is not None}


class Launcher(Protocol):
    """Starts attempts and stops them. The calls for one launch come in this order: `check`,
    `prepare`, `may_queue`, `stage_joined`, `launch_joined`; after a crash `staged`, `stage` and
    `launch` once more. The last two of each may come from several threads at once, for different
    launches. Where launches have to wait for attempts that stop, the last one comes later, and
    `staged` before it if another process may have launched them meanwhile."""

    @abstractmethod
    def check(self, request: LaunchRequest) -> None:
        """Refuse a launch that cannot work, before any effect.

        Raises:
            BackendError: a secret cannot be resolved, or the place is not usable.
        """

    @abstractmethod
    def prepare(
        self, requests: Sequence[LaunchRequest], progress: "Progress"
    ) -> "Sequence[Diagnostic]":
        """Copy what launches share from the local stores to where ranks look for it: environments,
        and on other machines the code. Does nothing if it is there already. Returns warnings about
        what launches can do without.

        Raises:
            SgpuError: it is damaged, or there is no room for it.
        """

    def provisional_reference(self, record: LaunchRecord) -> str | None:  # noqa: ARG002  a default
        """The `LaunchRecord.reference` of a launch before it is launched: where that is about to
        happen, and who does it, so that others do not look in the wrong place; None if it needs
        none.

        Raises:
            BackendError: nothing can be launched from here.
        """
        return None

    def place_words(self, record: LaunchRecord) -> str | None:  # noqa: ARG002  a default
        """Where a launch was made, in words that follow "it was launched"; None where that is this
        checkout alone."""
        return None

    def may_queue(self, request: LaunchRequest) -> bool:  # noqa: ARG002  a default
        """Whether a launch may have to wait for room: such launches start one after the other, so
        that they stand in line in the order of the plan."""
        return False

    def array_of(self, request: LaunchRequest) -> str | None:  # noqa: ARG002  a default
        """A text that a launch has in common with those that one request can start together with
        it; None for one that is started alone. None of them waits for another one."""
        return None

    @abstractmethod
    def stage(self, request: LaunchRequest) -> None:
        """Make all that a launch needs. A second call with the same token does nothing new.

        Raises:
            BackendError: nothing is left behind.
        """

    @abstractmethod
    def staged(self, record: LaunchRecord) -> bool:
        """Whether a launch with the token of the record got far enough that it must be completed.
        Launched ones did. It is not asked about those that are `Attempts.elsewhere`."""

    @abstractmethod
    def launch(self, request: LaunchRequest) -> str | None:
        """Start what was staged; its ranks start once the launches in `earlier` have ended. (They
        have, where the backend does not have `Capabilities.queues`.) A second call with the same
        token starts nothing new.

        Returns:
            `LaunchRecord.reference`: what finds the attempt again after its run was moved, and from
            other machines. None if the address and the token do.

        Raises:
            OutcomeUnknown: it may have been started.
            BackendError: nothing was started, and nothing is left behind.
        """

    def stage_joined(self, requests: Sequence[LaunchRequest]) -> None:
        """`stage` for launches that are started as one: all are staged, or none."""
        for at, request in enumerate(requests):
            try:
                self.stage(request)
            except SgpuError:
                for other in requests[:at]:
                    self.unstage(other)
                raise

    def launch_joined(self, requests: Sequence[LaunchRequest]) -> Sequence[str | None]:
        """`launch` for launches that are started as one, each behind those that it comes after: all
        are started, or none. A backend without `Capabilities.joins` and `array_of` gets one launch
        at a time."""
        return [self.launch(request) for request in requests]

    def unstage(self, request: LaunchRequest) -> None:  # noqa: ARG002  a default
        """Undo `stage`, where another one that it is `joined` with could not be staged."""
        return

    @abstractmethod
    def cancel(self, record: LaunchRecord) -> None:
        """Ask an active attempt to stop; does nothing if it has ended or is unknown."""

    def cancel_all(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, SgpuError]:
        """`cancel` for several attempts. Returns why it was not possible, of those it was not."""
        return errors_of(self.cancel, records)

    def forced_stop(
        self,
        record: LaunchRecord,  # noqa: ARG002  a default
        patience: float | None,  # noqa: ARG002
    ) -> ForcedStop | None:
        """What ends an attempt that was just asked to stop, if its supervisor is silent for
        `patience` seconds; those of the backend if that is None. Returns None where the platform
        ends it by itself."""
        return None


class LogReader(Protocol):
    """Reads the log of one attempt, piece by piece. It never sleeps: whoever follows does."""

    @abstractmethod
    def read(self) -> "tuple[Iterable[LogLines], bool]":
        """The lines that came since the last call, in the order of time as far as that is known,
        and whether these are the last. They are used up before the next call.

        Raises:
            BackendError: the platform does not answer; also while the lines are used up.
            NotFound: the attempt has ended, and its log is not there.
        """


class NoLog(LogReader):
    """The log of an attempt that wrote nothing and will not."""

    def read(self) -> "tuple[Iterable[LogLines], bool]":
        return (), True


class Attempts(Protocol):
    """Watches attempts, and reads what their ranks left."""

    poll_seconds: float = 0.0
    """How long whoever follows an attempt should wait between two looks; 0 for no longer than a
    person notices."""

    @abstractmethod
    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        """The truth about attempts, at the cost of a look many times a second; those that the
        backend no longer knows are left out. It writes nothing."""

    def inspect(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        """The same with what takes longer, as a person is shown it: links, the files behind a first
        cause, processes that are left."""
        return self.look(records)

    def elsewhere(self, record: LaunchRecord) -> Elsewhere | None:  # noqa: ARG002  a default
        """Why an attempt cannot be asked from here; None if it can. That `look` leaves such an
        attempt out is no sign that it is lost."""
        return None

    def time_limit(self, record: LaunchRecord) -> float | None:  # noqa: ARG002  a default
        """Seconds from its record after which a platform has ended an attempt, also one that it
        has not started yet; None if nothing limits how long an attempt waits."""
        return None

    def cancel_doomed(self, records: Sequence[LaunchRecord]) -> None:  # noqa: ARG002  a default
        """End those of these active attempts that a platform would start again in vain. Whoever
        follows attempts calls it now and then."""
        return

    @abstractmethod
    def logs(
        self,
        record: LaunchRecord,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        restart: int | None = None,
    ) -> LogReader:
        """The lines of the ranks (`None`: all), and of one `restart` where it is given. Values of
        secrets that can be resolved here are hidden.

        With `follow` the reader comes to its end when the attempt does; without, its first answer
        is all that is there now.
        """

    def activity(self, record: LaunchRecord) -> "ActivityReader | None":  # noqa: ARG002  a default
        """What says what the ranks of an attempt do now; None where the backend cannot tell."""
        return None

    def past_usage(self, record: LaunchRecord) -> "RunUsage | None":  # noqa: ARG002  a default
        """What an attempt used that has ended, as far as this machine knows: no platform is
        asked."""
        return None

    def unresolved_secrets(self, record: LaunchRecord) -> tuple[str, ...]:  # noqa: ARG002  a default
        """References of an attempt's secrets that cannot be resolved here: `logs` shows their
        values if a rank wrote them."""
        return ()

    def stacks(
        self,
        record: LaunchRecord,
        ranks: Sequence[int] | None,  # noqa: ARG002  a default
    ) -> "Sequence[RankStack]":
        """The Python stacks of running ranks (`None`: all), which go on.

        Raises:
            BackendError: the ranks run where nothing can ask them.
        """
        raise BackendError(
            f"`{record.ref}` runs on `{record.backend}`, and its ranks cannot be asked for their "
            "stacks from here",
            hint="`progress_timeout` ends a run that hangs, and reports the stacks of its ranks",
            code="stacks_unavailable",
        )

    @abstractmethod
    def results(self, record: LaunchRecord) -> list[dict[str, Json]]:
        """What each rank returned, in rank order; see `rank_values.read_results`."""

    @abstractmethod
    def output(self, record: LaunchRecord, progress: "Progress") -> "Output":
        """The files that ranks left in SGPU_OUTPUT_DIR, on this machine: brought here where they
        are elsewhere, but for those that were before.

        Raises:
            BackendError: they cannot be had yet, or not any more.
            NotFound: they were deleted.
        """

    def node_files(self, record: LaunchRecord, name: str) -> Mapping[int, Path]:  # noqa: ARG002
        """The file of a name among what each node left, by its number: on this machine, brought
        here where it is elsewhere. Nodes that left none are left out.

        Raises:
            BackendError: they cannot be had now.
            NotFound: they were deleted.
        """
        return {}

    def left_output(self, record: LaunchRecord, config: "RunConfig") -> bool:  # noqa: ARG002  a default
        """Whether ranks of an attempt left a file in SGPU_OUTPUT_DIR that a later attempt of this
        config, with `resume`, finds. Backends that have the field answer."""
        return False

    def output_place(self, record: LaunchRecord) -> str | None:  # noqa: ARG002  a default
        """The place in which an attempt left a file in SGPU_OUTPUT_DIR, None if it left none: a
        launch with `resume` finds the newest output of its run in its own place. gc keeps that of
        each. Backends that have the field answer.

        Raises:
            BackendError: the storage does not answer.
        """
        return None

    def metric_source(
        self,
        record: LaunchRecord,  # noqa: ARG002  a default
        link: Mapping[str, Json],
    ) -> "MetricSource | None":
        """The place that keeps the metrics of the MLflow run of an attempt; None if that is
        unknown. Nothing is asked yet: a table of many attempts asks each place once.

        Args:
            link: what `links` of the attempt's view say of that run, as `mlflow`.
        """
        uri = link.get("tracking_uri")
        if not isinstance(uri, str):
            return None
        from sgpu_decl.tracking.last_metrics import TrackingStore

        return TrackingStore(uri, os.environ)

    @abstractmethod
    def error(self, record: LaunchRecord, rank: int) -> bytes | None:
        """The pickled exception that a rank of a called function ended with, if it could leave
        one."""


class Storage(Protocol):
    """What attempts left, and what they share."""

    @abstractmethod
    def size(self, record: LaunchRecord) -> int:
        """Bytes that `free` would release, on this machine and elsewhere.

        Raises:
            BackendError: the storage does not answer.
        """

    def sizes(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, int | None]:
        """`size` of each attempt that left something, None where the storage does not answer, 0
        where it does not say sizes. What was freed long ago costs no request of its own."""
        found = {record.ref: self.size(record) for record in records}
        return {ref: size for ref, size in found.items() if size}

    @abstractmethod
    def free(self, record: LaunchRecord) -> int:
        """Delete what an ended attempt left (code, output, logs), whichever machine launched it;
        returns the bytes. Of an active one nothing is deleted: 0."""

    @abstractmethod
    def unstage(self, record: LaunchRecord) -> None:
        """Delete what was staged for an attempt that has ended, such as a copy of its code;
        does nothing otherwise. Its results, logs and output stay, for all machines that could read
        them."""

    @abstractmethod
    def move(self, source: Address, destination: Address) -> None:
        """Let the attempts of a run be found under another address. None of them is active: the
        caller holds the lock of the state, and has looked. It is not called on other machines that
        share the state, nor again where the caller is killed: what lies below the old address there
        is known by `LaunchRecord.formerly`.

        Raises:
            BackendError: something of another run is there (`move_refused`).
        """

    def collect(self) -> int:
        """Delete shared objects that no launch needs any more, outside of the local stores; returns
        the bytes."""
        return 0

    def kill_orphans(self, record: LaunchRecord) -> int:  # noqa: ARG002  a default
        """Kill processes of a lost attempt that outlived its supervisor; returns how many."""
        return 0

    def verify_environment(self, digest: str) -> tuple[str, ...]:  # noqa: ARG002  a default
        """Check an environment after ranks ran in it; returns the paths that ranks wrote to. Those
        files are not used again."""
        return ()


@dataclass(frozen=True, kw_only=True)  # no slots: parts may be loaded where they are used
class Backend:
    """A backend, opened for one project and target. `jobs` gives what keeps the jobs that a
    `backend` block means, `checks` what can be measured of its platform; None where it has none.
    `require_named` raises BackendError if only the record of a job, declared by a file of the
    project, names the host of a block: credentials are not sent there. `close` ends its threads and
    connections, if it has some."""

    survey: Survey
    launcher: Launcher
    attempts: Attempts
    storage: Storage
    jobs: "Callable[[BackendOptions], JobBackend] | None" = None
    checks: "Callable[[BackendOptions], PlatformChecks] | None" = None
    require_named: "Callable[[BackendOptions, str], None]" = lambda _, __: None
    close: "Callable[[], None] | None" = None
