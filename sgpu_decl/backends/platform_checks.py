"""What a backend can measure of its platform: one narrow door, as `base.Backend` is for
attempts."""

from collections.abc import Callable, Generator
from typing import Protocol

from sgpu_decl.model.doctor_finding import Finding
from sgpu_decl.model.probe import ProbeCost, ProbeOptions


class PlatformChecks(Protocol):
    """One workspace."""

    @property
    def host(self) -> str:
        """Its URL. Raises BackendError: nothing says which workspace is meant."""

    def free(self) -> Generator[Finding, None, None]:
        """Measure what costs nothing, within half a minute. What goes wrong is a finding. Closing
        the generator deletes what was written."""

    def cost(self, options: ProbeOptions) -> ProbeCost:
        """What `probe` uses.

        Raises:
            BackendError: the platform has no such base environment.
        """

    def probe(
        self, options: ProbeOptions, note: Callable[[str], None]
    ) -> Generator[Finding, None, None]:
        """Launch runs that measure what nodes are like; findings come as they are made. Closing the
        generator ends the runs, and deletes all that was made.

        Args:
            note: told what is going on.

        Raises:
            BackendError: the workspace does not answer, or does not allow it.
        """
