"""One opened project and target, and every call on it."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sgpu_decl.errors import NotFound, Usage
from sgpu_decl.facts.location import Location, Opened, current_folder, open_project
from sgpu_decl.facts.opened_project import OpenedProject, now
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.storing.state_folder import is_folder
from sgpu_decl.storing.state_store import AT_ONCE, Patience

if TYPE_CHECKING:
    from sgpu_decl.api.doctor_calls import DoctorCalls
    from sgpu_decl.api.job_calls import JobCalls
    from sgpu_decl.api.state_calls import StateCalls
    from sgpu_decl.applying.executor import Applied
    from sgpu_decl.applying.prepared import Prepared
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.facts.checkout import Checkout
    from sgpu_decl.facts.project_file import Validated
    from sgpu_decl.model.call import Call
    from sgpu_decl.model.event import ApplyEvent
    from sgpu_decl.model.known_environment import Environment
    from sgpu_decl.model.plan_options import PlanOptions
    from sgpu_decl.model.step_progress import Progress
    from sgpu_decl.runs.project_runs import ProjectRuns
    from sgpu_decl.tracking.sync import SyncResult


class Session:
    """A project and a target, open until `close`, which the end of a `with` block calls. Cheap to
    make; reads what it needs when it needs it."""

    def __init__(
        self,
        opened: Opened,
        location: Location,
        declared: "Callable[[Opened, Checkout], Validated] | None" = None,
        path: tuple[str, ...] = (),
        patience: Patience = AT_ONCE,
    ) -> None:
        self.root = opened.root
        self.notes = opened.notes
        self.target = opened.target
        self.state_dir = opened.state_dir
        self._project = OpenedProject(opened, location, patience)
        self._declared = declared
        self._path = path

    @classmethod
    def open(cls, location: Location, patience: Patience = AT_ONCE) -> "Session":
        """Find the project of `location`.

        Args:
            patience: how long calls that write wait while another sgpu holds the lock.

        Raises:
            NotFound: the project folder, or the current one, does not exist.
        """
        return cls(open_project(location, here=current_folder()), location, patience=patience)

    @classmethod
    def open_saved(
        cls, path: Path, location: Location, patience: Patience = AT_ONCE
    ) -> "tuple[Session, Prepared]":
        """Read a saved plan and open the project that it was made for; `location` may name another
        folder of that project.

        Raises:
            InvalidInput: the file is truncated or no plan, or somebody edited it.
            StalePlan: it was made for another project than the one here.
        """
        from sgpu_decl.applying.plan_file import check_state, load_plan, planned_root

        prepared = load_plan(path)
        plan = prepared.plan
        root = (location.project or planned_root(plan, current_folder())).resolve()
        owner = next((change.launch.owner for change in plan.changes if change.launch), None)
        file = root / owner if owner else None
        session = cls.open(
            Location(
                file=file if file and file.is_file() else None, project=root, target=plan.target
            ),
            patience,
        )
        check_state(session._project, plan)
        return session, prepared

    @classmethod
    def for_call(
        cls,
        location: Location,
        declared: "Callable[[Opened, Checkout], Validated]",
        path: tuple[str, ...],
    ) -> "Session":
        """Open the project of a called function, which stands in the Python file of `location`;
        `declared` gives what that file would say if it were a run file, `path` are the folders that
        the user's own modules are imported from.

        Raises:
            NotFound: the project folder, or the current one, does not exist.
        """
        return cls(open_project(location, here=current_folder()), location, declared, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the state store and the connections to backends. Runs go on. Closing twice is
        harmless; other calls on a closed session raise `SgpuError`."""
        self._project.close()

    def check_target(self) -> None:
        """For calls that look at the state and read no file: planning finds it out by itself.

        Raises:
            SgpuError: neither the state nor a file of the project knows the target.
        """
        if self.target is None:
            return
        if is_folder(self.state_dir):
            return
        from sgpu_decl.facts.targets import refuse_unknown

        refuse_unknown(self._project.opened, self.target, self._project.states.targets())

    @property
    def in_project(self) -> bool:
        """Whether there is a project: a file that is found without being named, or a state."""
        return self._project.opened.file is not None or is_folder(self.state_dir.parent)

    def other_targets_hint(self) -> str | None:
        """Where else something was applied, as a hint for a target without runs."""
        from sgpu_decl.runs.other_targets import other_targets_hint

        return other_targets_hint(self._project.states, self.target)

    def check_project(self) -> None:
        """Refuse to go on outside of a project; for calls that read no file.

        Raises:
            NotFound: there is none.
        """
        if not self.in_project:
            raise NotFound(
                f"there is no project in `{self.root}` or in a folder above it",
                hint="go to the folder of your run or project file, or name it with `--project`",
                code="no_project",
            )

    def shell_command(self, words: str) -> str:
        """A command about this project and target that works in the current folder, in backticks:
        `sgpu logs 'train#1' -t prod`."""
        return self._project.shell_command(words)

    # Planning

    def check(self) -> "Validated":
        """Read the file and return everything that is wrong with it, for its target, or without a
        target and for each of them. The checks need neither this machine nor a workspace.

        Raises:
            InvalidInput: it holds errors.
        """
        from sgpu_decl.facts.file_validation import check_file

        return check_file(self._project.opened, self._project.location, self._project.survey)

    def _read(self, checkout: "Checkout") -> "Validated":
        """What the file says for its target; what is wrong with it by itself is found."""
        if self._declared is not None:
            return self._declared(self._project.opened, checkout)
        from sgpu_decl.facts.project_file import read_file

        return read_file(self._project.opened, self._project.location, checkout)

    def plan(
        self,
        options: "PlanOptions | None" = None,
        *,
        progress: "Progress | None" = None,
        for_apply: bool = False,
        trust_project: bool = False,
    ) -> "Prepared":
        """Say what apply would do. Writes nothing but caches. What is returned holds all that its
        apply needs, so that another plan made meanwhile changes nothing.

        Args:
            progress: is told how far reading an environment has come.
            for_apply: the plan is about to be applied: what has to be read of an environment goes
                into the store in the same pass.
            trust_project: interpreters of the project may be asked what they are. What is about to
                be applied is trusted.

        Raises:
            InvalidInput: the file holds errors.
            NotFound: an option names no run, or there is no file.
            Usage: `rerun` names what `select` and `exclude` leave out.
        """
        from sgpu_decl.applying.preparation import prepare
        from sgpu_decl.model.plan_options import PlanOptions

        self._project.guarded = not (for_apply or trust_project)
        return prepare(
            self._project,
            options or PlanOptions(),
            self._read,
            path=None if self._declared is None else self._path,
            progress=progress,
            for_apply=for_apply,
        )

    def save(self, prepared: "Prepared", path: Path, *, progress: "Progress | None" = None) -> None:
        """Write a plan and pin the code and the environments behind it in the local stores.

        Raises:
            SgpuError: the file cannot be written, or is there and is no saved plan.
        """
        from sgpu_decl.applying.plan_file import save_plan

        _check_prepared(prepared)
        save_plan(self._project, prepared, path, progress)

    # Applying

    def stage(
        self, prepared: "Prepared", *, progress: "Progress | None" = None
    ) -> "tuple[Prepared, tuple[Diagnostic, ...]]":
        """Store the code and the environments of what a plan launches, and have them where ranks
        will look for them. `apply` does it too, where it was not done before.

        Returns:
            The plan with that done, and what was noticed meanwhile.

        Raises:
            StalePlan: what is here now is not what was planned.
            SgpuError: it cannot be stored or built.
        """
        from sgpu_decl.applying.apply import stage

        _check_prepared(prepared)
        return stage(self._project, prepared, progress)

    def apply(
        self,
        prepared: "Prepared",
        *,
        sink: "Callable[[ApplyEvent], None]" = lambda _: None,
        parallelism: int = 8,
        call: "Call | None" = None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> "Applied":
        """Carry a plan out; returns once everything is launched, not when it has ended.

        If something cannot be recorded after a launch, the answer has it in `unrecorded`, and the
        next apply records it.

        Args:
            call: the function that the plan's one run calls.
            on_wait: called repeatedly while this waits for the lock; may raise to give up.

        Raises:
            StateMoved: the state moved on since the plan was made.
            StalePlan: the plan was applied already, or the code is not what was planned.
            Locked: another sgpu is at work on this state.
            SgpuError: an error check stands in the way.
        """
        from sgpu_decl.applying.apply import apply
        from sgpu_decl.applying.launch_records import launch_of

        _check_prepared(prepared)
        applied = apply(
            self._project, prepared, sink=sink, parallelism=parallelism, call=call, on_wait=on_wait
        )
        plan = prepared.plan
        records = (launch_of(plan, change) for change in plan.changes if change.launches)
        self.runs.remember(record for record in records if record.ref in applied.launched)
        return applied

    def record_ended(self) -> "tuple[Diagnostic, ...]":
        """Record what has ended since the last look, and return what was noticed; left to the next
        writing command where another sgpu is at work, or the store takes nothing.
        """
        from sgpu_decl.applying.apply import record_ended

        return record_ended(self._project)

    def sync_tracking(self, ref: AttemptRef, server: str | None = None) -> "SyncResult":
        """Push the MLflow run of an attempt from the local store to a server; by default to the
        server that was down when the attempt started.

        Raises:
            NotFound: the attempt has no MLflow run here.
            SgpuError: it is active, or there is nothing to push.
            BackendError: the server does not take it.
        """
        from sgpu_decl.maintenance.tracking_sync import sync_tracking

        return sync_tracking(self.runs, ref, server)

    # Facets: the calls about one subject

    @cached_property
    def runs(self) -> "ProjectRuns":
        """The attempts: finding them, looking at them, waiting for them, cancelling them."""
        from sgpu_decl.runs.project_runs import ProjectRuns

        return ProjectRuns(self._project)

    @cached_property
    def jobs(self) -> "JobCalls":
        """The jobs: finding and showing those that are recorded, adopting others."""
        from sgpu_decl.api.job_calls import JobCalls
        from sgpu_decl.facts.checkout import Checkout

        return JobCalls(self._project, lambda: self._read(Checkout(self.root)).loaded)

    @cached_property
    def state(self) -> "StateCalls":
        """What is recorded: looking at it, correcting it."""
        from sgpu_decl.api.state_calls import StateCalls

        return StateCalls(self._project)

    @cached_property
    def doctor(self) -> "DoctorCalls":
        """Checks of this machine, of the project, and of what its target uses."""
        from sgpu_decl.api.doctor_calls import DoctorCalls

        return DoctorCalls(self._project, in_project=self.in_project)

    def environment(self, text: str) -> "Environment":
        """The environment that `text` means: a base, `this`, a lock file, the start of a staged
        snapshot's digest, a declared one, or an attempt of this project.

        Raises:
            NotFound: it means none of them.
            InvalidInput: the lock file is broken.
            Usage: a project or a target was named, and `text` means nothing that is in one.
        """
        from sgpu_decl.runs.environment_lookup import environment_named, in_a_project

        location = self._project.location
        if in_a_project(text):
            self.check_project()
            self.check_target()
        elif location.project is not None or location.target is not None:
            raise Usage(
                f"`{text}` names no environment of a project", hint="leave out `-t` and `--project`"
            )
        return environment_named(text, project=self._project)

    # Maintenance

    def gc(
        self, *, keep_last: int | None, older_than: float | None, dry_run: bool
    ) -> dict[str, Json]:
        """Free folders of ended attempts; history's record stays.

        Args:
            keep_last: so many newest attempts of each run are kept (default 3 without an age).
            older_than: only attempts that ended more than so many seconds ago.
        """
        from sgpu_decl.maintenance.gc import collect

        return collect(
            self._project, keep_last=keep_last, older_than=older_than, dry_run=dry_run, now=now()
        )


def _check_prepared(value: object) -> None:
    from sgpu_decl.applying.prepared import Prepared

    if not isinstance(value, Prepared):
        raise TypeError(
            "this takes the `Prepared` that `Session.plan` returned, as it is: "
            f"got a `{type(value).__name__}`"
        )
