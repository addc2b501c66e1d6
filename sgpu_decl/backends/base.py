"""What every backend can do: one narrow door, so that nobody above knows a backend by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.progress import Progress
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptStatus
from sgpu_decl.model.call import Call
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.pool import PoolChoice

if TYPE_CHECKING:  # `sgpu status` knows backends, and reads no file
    from sgpu_decl.config.env import Env
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.staging.snapshot import Snapshot

__all__ = ["Backend", "Launching", "LogLine", "Output", "Survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """One launch, decided by the planner. `token` makes it idempotent; `wait_for` names older
    attempts of the same run that must have ended before its ranks start. `pool` is the id of the
    pool that its GPUs come from, if from one. `call` is the function that ranks run where the spec
    names none that they could load."""

    ref: AttemptRef
    token: str
    lineage: str
    spec: str
    owner: str
    code_digest: str | None
    environment_digest: str | None = None
    pool: str | None = None
    wait_for: tuple[int, ...] = ()
    call: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a rank, without its newline. `stream` is `stdout` or `stderr`. `rank` is `None`
    for what a node says itself."""

    ref: AttemptRef
    rank: int | None
    stream: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What ranks left in SGPU_OUTPUT_DIR: the folder here, what is in it, and the names of what is
    lacking, with the reason."""

    folder: Path
    files: int
    bytes: int
    lacking: tuple[str, ...] = ()
    why: str = ""


class Survey(Protocol):
    """What a backend knows of a run before it is planned. Nothing is started or changed; folders
    are those that paths in the run's YAML start from."""

    @property
    def elsewhere(self) -> bool:
        """Whether ranks run on other machines: what a called function imports has to be sent."""

    def expect(self, config: "RunConfig") -> None:
        """A run is about to be looked at: begin, beside what is done meanwhile, what takes long."""

    def interpreter(self, env: "Env", folder: Path) -> Interpreter | None:
        """The Python of this machine that ranks use, or that a declared environment is made from;
        `None` where there is none, or none of this machine is used."""

    def pool(self, config: "RunConfig") -> tuple[PoolChoice | None, Sequence[Diagnostic]]:
        """Where the GPUs of a run come from, and what is wrong with what says so; `None` where
        there are no pools.

        Raises:
            BackendError: the backend cannot be asked.
        """

    def check(
        self,
        config: "RunConfig",
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,
    ) -> Sequence[Diagnostic]:
        """What stands in the way of running it there, each with its place. A run that is `called`
        is a function of this process.

        Raises:
            BackendError: the backend cannot be asked.
        """

    def check_code(
        self, config: "RunConfig", places: Mapping[str, Place], code: "Snapshot"
    ) -> Sequence[Diagnostic]:
        """What of its code does not work there; nothing where that is not certain."""


class Backend(Protocol):
    """Every call names attempts by reference; `launch` and `cancel` are one effect each."""

    @property
    def survey(self) -> Survey:
        """What planning asks."""

    def check(self, launching: Launching) -> None:
        """Refuse a launch that cannot work, before any effect.

        Raises:
            BackendError: a secret cannot be resolved, or the place is not usable.
        """

    def equip(self, launchings: Sequence[Launching], progress: Progress) -> None:
        """Have what launches share, out of the local stores, where ranks will look for it: their
        environments, and on other machines their code. Harmless when it is there already.

        Raises:
            SgpuError: it is damaged, or there is no room for it.
        """

    def examine(self, environment: str) -> tuple[str, ...]:
        """Look at an environment after ranks ran in it; returns the paths that they wrote to, where
        nothing kept them from it. What was written to is not used again."""

    def stage(self, launching: Launching) -> None:
        """Prepare all that a launch needs. A second call with the same token does nothing new.

        Raises:
            BackendError: nothing is left behind.
        """

    def in_line(self, launching: Launching) -> bool:
        """Whether a launch may have to wait for room: such launches start one after the other, so
        that they stand in line in the order of the plan."""

    def launch(self, launching: Launching) -> None:
        """Start what was staged. A second call with the same token starts nothing new.

        Raises:
            OutcomeUnknown: it may have been started.
            BackendError: nothing was started, and nothing is left behind.
        """

    def staged(self, ref: AttemptRef, token: str) -> bool:
        """Whether a launch with this token got far enough that it must be completed."""

    def read(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, AttemptStatus]:
        """The truth about attempts; those that the backend no longer knows are left out."""

    def describe(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, dict[str, Json]]:
        """The `status` objects of attempts, without address and name; those that the backend no
        longer knows are left out."""

    def cancel(self, ref: AttemptRef) -> None:
        """Ask an active attempt to stop; harmless when it has ended."""

    def results(self, ref: AttemptRef) -> list[dict[str, Json]]:
        """What each rank returned, in rank order."""

    def output(self, ref: AttemptRef, progress: Progress) -> Output:
        """The files that ranks left in SGPU_OUTPUT_DIR, on this machine: brought here where they
        are elsewhere, but for those that were before.

        Raises:
            BackendError: they cannot be had yet, or not any more.
        """

    def failure(self, ref: AttemptRef, rank: int) -> bytes | None:
        """The pickled exception that a rank of a called function ended with, if it could leave
        one."""

    def logs(
        self,
        ref: AttemptRef,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        restart: int | None = None,
    ) -> Iterator[LogLine | None]:
        """Lines of the ranks (`None`: all) in the order of time, as far as that is known.

        `restart` shows that one only. While following, `None` marks a quiet moment. Values of
        secrets that can be resolved here are hidden.
        """

    def unhidden(self, ref: AttemptRef) -> tuple[str, ...]:
        """References of an attempt's secrets that cannot be resolved here: `logs` shows their
        values if a rank wrote them."""

    def unstage(self, ref: AttemptRef) -> None:
        """Delete the copy of the code of an attempt that has ended; harmless otherwise."""

    def sweep(self, ref: AttemptRef) -> None:
        """Stop what a crash of its supervisor left running of an attempt that is lost."""

    def move(self, source: Address, destination: Address) -> None:
        """Let the attempts of a run be found under another address.

        Raises:
            BackendError: that cannot be done while one of them is active.
        """

    def tidy(self) -> int:
        """Delete what launches shared and none needs any more, elsewhere than in the local stores;
        returns the bytes."""

    def size(self, ref: AttemptRef) -> int:
        """Bytes that `free` would release."""

    def free(self, ref: AttemptRef) -> int:
        """Delete what an ended attempt left (code, output, logs); returns the bytes."""
