"""The optional protocol of a backend whose platform has bundles: folders of files and jobs, which a
tool of the platform deploys together."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from sgpu_decl.backends.base import Survey
from sgpu_decl.backends.job_backend import JobDescriber
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.model.jsonable import Json

if TYPE_CHECKING:
    from sgpu_decl.config.job import Job


class BundleBackend(JobDescriber, Protocol):
    """Jobs as they are in a bundle. The platform is not asked for anything: who deploys the bundle,
    and where to, is not known yet.

    Attributes:
        survey: what planning asks.
    """

    survey: Survey

    def resource(self, job: "Job", spec: Mapping[str, Json]) -> dict[str, Json]:
        """A job as bundles write it.

        Args:
            spec: as `describe` made it.
        """

    def stage(self, request: LaunchRequest) -> tuple[str, ...]:
        """Write what a launch takes along into the folder, where it is not there. The code and the
        environment are in the stores. What is there with the same content is not touched.

        Returns:
            The launch folder and the files that it shares with others, from the folder.

        Raises:
            SgpuError: something is missing, or the folder cannot be written.
        """
