"""One project and target: its folder, its file, its state, the stores of code and environments,
its backends."""

import copy
import os
import shlex
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sgpu_decl.errors import BackendError, NotFound, SgpuError
from sgpu_decl.model.backend_kinds import BackendKind, kind_named, our_kinds
from sgpu_decl.model.state import State
from sgpu_decl.model.target import BASE
from sgpu_decl.planning.location import (
    Location,
    absolute,
    chosen_target,
    current_folder,
    default_file,
    nearest_project,
    refuse_unreadable_name,
)
from sgpu_decl.storing.state_folder import is_folder, state_folder
from sgpu_decl.storing.state_store import AT_ONCE, Patience, StateStore, StateWriter, user_name
from sgpu_decl.storing.stores import (
    local_proposals,
    local_store,
    offline_store,
    shared_proposals,
    shared_store,
    unmigrated_store,
)

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.base import Backend, Survey
    from sgpu_decl.backends.job_backend import JobBackend
    from sgpu_decl.backends.platform_checks import PlatformChecks
    from sgpu_decl.code.code_store import CodeStore
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.environments.environment_store import EnvironmentStore
    from sgpu_decl.environments.interpreters import Pythons
    from sgpu_decl.model.project_home import ProjectHome, ProjectIdentity
    from sgpu_decl.model.state_mark import StateMark
    from sgpu_decl.planning.checkout import Checkout
    from sgpu_decl.planning.project_file import Validated
    from sgpu_decl.storing.proposals import ProposalStore
    from sgpu_decl.storing.stores import SharedPlace, SharedStateStore


class Project:
    """What every call works on. Cheap to make; reads what it needs when it needs it. YAML is parsed
    at once only if the file may name the target, and nothing else does.

    Args:
        location: the options that choose it, and change its file.
        here: the folder of the command; by default the current one.
        patience: how long a command that writes waits for the lock of the state.
        declared: gives what stands for the content of the file, where no file describes the run.
        call_path: of a called function, the folders that the user's own modules are imported from.

    Attributes:
        root: its folder, absolute.
        file: the run or project file that is read, if there is one.
        shown: the file as the user named it.
        target: `None` for what is applied without a target.
        target_named: whether `-t` or `SGPU_TARGET` names the target, and not the file.
        guarded: whether interpreters of the project may not be run.
        for_apply: whether the plan that is made is applied at once.

    Raises:
        NotFound: the folder given as project, or the current one, is not there.
        InvalidInput: the file, which may name the target, is no YAML.
        SgpuError: the project or its state cannot lie where they would.
    """

    def __init__(
        self,
        location: Location,
        *,
        here: Path | None = None,
        patience: Patience = AT_ONCE,
        declared: "Callable[[Project, Checkout], Validated] | None" = None,
        call_path: tuple[str, ...] | None = None,
    ) -> None:
        if location.project is not None and not location.project.is_dir():
            raise NotFound(
                f"project folder `{location.project}` does not exist",
                hint="give an existing folder",
            )
        here = here or current_folder()
        self.location = location
        self.patience = patience
        self.call_path = call_path
        self._declared = declared
        self.file = location.file or default_file(location.project, here)
        self.shown = os.fspath(self.file) if self.file else ""
        start = self.file.parent if self.file else here
        self.root = (location.project or nearest_project(start)).resolve()
        self._checkout = self.root
        self.target, self.target_named = chosen_target(location, self.file, self.root)
        self.state_dir, note = state_folder(self.root, self.target or BASE)
        self.notes = (note,) if note else ()
        for path in (self.root, self.state_dir, *([absolute(self.file)] if self.file else [])):
            refuse_unreadable_name(path)
        self._states: StateStore | None = None
        self._closed = False
        self._lineage: str | None = None
        self._backends: dict[str, Backend] = {}
        self._pythons: dict[bool, Pythons] = {}
        self.guarded = True
        self.for_apply = False
        self._job_backends: dict[BackendOptions, JobBackend] = {}

    @property
    def in_project(self) -> bool:
        """Whether there is a project: a file with a default name or another one, or a state."""
        return self.file is not None or is_folder(self.state_dir.parent)

    @property
    def owner(self) -> str | None:
        """The file relative to the project, as state and plans name it."""
        return None if self.file is None else os.path.relpath(absolute(self.file), self.root)

    def at(self, root: Path, file: Path, variable_files: Sequence[Path]) -> "Project":
        """The same project with other files, those of values included: its state, stores and
        backends are shared."""
        _ = self._context  # of the project, for backends that only the other files name
        other = copy.copy(self)
        other.root, other.file, other._declared = root, file, None
        other.location = replace(
            self.location, file=file, project=root, variable_files=tuple(variable_files)
        )
        return other

    def read(self, checkout: "Checkout | None" = None) -> "Validated":
        """What the file says for the target, and the findings about the file alone.

        Raises:
            NotFound: there is no file.
            InvalidInput: it is a saved plan, or holds errors; all of them are in `diagnostics`.
        """
        from sgpu_decl.planning.checkout import Checkout
        from sgpu_decl.planning.project_file import read_file

        if self._declared is not None:
            return self._declared(self, checkout or Checkout(self.root))
        return read_file(self, checkout)

    def checkout_folder(self, folder: Path) -> Path:
        """The folder of the checkout for one of the project: another one only if the project has
        the files of another commit. Interpreters and secrets are looked for there: no commit keeps
        them, and a program of a commit must not run."""
        if not folder.is_relative_to(self.root):
            return folder
        return self._checkout / folder.relative_to(self.root)

    @property
    def states(self) -> StateStore:
        """The store of the state: the one that the project file names, else that of this machine.

        Raises:
            SgpuError: the project was closed, or this machine has, or had, another state.
            InvalidInput: the file names a store, and the block is wrong.
        """
        if self._closed:
            raise SgpuError(
                "this session is closed",
                hint="call it inside the `with` block that opened it, or open another one",
                code="session_closed",
            )
        if self._states is None:
            if self.shared_place is None:
                self._states = unmigrated_store(self.state_dir)
            else:
                _refuse_left_behind(local_store(self.state_dir).path)
                place = self.shared_place
                offline = self.location.offline
                self._states = (
                    offline_store(place, self.state_dir) if offline else self.open_shared(place)
                )
        return self._states

    def open_shared(self, place: "SharedPlace") -> "SharedStateStore":
        """The store of the target on a place that machines share. The caller closes it."""
        return shared_store(place, self.state_dir, commit=self.commit, homes=self.homes)

    def homes(self) -> "tuple[ProjectHome, ...]":
        """What the project may be known as: its folder in each remote of its checkout."""
        return self.identity.homes if self.identity is not None else ()

    @cached_property
    def identity(self) -> "ProjectIdentity | None":
        """What tells the project from others on any machine; None outside of a git checkout."""
        from sgpu_decl.planning.checkout import project_identity

        return project_identity(self.root)

    @cached_property
    def proposals(self) -> "ProposalStore":
        """What keeps the proposals of the target, beside its state."""
        if self.shared_place is None:
            return local_proposals(self.state_dir)
        return shared_proposals(self.shared_place, self.state_dir.name)

    @cached_property
    def shared_place(self) -> "SharedPlace | None":
        """Where machines share the state; None where each machine has its own.

        Raises:
            InvalidInput: the file names a store, and the block is wrong.
        """
        from sgpu_decl.planning.shared_state import shared_place

        return shared_place(self)

    def commit(self) -> str | None:
        """The git commit of the project."""
        from sgpu_decl.planning.checkout import Checkout

        return Checkout(self.root).commit

    @cached_property
    def store(self) -> "CodeStore":
        from sgpu_decl.code.code_store import CodeStore
        from sgpu_decl.content.store.content_store import default_root

        return CodeStore(default_root())

    @cached_property
    def environments(self) -> "EnvironmentStore":
        from sgpu_decl.content.store.content_store import default_root
        from sgpu_decl.environments.environment_store import EnvironmentStore

        return EnvironmentStore(default_root() / "environments")

    def backend(self, kind: str) -> "Backend":
        """The backend of that name, opened once.

        Raises:
            BackendError: there is none of that name.
        """
        if kind not in self._backends:
            backend_kind = kind_named(kind)
            if backend_kind.open is None:
                raise BackendError(
                    f"this version has no backend `{kind}`",
                    hint=_use(item for item in our_kinds() if item.open is not None),
                )
            self._backends[kind] = cast("Backend", backend_kind.open(self._context))
        return self._backends[kind]

    @cached_property
    def _context(self) -> "BackendContext":
        from sgpu_decl.backends.backend_context import BackendContext

        return BackendContext(
            project=self.root,
            state_dir=self.state_dir,
            store=lambda: self.store,
            environments=lambda: self.environments,
            pythons=self.pythons,
            shared_state=lambda: self.shared_place is not None,
            lineage=lambda: self._lineage,
            backend_blocks=cache(self._backend_blocks),
            mark=self.mark,
            for_apply=lambda: self.for_apply,
        )

    def mark(self, lineage: str) -> "StateMark":
        """What a staging folder keeps of the state, which has that lineage."""
        from sgpu_decl.model.state_mark import StateMark

        place = self.shared_place
        return StateMark(
            project=place.project if place is not None else self.root.name,
            target=self.state_dir.name,
            homes=self.homes(),
            lineage=lineage,
            who=user_name(),
            at=datetime.now(UTC),
        )

    def _backend_blocks(self, owner: str) -> "tuple[BackendOptions, ...]":
        from sgpu_decl.planning.project_file import backend_blocks

        return backend_blocks(self, owner)

    def job_backend(self, block: "BackendOptions", recorded_by: str | None = None) -> "JobBackend":
        """What keeps the jobs that a `backend` block names, opened once. It shares the connections
        of the backend.

        Args:
            recorded_by: the file that declares the job, relative to the project, where the block is
                that of a record.

        Raises:
            BackendError: that kind of backend keeps none, or only a record names the host.
        """
        if recorded_by is not None:
            self.backend(block.kind).require_named(block, recorded_by)
        if block not in self._job_backends:
            jobs = self.backend(block.kind).jobs if kind_named(block.kind).jobs else None
            if jobs is None:
                raise BackendError(
                    f"the backend `{block.kind}` keeps no jobs",
                    hint=_use(kind for kind in our_kinds() if kind.jobs),
                )
            self._job_backends[block] = jobs(block)
        return self._job_backends[block]

    def checks(self, block: "BackendOptions") -> "PlatformChecks":
        """What can be measured of the platform that a `backend` block names.

        Raises:
            BackendError: that kind of backend has none.
        """
        checks = self.backend(block.kind).checks if kind_named(block.kind).checks else None
        if checks is None:
            way_out = _use(kind for kind in our_kinds() if kind.checks)
            raise BackendError(
                f"the backend `{block.kind}` has no platform that can be measured",
                hint=f"name a target, with `-t`, whose runs do: {way_out}",
            )
        return checks(block)

    def survey(self, kind: str) -> "Survey | None":
        """What planning asks of the backend of that name; `None` where it can be asked
        nothing yet.

        Raises:
            BackendError: there is none of that name.
        """
        backend_kind = kind_named(kind)
        if backend_kind.survey is not None:
            return cast("Survey", backend_kind.survey(self._context))
        return None if backend_kind.open is None else self.backend(kind).survey

    def pythons(self) -> "Pythons":
        """The finder of interpreters."""
        from sgpu_decl.environments.interpreters import Pythons

        if self.guarded not in self._pythons:
            guarded = self._checkout if self.guarded else None
            self._pythons[self.guarded] = Pythons(os.environ, guarded=guarded)
        return self._pythons[self.guarded]

    def state(self) -> State:
        """What is recorded; an empty state with a lineage of its own where nothing is."""
        state = self.states.read() or State(lineage=str(uuid.uuid4()), serial=0, resources={})
        self._lineage = state.lineage
        return state

    def believed(self, state: State | None = None) -> State:
        """The state, read now unless given, with the launches that a crash kept from being
        recorded, and with attempts that still run though they, or the state, were deleted."""
        from sgpu_decl.planning.live_state import believe_intents, believe_orphans

        state = state or self.state()
        if state.intents:
            state = believe_intents(state, self.backend, self.job_backend)
        for kind in our_kinds():
            if kind.orphans is not None and (orphans := kind.orphans(self.state_dir)):
                state = believe_orphans(state, orphans)
        return state

    def close(self) -> None:
        """Close the store of the state, and what the backends hold open."""
        self._closed = True
        if self._states is not None:
            self._states.close()
        if "proposals" in vars(self):
            self.proposals.close()
        while self._backends:
            _, backend = self._backends.popitem()
            if backend.close is not None:
                backend.close()
        self._job_backends.clear()

    def close_tracked(self) -> None:
        """Close MLflow runs of this project that are still open though their attempts have
        ended."""
        from sgpu_decl.tracking.tracker_files import has_open_runs

        home = self.state_dir.parent
        if has_open_runs(home):
            from sgpu_decl.tracking.open_runs import close_runs

            close_runs(home, environ=os.environ)

    def writing(
        self, operation: str, lineage: str | None = None, patience: Patience | None = None
    ) -> "AbstractContextManager[StateWriter]":
        """The lock of the state. `lineage` is that of a new state, `patience` the project's, unless
        they are given."""
        return self.states.lock(
            operation,
            lineage=lineage or self.state().lineage,
            patience=patience or self.patience,
        )


def _refuse_left_behind(local: Path) -> None:
    """Refuse a shared state beside one of this machine: runs that only the latter knows would be
    launched again."""
    if local.exists():
        aside = _move(local, local.with_name(f"{local.name}.old"))
        raise SgpuError(
            f"the project names a shared state, and this machine has its own: `{local}`",
            hint="`sgpu state migrate` copies it there. To start without it, so that its runs are "
            f"launched again: {aside}",
            code="state_left_behind",
        )


def _move(source: Path, destination: Path) -> str:
    return f"`mv {shlex.quote(os.fspath(source))} {shlex.quote(os.fspath(destination))}`"


def now() -> datetime:
    """The time in UTC, to the millisecond that state and plans keep."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _use(kinds: Iterable[BackendKind]) -> str:
    return "use " + " or ".join(f"`backend: {kind.name}`" for kind in kinds)
