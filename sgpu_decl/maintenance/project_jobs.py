"""The jobs of a project: found, shown, started, cancelled and adopted."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound
from sgpu_decl.model.address import Kind
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.selectors import match_addresses, resource_named
from sgpu_decl.model.state import Resource
from sgpu_decl.planning.project import Project

if TYPE_CHECKING:
    from sgpu_decl.model.job import JobView, StartedJob


@checked_calls
class ProjectJobs:
    """`Session.jobs`."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def adopt(self, text: str, job_id: str) -> Resource:
        """Manage an existing job of a workspace as the job that the file declares at an address.

        Args:
            text: the address, `job.NAME`.
            job_id: the id of the job in the workspace.

        Raises:
            NotFound: the file or the workspace has no such job.
            SgpuError: the address manages another job, or the job belongs to another address.
        """
        from sgpu_decl.maintenance.adopt import adopt
        from sgpu_decl.planning.plan_facts import gather

        self._project.guarded = False
        declared = gather(self._project, self._project.read().loaded, self._project.state()).jobs
        return adopt(self._project, declared, text, job_id)

    def write(self, text: str, job_id: str, path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Write an existing job of a workspace, with all of its tasks, as a file that the project
        can include, and the notebooks and Python files of its tasks into a folder beside it.
        Nothing is recorded, and the job is left as it is.

        Args:
            text: the address that the job is to have, `job.NAME`.
            job_id: the id of the job in the workspace.
            path: a file that does not exist.

        Returns:
            The paths of the settings that the YAML has no field for, and the files.

        Raises:
            NotFound: the workspace has no such job.
            SgpuError: one of the files exists, or `text` is no address of a job.
        """
        from sgpu_decl.maintenance.job_file import write_job

        return write_job(self._project, text, job_id, path)

    def find(self, *names: str) -> list[Resource]:
        """The recorded jobs that names, addresses or globs stand for; all without one.

        Raises:
            NotFound: one of them matches nothing.
        """
        resources = self._project.believed().resources
        addresses = {
            resource
            for resource in resources
            if resource.kind is Kind.JOB and not resources[resource].gone
        }
        if names and not addresses:
            from sgpu_decl.runs.run_finder import other_targets_hint

            hint = other_targets_hint(self._project.states, self._project.target)
            raise NotFound(
                f"no job matches `{names[0]}`: there are none here",
                hint=hint or "`sgpu apply` makes the jobs that the file declares",
            )
        matches = match_addresses(names, addresses, Kind.JOB) if names else addresses
        return [resources[address] for address in sorted(matches)]

    def find_one(self, name: str) -> Resource:
        """As `find`, for calls that are about one job.

        Raises:
            NotFound: it matches nothing, or several jobs.
        """
        jobs = self.find(name)
        if len(jobs) > 1:
            raise NotFound(
                f"`{name}` names {len(jobs)} jobs",
                hint=f"name one of them, such as `{jobs[0].address}`",
                code="ambiguous",
            )
        return jobs[0]

    def names_job(self, text: str) -> bool:
        """Whether a text is the address of a job, recorded or not, or matches a recorded job and no
        run."""
        if text.startswith(f"{Kind.JOB}."):
            return True
        resources = self._project.believed().resources
        addresses = {address for address, resource in resources.items() if not resource.gone}
        try:
            kinds = {address.kind for address in match_addresses([text], addresses)}
        except NotFound:
            return False
        return Kind.JOB in kinds and Kind.RUN not in kinds

    def start(
        self, name: str, *, parameters: Mapping[str, str] | None = None, tasks: Sequence[str] = ()
    ) -> "StartedJob":
        """Launch a job now, as it was applied. A call that was interrupted, and is made again,
        finds its launch.

        Args:
            name: the address or the name of a recorded job.
            parameters: values in the place of the defaults of its parameters.
            tasks: those that run; all where none is named.

        Raises:
            NotFound: no recorded job has that name, or it was deleted in the workspace.
            Usage: the job has no such parameter or task.
            OutcomeUnknown: it may have been launched; the same call finds the launch.
            SgpuError: its platform refuses it.
        """
        from sgpu_decl.runs.job_start import start_job

        job = resource_named({one.address: one for one in self.find(name)}, name)
        return start_job(self._project, job, parameters or {}, tasks)

    def look_again(self, started: "StartedJob") -> "StartedJob":
        """A launch as it is now. Raises BackendError."""
        from sgpu_decl.runs.job_start import look_again

        return look_again(self._project, self.find(str(started.address))[0], started)

    def last_launch(self, name: str) -> "StartedJob | None":
        """The newest launch of a job with its tasks, whoever started it; None if it was never
        launched. Once it has ended, the tasks have what they left.

        Raises:
            NotFound: no recorded job has that name, or several have.
            BackendError: its platform does not answer.
        """
        from sgpu_decl.runs.job_start import last_launch

        return last_launch(self._project, self.find_one(name))

    def cancel(self, name: str) -> tuple[Resource, bool]:
        """Ask the active launches of a job to stop, whoever started them.

        Args:
            name: the address or the name of a recorded job.

        Returns:
            The job, and whether a launch was active.

        Raises:
            NotFound: no recorded job has that name, or several have.
            BackendError: its platform refuses it.
        """
        from sgpu_decl.runs.job_start import cancel_launches

        job = self.find_one(name)
        return job, cancel_launches(self._project, job)

    def show(self, job: Resource | str) -> "JobView":
        """One job: its record, and its settings in the workspace.

        Raises:
            NotFound: no recorded job has that name.
            SgpuError: several have.
        """
        from sgpu_decl.runs.job_status import describe_job

        if isinstance(job, str):
            job = resource_named({one.address: one for one in self.find(job)}, job)
        return describe_job(self._project, job)
