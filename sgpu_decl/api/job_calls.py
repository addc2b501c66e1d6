"""The calls about jobs of a project."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound
from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.model.address import Kind
from sgpu_decl.model.state import Resource
from sgpu_decl.runs.selectors import match_addresses

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import Loaded
    from sgpu_decl.model.job_view import JobView


class JobCalls:
    """`Session.jobs`. `read` gives what the file of the project says."""

    def __init__(self, project: OpenedProject, read: "Callable[[], Loaded]") -> None:
        self._project = project
        self._read = read

    def adopt(self, text: str, job_id: str) -> Resource:
        """Let a job that exists already be the one that the file declares under an address.

        Raises:
            NotFound: the file or the workspace has no such job.
            SgpuError: one of both belongs to another.
        """
        from sgpu_decl.facts.plan_facts import gather
        from sgpu_decl.maintenance.adopt import adopt

        self._project.guarded = False
        declared = gather(self._project, self._read(), self._project.state()).jobs
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
        """Whether an address, a name or a glob is that of a recorded job and of no run: a bare name
        is that of a run where there is one."""
        resources = self._project.believed().resources
        addresses = {address for address, resource in resources.items() if not resource.gone}
        try:
            kinds = {address.kind for address in match_addresses([text], addresses)}
        except NotFound:
            return False
        return Kind.JOB in kinds and Kind.RUN not in kinds

    def show(self, job: Resource) -> "JobView":
        """What is recorded of a job, and what is seen where it is kept."""
        from sgpu_decl.runs.job_status import describe_job

        return describe_job(self._project, job)
