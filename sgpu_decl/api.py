"""The calls that the command line, notebooks and other programs use: one opened project and target.

Everything heavy is imported inside the calls, so that importing this module costs little.
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl import __version__
from sgpu_decl.applying.naming import match_addresses
from sgpu_decl.applying.opening import Location, Opened, current_folder, open_project
from sgpu_decl.applying.site import Site, now
from sgpu_decl.errors import Locked, NotFound, StalePlan, Usage
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.call import Call
from sgpu_decl.model.event import ApplyEvent
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Action, Plan
from sgpu_decl.model.state import Resource, State
from sgpu_decl.storing.connecting import explained

if TYPE_CHECKING:
    from sgpu_decl.applying.equipping import Equipment, FromLock
    from sgpu_decl.applying.executor import Applied
    from sgpu_decl.applying.gathering import Gathered
    from sgpu_decl.applying.jobs.desiring import DeclaredJobs
    from sgpu_decl.applying.watching import Runs
    from sgpu_decl.config.reading import Loaded
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.environments.captured.capturing import Captured
    from sgpu_decl.environments.known.environment import Environment
    from sgpu_decl.environments.progress import Progress
    from sgpu_decl.model.job import DesiredJob, ObservedJob
    from sgpu_decl.staging.snapshot import Snapshot

__all__ = [
    "Location",
    "PlanOptions",
    "Session",
    "Validated",
    "base_requirements",
    "environment",
]


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

    def __init__(
        self,
        opened: Opened,
        location: Location,
        declared: Callable[[Opened], Validated] | None = None,
        path: tuple[str, ...] = (),
    ) -> None:
        self.root = opened.root
        self.notes = opened.notes
        self.target = opened.target
        self.state_dir = opened.state_dir
        self._site = Site(opened, location)
        self._declared = declared
        self._path = path
        self._snapshots: Mapping[str, Snapshot] = {}
        self._recipes: Mapping[str, Captured | FromLock] = {}
        self._equipped: Plan | None = None
        self._copies: object = None  # of files that are to be pinned, until they are

    @classmethod
    def open(cls, location: Location) -> "Session":
        """Find the project of `location`.

        Raises:
            NotFound: the project folder, or the current one, does not exist.
        """
        return cls(open_project(location, here=current_folder()), location)

    @classmethod
    def for_call(
        cls,
        location: Location,
        declared: Callable[[Opened], Validated],
        path: tuple[str, ...],
    ) -> "Session":
        """Open the project of a called function, which stands in the Python file of `location`;
        `declared` gives what that file would say if it were a run file, `path` are the folders that
        the user's own modules are imported from.

        Raises:
            NotFound: the project folder, or the current one, does not exist.
        """
        return cls(open_project(location, here=current_folder()), location, declared, path)

    def check_target(self) -> None:
        """For calls that look at the state and read no file: planning finds it out by itself.

        Raises:
            SgpuError: neither the state nor a file of the project knows the target.
        """
        if self.target is None:
            return
        with explained(self._site.states.path):
            if self.state_dir.is_dir():
                return
        from sgpu_decl.applying.targets import refuse_unknown

        refuse_unknown(self._site.opened, self.target)

    @cached_property
    def runs(self) -> "Runs":
        """The attempts: finding them, looking at them, waiting for them, cancelling them."""
        from sgpu_decl.applying.watching import Runs

        return Runs(self._site)

    # Planning

    def validate(self) -> Validated:
        """Read the file and say everything that is wrong with it.

        Raises:
            InvalidInput: it holds errors.
        """
        if self._declared is not None:
            return self._declared(self._site.opened)
        from sgpu_decl.applying.reading import read_file

        loaded, findings, source = read_file(self._site.opened, self._site.location)
        return Validated(loaded=loaded, findings=findings, source=source)

    def plan(
        self,
        options: PlanOptions = PlanOptions(),
        *,
        progress: "Progress | None" = None,
        take_in: bool = False,
    ) -> Plan:
        """Say what apply would do. Writes nothing but caches.

        Args:
            progress: is told how far reading an environment has come.
            take_in: the plan is about to be applied: what has to be read of an environment goes
                into the store in the same pass.

        Raises:
            InvalidInput: the file holds errors.
            NotFound: an option names no run, or there is no file.
            Usage: `rerun` names what `select` and `exclude` leave out.
        """
        from sgpu_decl.applying.observing import observe
        from sgpu_decl.planning import planner

        site = self._site
        state = site.state()
        gathered = self._gather(options, state, self._equipment(state, progress, take_in=take_in))
        self._snapshots = gathered.snapshots
        state = site.believed(state)
        wanted = {desired.address for desired in gathered.desired} | gathered.jobs.addresses
        known = wanted | {address for address, it in state.resources.items() if not it.gone}
        select = _selection(options, known)
        jobs, seen_jobs = self._jobs(gathered.jobs, state, select)
        return planner.plan(
            desired=gathered.desired,
            state=state,
            observed=observe(state, site.backend),
            request=planner.Request(
                target=self.target,
                project=os.fspath(site.root),
                rerun=_rerun(options, known, wanted if select is None else wanted & select),
                select=select,
                retry_failed=options.retry_failed,
                on_active=options.on_active,
                whole_project=gathered.whole_project,
                destroy=options.destroy,
            ),
            owner=site.opened.owner,
            now=now(),
            tool_version=__version__,
            config_digest=gathered.config_digest,
            findings=gathered.findings,
            jobs=jobs,
            seen_jobs=seen_jobs,
        )

    def _jobs(
        self,
        declared: "DeclaredJobs",
        state: State,
        select: frozenset[Address] | None,
    ) -> "tuple[tuple[DesiredJob, ...], dict[Address, ObservedJob]]":
        """What is wanted of jobs and what is seen of them; workspaces are asked for those alone
        that are planned."""
        if not declared.jobs:
            return (), {}
        from sgpu_decl.applying.jobs.desiring import desire, observe

        def planned(address: Address) -> bool:
            return select is None or address in select

        keepers = self._site.keeper
        desired = desire(declared, keepers, planned, state.lineage)
        return desired, observe(declared, desired, state.resources, keepers, planned, state.lineage)

    def _equipment(
        self, state: State, progress: "Progress | None" = None, *, take_in: bool = False
    ) -> "Equipment":
        from sgpu_decl.applying.equipping import Equipment

        site = self._site
        return Equipment(
            lambda: site.environments, progress, recorded=state.resources, take_in=take_in
        )

    def _gather(self, options: PlanOptions, state: State, equipment: "Equipment") -> "Gathered":
        """What the file asks for. What it was read from, ten thousand configs maybe, is let go
        before as many changes are made."""
        from sgpu_decl.applying.gathering import Gathered, gather

        site = self._site
        if options.destroy and site.opened.file is None:
            return Gathered()
        validated = self.validate()
        if options.destroy:
            loaded = validated.loaded
            return Gathered(
                whole_project=loaded.kind == "project", config_digest=loaded.config_digest
            )
        found = gather(
            validated.loaded,
            opened=site.opened,
            state=state,
            store=site.store,
            equipment=equipment,
            survey=site.survey,
            called=None if self._declared is None else self._path,
        )
        self._recipes = equipment.recipes
        self._copies = found.copies
        return replace(found, findings=(*validated.findings, *found.findings))

    def save(self, plan: Plan, path: Path, *, progress: "Progress | None" = None) -> None:
        """Write a plan and pin the code and the environments behind it in the local stores.

        Raises:
            SgpuError: the file cannot be written, or is there and is no saved plan.
        """
        from sgpu_decl.applying.saving import save_plan

        if any(it.environment is not None for it in plan.changes):
            from sgpu_decl.applying.equipping import keep

            keep(self._site, plan, self._recipes, path.resolve(), progress)
        save_plan(self._site, plan, path, self._snapshots)

    # Applying

    def equip(self, plan: Plan, *, progress: "Progress | None" = None) -> "tuple[Diagnostic, ...]":
        """Store the code and the environments of what a plan launches, and have them where ranks
        will look for them. `apply` does it too, where it was not done before.

        Returns:
            What was noticed while one was built.

        Raises:
            StalePlan: what is here now is not what was planned.
            SgpuError: it cannot be stored or built.
        """
        if plan is self._equipped or not any(it.launch for it in plan.changes):
            return ()
        from sgpu_decl.applying.equipping import equip
        from sgpu_decl.applying.pinning import pin

        pin(self._site, plan, self._snapshots)
        noticed = equip(self._site, plan, self._recipes, progress)
        self._equipped = plan
        return noticed

    def apply(
        self,
        plan: Plan,
        *,
        sink: Callable[[ApplyEvent], None] = lambda _: None,
        parallelism: int = 8,
        call: Call | None = None,
    ) -> "Applied":
        """Carry a plan out; returns once everything is launched, not when it has ended.

        Args:
            call: the function that the plan's one run calls.

        Raises:
            StalePlan: the state moved on since the plan was made, or it was applied already.
            Locked: another sgpu is at work on this state.
            SgpuError: an error check stands in the way.
        """
        from sgpu_decl.applying.collecting import unstage
        from sgpu_decl.applying.equipping import refer_environments
        from sgpu_decl.applying.executor import Applied, execute
        from sgpu_decl.applying.observing import refresh, settle_intents
        from sgpu_decl.applying.pinning import refer
        from sgpu_decl.planning.writing import plan_id

        site = self._site
        identity = plan_id(plan)
        idle = all(change.action is Action.NO_OP for change in plan.changes)
        if idle and not self._loose_ends():
            return Applied()
        self.equip(plan)
        with site.states.lock("apply", lineage=plan.lineage) as writer:
            if writer.applied(identity):
                raise StalePlan(
                    "this plan was applied already", hint="plan again", code="plan_applied"
                )
            _check_fresh(plan, writer.state)
            settle_intents(writer, site.backend, site.keeper)
            refresh(writer, site.backend)
            if idle:
                return Applied()
            applied = execute(
                plan,
                plan_id=identity,
                writer=writer,
                backends=site.backend,
                keepers=site.keeper,
                sink=sink,
                clock=now,
                parallelism=parallelism,
                call=call,
            )
        refer(site)
        refer_environments(site)
        unstage(site, plan)
        return applied

    def record_ended(self) -> "tuple[Diagnostic, ...]":
        """Record what has ended since the last look, and return what was noticed; left to the next
        writing command where another sgpu is at work."""
        from sgpu_decl.applying.observing import refresh

        if not self._loose_ends():
            return ()
        try:
            with self._site.writing("record") as writer:
                return refresh(writer, self._site.backend)
        except Locked:
            return ()

    # Jobs

    def adopt(self, text: str, job_id: str) -> Resource:
        """Let a job that exists already be the one that the file declares under an address.

        Raises:
            NotFound: the file or the workspace has no such job.
            SgpuError: one of both belongs to another.
        """
        from sgpu_decl.applying.jobs.adopting import adopt

        state = self._site.state()
        gathered = self._gather(PlanOptions(), state, self._equipment(state))
        return adopt(self._site, gathered.jobs, text, job_id)

    def jobs(self, *names: str) -> list[Resource]:
        """The recorded jobs that names, addresses or globs stand for; all without one.

        Raises:
            NotFound: one of them matches nothing.
        """
        resources = self._site.believed().resources
        known = {it for it in resources if it.kind is Kind.JOB and not resources[it].gone}
        chosen = match_addresses(names, known) if names else known
        return [resources[address] for address in sorted(chosen)]

    def names_job(self, text: str) -> bool:
        """Whether an address, a name or a glob is that of a recorded job and of no run: a bare name
        is that of a run where there is one."""
        resources = self._site.believed().resources
        known = {address for address, it in resources.items() if not it.gone}
        try:
            kinds = {address.kind for address in match_addresses([text], known)}
        except NotFound:
            return False
        return Kind.JOB in kinds and Kind.RUN not in kinds

    def describe_jobs(self, jobs: list[Resource]) -> list[dict[str, Json]]:
        """What is recorded of jobs, and what is seen where they are kept."""
        if not jobs:
            return []
        from sgpu_decl.applying.jobs.looking import describe_jobs

        return describe_jobs(self._site, jobs)

    def show_job(self, job: Resource) -> dict[str, Json]:
        """One job whole: with the settings that were applied, and those that it has."""
        from sgpu_decl.applying.jobs.looking import show_job

        return show_job(self._site, job)

    # State

    def state_list(self) -> list[Resource]:
        """Every resource that is not gone, by address."""
        return [it for _, it in sorted(self._site.state().resources.items()) if not it.gone]

    def state_show(self, text: str) -> Resource:
        """One recorded resource, gone or not."""
        from sgpu_decl.applying.mending import resource_named

        return resource_named(self._site, text)

    def state_move(self, source: str, destination: str) -> tuple[Address, Address]:
        """Rename a resource: its history follows. Returns the old and the new address."""
        from sgpu_decl.applying.mending import move

        return move(self._site, source, destination)

    def state_remove(self, text: str) -> Address:
        """Forget a resource; its attempts stay in history."""
        from sgpu_decl.applying.mending import remove

        return remove(self._site, text)

    def state_pull(self) -> dict[str, Json]:
        """The whole state (`schemas/state.v1.schema.json`)."""
        from sgpu_decl.storing.pulling import pull

        return pull(self._site.states)

    def state_unlock(self, lock_id: str) -> None:
        """Release a lock that a dead sgpu left behind."""
        self._site.states.unlock(lock_id)

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
            self._site, keep_last=keep_last, older_than=older_than, dry_run=dry_run, now=now()
        )

    def _loose_ends(self) -> bool:
        """Whether something was launched or has ended that the state does not say yet."""
        state = self._site.states.read()
        return state is not None and bool(state.intents or state.active)


# Environments


def environment(text: str, location: Location) -> "Environment":
    """The environment that `text` means: a base, `this`, a lock file, the start of a staged
    snapshot's digest, or an attempt of the project at `location`.

    Raises:
        NotFound: it means none of them.
        InvalidInput: the lock file is broken.
    """
    from sgpu_decl.applying.inspecting import environment_named

    def site() -> Site:
        return Site(open_project(location, here=current_folder()), location)

    return environment_named(text, site=site)


def base_requirements(name: str) -> tuple[str, dict[str, str]]:
    """A requirements file that reproduces a base, and what it leaves out with the reason.

    Raises:
        NotFound: there is no such base.
        SgpuError: its packages are known in part only.
    """
    from sgpu_decl.environments.known.bases import base_named, unknown_base
    from sgpu_decl.environments.known.reproducing import requirements_of

    base = base_named(name)
    if base is None:
        unknown = unknown_base(name, None)
        raise NotFound(unknown.summary, hint=unknown.hint)
    return requirements_of(base), base.left_out


def _selection(options: PlanOptions, known: set[Address]) -> frozenset[Address] | None:
    if not options.select and not options.exclude:
        return None
    chosen = match_addresses(options.select, known) if options.select else frozenset(known)
    return chosen - match_addresses(options.exclude, known)


def _rerun(
    options: PlanOptions, known: set[Address], planned: Collection[Address]
) -> frozenset[Address]:
    """What is launched in any case: every `--rerun` must name something that is planned."""
    found: frozenset[Address] = frozenset()
    for pattern in options.rerun:
        named = match_addresses([pattern], known).intersection(planned)
        hits = {it for it in named if it.kind is Kind.RUN}
        if named and not hits:
            raise Usage(
                f"`--rerun {pattern}` names a job, which is launched where it is kept",
                hint="name the run that it launches, to launch that now, or start the job there",
            )
        if not hits:
            raise Usage(
                f"`--rerun {pattern}` names nothing of this plan",
                hint="choose it with `--select`, leave it out of `--exclude`, and plan the file "
                "that declares it",
            )
        found |= hits
    return found


def _check_fresh(plan: Plan, state: State) -> None:
    if plan.lineage != state.lineage and plan.serial == 0:
        raise StalePlan(
            "another sgpu has applied here for the first time since this plan",
            hint="plan again",
            code="other_lineage",
        )
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
