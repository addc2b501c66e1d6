"""The jobs of a project: found, shown and adopted."""

from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound
from sgpu_decl.model.address import Kind
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.selectors import match_addresses, resource_named
from sgpu_decl.model.state import Resource
from sgpu_decl.planning.project import Project

if TYPE_CHECKING:
    from sgpu_decl.model.job import JobView


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
        matches = match_addresses(names, addresses) if names else addresses
        return [resources[address] for address in sorted(matches)]

    def names_job(self, text: str) -> bool:
        """Whether an address, a name or a glob matches a recorded job and no run."""
        resources = self._project.believed().resources
        addresses = {address for address, resource in resources.items() if not resource.gone}
        try:
            kinds = {address.kind for address in match_addresses([text], addresses)}
        except NotFound:
            return False
        return Kind.JOB in kinds and Kind.RUN not in kinds

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
