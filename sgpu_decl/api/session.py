"""One opened project and target, and every call on it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sgpu_decl.errors import NotFound, Usage
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.target import BASE
from sgpu_decl.planning.location import (
    COMMAND_FILE,
    Location,
    current_folder,
)
from sgpu_decl.planning.project import Project, now
from sgpu_decl.planning.shell_commands import complete
from sgpu_decl.storing.state_folder import is_folder
from sgpu_decl.storing.state_store import AT_ONCE, Patience

if TYPE_CHECKING:
    from sgpu_decl.applying.apply_result import Applied
    from sgpu_decl.applying.rollout_events import RolloutEvents
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.doctor.project_doctor import ProjectDoctor
    from sgpu_decl.maintenance.project_jobs import ProjectJobs
    from sgpu_decl.maintenance.project_state import ProjectState
    from sgpu_decl.model.address import Address
    from sgpu_decl.model.call import Call
    from sgpu_decl.model.environment import Environment
    from sgpu_decl.model.event import ApplyEvent
    from sgpu_decl.model.plan import FieldOrigin, Plan
    from sgpu_decl.model.plan_options import PlanOptions
    from sgpu_decl.model.proposal import Proposal
    from sgpu_decl.model.step_progress import Progress
    from sgpu_decl.planner.project_graph import ProjectGraph
    from sgpu_decl.planning.checkout import Checkout
    from sgpu_decl.planning.prepared import Prepared
    from sgpu_decl.planning.project_file import Validated
    from sgpu_decl.runs.project_runs import ProjectRuns
    from sgpu_decl.tracking.sync import SyncResult

HERE = Location()
_OF_CALLS = Patience(seconds=60.0)


@checked_calls
class Session:
    """A project and a target. Opening one is cheap: files, state and backends are read when a call
    needs them. Close it with `close`, or use it in a `with` block."""

    def __init__(self, project: Project) -> None:
        self.root = project.root
        self.notes = project.notes
        self.target = project.target
        self.state_dir = project.state_dir
        self._project = project

    @classmethod
    def open(cls, location: Location = HERE, patience: Patience = AT_ONCE) -> "Session":
        """Find the project of `location`.

        Args:
            location: the file, the project folder, the target, and overrides of the file.
            patience: how long calls that write wait while another process holds the lock.

        Raises:
            NotFound: the project folder, or the current one, does not exist.
        """
        return cls(Project(location, patience=patience))

    @classmethod
    def open_saved(
        cls, path: str | Path, location: Location = HERE, patience: Patience = AT_ONCE
    ) -> "tuple[Session, Prepared]":
        """Read a saved plan and open its project. `location` may name another folder that the
        project lies in now.

        Raises:
            InvalidInput: the file is truncated, is not a plan, or was changed.
            StalePlan: the plan was made for another project, or from other files.
        """
        from sgpu_decl.planning.checkout import Checkout
        from sgpu_decl.planning.plan_file import check_tree, load_plan, opened_root

        path = Path(path)
        prepared = load_plan(path)
        plan = prepared.plan
        root = opened_root(plan, path, location.project, current_folder())
        check_tree(plan, root)
        owner = next((change.launch.owner for change in plan.changes if change.launch), None)
        file = root / owner if owner else None
        session = cls.open(
            Location(
                file=file if file and file.is_file() else None,
                project=root,
                target=BASE if plan.target is None else plan.target,
            ),
            patience,
        )
        return session, replace(prepared, checkout=Checkout(root))

    @classmethod
    def for_call(
        cls,
        location: Location,
        declared: "Callable[[Project, Checkout], Validated]",
        path: tuple[str, ...],
    ) -> "Session":
        """Open the project of a function that is called. The Python file of `location` defines it;
        `declared` gives the content of the run file that would describe the call, and the user's
        own modules are imported from the folders of `path`.

        Raises:
            NotFound: the project folder, or the current one, does not exist.
        """
        return cls(Project(location, patience=_OF_CALLS, declared=declared, call_path=path))

    @classmethod
    def for_text(cls, text: str, location: Location, patience: Patience = AT_ONCE) -> "Session":
        """Open the project of a run that no file describes yet. It is planned as if the file of
        `location`, or else some file of the current folder, held `text`.

        Raises:
            NotFound: the project folder, or the current one, does not exist.
        """
        from sgpu_decl.planning.project_file import read_text

        file = location.file or Path(COMMAND_FILE)
        target = location.target or BASE  # the text declares no targets
        located = replace(location, file=file, target=target)
        declared = partial(read_text, text)
        return cls(Project(located, patience=patience, declared=declared))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Record the ends of attempts that were seen, in a state that machines share, and close the
        state store and the connections to backends. Runs go on. Closing twice is harmless; other
        calls on a closed session raise `SgpuError`."""
        if "runs" in vars(self) and (ends := self.runs.take_ends()):
            from sgpu_decl.applying.recovery import record_seen

            record_seen(self._project, ends)
        self._project.close()

    def check_target(self) -> None:
        """Check that the target exists, before calls that read only the state.

        Raises:
            SgpuError: neither the state nor a file of the project has the target.
        """
        if self.target is None:
            return
        if is_folder(self.state_dir):
            return
        from sgpu_decl.planning.targets import refuse_unknown

        refuse_unknown(self._project, self.target, self._project.states.targets())

    @property
    def in_project(self) -> bool:
        """Whether there is a project here: a file with a default name, or a state."""
        return self._project.in_project

    @property
    def file(self) -> Path | None:
        """The run or project file that is read if there is one."""
        return self._project.file

    def targets(self) -> tuple[str, ...]:
        """The targets that a file here declares, and those that something was applied to.

        Raises:
            InvalidInput: a file cannot be parsed.
        """
        from sgpu_decl.planning.targets import known_targets

        return known_targets(self._project, self._project.states.targets())

    def other_targets_hint(self) -> str | None:
        """The hint for a target without runs: other targets that something was applied to."""
        from sgpu_decl.runs.run_finder import other_targets_hint

        return other_targets_hint(self._project.states, self.target)

    def check_project(self) -> None:
        """Check that there is a project, before calls that read no file.

        Raises:
            NotFound: there is none.
        """
        if not self.in_project:
            raise NotFound(
                f"there is no project in `{self.root}` or in a folder above it",
                hint="go to the folder of your run or project file, or name it with `--project`",
                code="no_project",
            )

    def declared_runs(self) -> tuple[str, ...]:
        """The names of the runs that the file here declares, as they are written. The file is only
        parsed; one that is not there or holds errors declares none."""
        from sgpu_decl.planning.ownership import declared_runs

        return declared_runs(self.file) if self.file is not None else ()

    def check_undeclared(self, name: str) -> None:
        """Check that no file of the project declares a run of this name.

        Raises:
            SgpuError: one does.
        """
        from sgpu_decl.planning.ownership import refuse_declared

        resources = self._project.state().resources.items()
        owners = [item.owner for address, item in resources if address.name == name]
        refuse_declared(name, self._project, owners)

    def complete(self, text: str) -> str:
        """A text with its commands in backticks made complete: they work in the current folder,
        about this project and target (`sgpu logs 'train#1' -t prod`)."""
        return complete(text, self._project)

    def with_complete_hints(self, plan: "Plan") -> "Plan":
        """A plan to be shown: the commands in the hints of its checks are complete."""
        checks = (replace(one, hint=one.hint and self.complete(one.hint)) for one in plan.checks)
        return replace(plan, checks=tuple(checks))

    # Planning

    def check(self) -> "Validated":
        """Check the file, as `sgpu validate` does: for the target, or without one for all targets.
        The checks look neither at this machine nor at a workspace.

        Raises:
            InvalidInput: the file holds errors; all of them are in `diagnostics`.
        """
        from sgpu_decl.planning.file_validation import check_file

        return check_file(self._project)

    def graph(self) -> "ProjectGraph":
        """The runs, jobs and environments of the file for the target, and which uses which.

        Raises:
            InvalidInput: the file holds errors.
            NotFound: there is no file.
        """
        from sgpu_decl.planner.project_graph import graph_of

        return graph_of(self._project.read().loaded)

    def plan(
        self,
        options: "PlanOptions | None" = None,
        *,
        progress: "Progress | None" = None,
        for_apply: bool = False,
        trust_project: bool = False,
        base: str | None = None,
    ) -> "Prepared":
        """Plan what `apply` would do. Only caches are written. The result holds all that `apply`
        needs, so other plans that are made meanwhile do not change it.

        Args:
            options: what to select, rerun or destroy; by default all runs and jobs of the file.
            progress: is told how much of an environment has been read.
            for_apply: the plan will be applied at once: files of an environment that have to be
                read go into the store in the same pass. Implies `trust_project`.
            trust_project: run interpreters that lie inside the project, to learn their versions,
                and build packages to learn what they need.
            base: a commit or a branch; each change then has a cause: this branch, or what the files
                at that commit would do as well.

        Raises:
            InvalidInput: the file holds errors.
            NotFound: an option names no run, or there is no file.
            SgpuError: the base is not here.
            Usage: `rerun` names what `select` and `exclude` leave out.
        """
        from sgpu_decl.model.plan_options import PlanOptions
        from sgpu_decl.planning.preparation import prepare

        self._project.for_apply, self._project.guarded = for_apply, not (for_apply or trust_project)
        commit = None
        if base is not None:
            from sgpu_decl.planning.base_files import resolve_base

            commit = resolve_base(self.root, base)
        return prepare(
            self._project,
            options or PlanOptions(),
            progress=progress,
            for_apply=for_apply,
            base=commit,
        )

    def field_origins(
        self, plan: "Plan"
    ) -> "Mapping[tuple[Address, str], tuple[FieldOrigin, ...]]":
        """What led to each field that a plan of this session shows, by its address and path: the
        place of its value, those that filled its references, and those of values that it
        replaced."""
        from sgpu_decl.planning.field_origins import field_origins

        return field_origins(plan, self._project)

    def save(
        self, prepared: "Prepared", path: str | Path, *, progress: "Progress | None" = None
    ) -> None:
        """Write a plan and pin the code and the environments behind it in the local stores.

        Raises:
            SgpuError: the file cannot be written, or exists and is not a saved plan.
        """
        from sgpu_decl.planning.plan_file import save_plan

        save_plan(self._project, prepared, Path(path), progress)

    def propose(self, prepared: "Prepared", *, link: str | None = None) -> "Proposal | None":
        """Keep the effects of a plan with the state, for a later apply of what was `reviewed`.

        Args:
            link: where people review the plan, such as the address of a pull request.

        Returns:
            What is proposed; None if the plan does nothing.

        Raises:
            SgpuError: the proposal cannot be kept.
        """
        from sgpu_decl.planning.review import propose

        return propose(self._project, prepared, link)

    # Applying

    def check_reviewed(self, prepared: "Prepared") -> None:
        """Check that open proposals of the target show all that a plan does. `apply` with
        `reviewed` does this itself, under the lock; here it is known before anything is staged.

        Raises:
            StalePlan: they do not; `diagnostics` says what is missing.
        """
        from sgpu_decl.planning.review import check_reviewed

        check_reviewed(self._project, prepared, self._project.state())

    def stage(
        self, prepared: "Prepared", *, progress: "Progress | None" = None
    ) -> "tuple[Prepared, tuple[Diagnostic, ...]]":
        """Store the code and build the environments of the runs that a plan launches. `apply` does
        this itself if it was not done before.

        Returns:
            The staged plan, and findings of the staging.

        Raises:
            StalePlan: code or environments have changed since the plan.
            SgpuError: something cannot be stored or built.
        """
        from sgpu_decl.applying.apply import stage

        return stage(self._project, prepared, progress)

    def apply(
        self,
        prepared: "Prepared",
        *,
        sink: "Callable[[ApplyEvent], None]" = lambda _: None,
        parallelism: int = 8,
        call: "Call | None" = None,
        on_wait: Callable[[], None] = lambda: None,
        reviewed: bool = False,
        progress: "Progress | None" = None,
    ) -> "Applied":
        """Carry a plan out. Returns when everything is launched; `runs` waits for the ends.

        If a launch cannot be recorded, the result has a finding in `unrecorded`, and the next apply
        records it.

        Args:
            prepared: the result of `plan`, `stage` or `open_saved`.
            sink: is called with each event, such as a launch.
            parallelism: how many launches overlap.
            call: the function that the one run of the plan calls.
            on_wait: called repeatedly while this waits for the lock, or for attempts that are
                replaced to stop; may raise to give up.
            reviewed: go on only if open proposals show all that the plan does.
            progress: is told how much of the code has been copied for the launches, by one thread
                at a time.

        Raises:
            StateMoved: the state has changed since the plan was made.
            StalePlan: the plan was applied already, code or environments have changed, or something
                was not proposed.
            Locked: another process changes this state.
            SgpuError: the plan has error checks, or the target is not for this branch or user.
        """
        from sgpu_decl.applying.apply import apply
        from sgpu_decl.planning.target_rules import refuse_by_rules

        refuse_by_rules(self._project, reviewed=reviewed)
        applied = apply(
            self._project,
            prepared,
            sink=sink,
            parallelism=parallelism,
            call=call,
            on_wait=on_wait,
            reviewed=reviewed,
            progress=progress,
        )
        self._remember(prepared, applied)
        return applied

    def roll_out(
        self,
        source: "PlanOptions | Prepared",
        events: "RolloutEvents",
        *,
        parallelism: int = 8,
        reviewed: bool = False,
        call: "Call | None" = None,
    ) -> "tuple[Prepared, Applied]":
        """Plan, approve, stage and apply, as `sgpu apply` does. If somebody else changes the state
        before the plan is applied, it is made again.

        Args:
            source: what to plan, or a saved plan.
            events: is told what happens. Whoever does not approve a plan raises an error.
            parallelism: how many launches overlap.
            reviewed: go on only if open proposals show all that the plan does.
            call: the function that the one run of the plan calls.

        Returns:
            The plan that was applied, and what that did.

        Raises:
            SgpuError: as `plan`, `stage` and `apply` do.
        """
        from sgpu_decl.applying.rollout import roll_out

        prepared, applied = roll_out(
            self._project, source, events, parallelism=parallelism, reviewed=reviewed, call=call
        )
        self._remember(prepared, applied)
        return prepared, applied

    def _remember(self, prepared: "Prepared", applied: "Applied") -> None:
        from sgpu_decl.applying.launch_records import launch_of

        plan = prepared.plan
        records = (launch_of(plan, change) for change in plan.changes if change.launches)
        self.runs.remember(record for record in records if record.ref in applied.launched)

    def record_ended(self) -> "tuple[Diagnostic, ...]":
        """Record the attempts that have ended since the last call, and return findings. If another
        process holds the lock, or the store cannot be written, the next command records them.
        """
        from sgpu_decl.applying.recovery import record_ended

        return record_ended(self._project)

    def sync_tracking(self, ref: AttemptRef, server: str | None = None) -> "SyncResult":
        """Push the MLflow run of an attempt from the local store to a server. The default is the
        server that did not answer when the attempt started.

        Raises:
            NotFound: the attempt has no MLflow run here.
            SgpuError: the attempt is active, or there is nothing to push.
            BackendError: the server does not answer, or refuses the run.
        """
        from sgpu_decl.maintenance.tracking_sync import sync_tracking

        return sync_tracking(self.runs, ref, server)

    # Facets: the calls about one subject

    @cached_property
    def runs(self) -> "ProjectRuns":
        """The calls about attempts: find, show, wait, read logs and results, cancel."""
        from sgpu_decl.runs.project_runs import ProjectRuns

        return ProjectRuns(self._project)

    @cached_property
    def jobs(self) -> "ProjectJobs":
        """The calls about jobs: find, show, adopt."""
        from sgpu_decl.maintenance.project_jobs import ProjectJobs

        return ProjectJobs(self._project)

    @cached_property
    def state(self) -> "ProjectState":
        """The calls about the recorded state: show, move, remove, unlock."""
        from sgpu_decl.maintenance.project_state import ProjectState

        return ProjectState(self._project)

    @cached_property
    def doctor(self) -> "ProjectDoctor":
        """Checks of this machine, of the project, and of the platforms of the target."""
        from sgpu_decl.doctor.project_doctor import ProjectDoctor

        return ProjectDoctor(self._project)

    def environment(self, text: str) -> "Environment":
        """The environment that `text` means: a base, `this`, a lock file, the start of a staged
        snapshot's digest, a declared one, or an attempt of this project.

        Raises:
            NotFound: there is no such environment.
            InvalidInput: the lock file is not valid.
            Usage: the session has a project or a target, and `text` does not belong to one.
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
        self,
        *,
        keep_last: int | None = None,
        older_than: float | None = None,
        everything: bool = False,
        only: Collection[str] | None = None,
        dry_run: bool = True,
    ) -> dict[str, Json]:
        """Delete the folders of ended attempts, and code and environments that nothing refers to.
        The records of the attempts stay.

        Of each run, the newest success stays, and the newest attempts that left output: what
        `resume` and `${run.NAME.output}` find is the same before and after. It asks nobody: look
        with `dry_run` first, and then pass what may go as `only`.

        Args:
            keep_last: the number of newest attempts of each run to keep; default 3, or 0 with
                `older_than`.
            older_than: delete only attempts that ended more than this many seconds ago.
            everything: delete also what `resume` and other runs would find.
            only: the attempts that may be deleted, written `train#8`; None for all.
            dry_run: delete nothing, and say what would be deleted.

        Returns:
            What was deleted, or would be, as `sgpu gc -o json` prints it.
        """
        from sgpu_decl.maintenance.gc import collect
        from sgpu_decl.planner.kept_attempts import GcRule

        rule = GcRule(keep_last=keep_last, older_than=older_than, everything=everything)
        return collect(self._project, rule, dry_run=dry_run, only=only, now=now())
