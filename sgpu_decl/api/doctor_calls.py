"""The calls of `sgpu doctor`: checks of this machine, and of what a target uses."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.platform_checks import PlatformChecks
from sgpu_decl.doctor import last_findings
from sgpu_decl.doctor.machine import check_machine
from sgpu_decl.doctor.profile_file import check_new
from sgpu_decl.doctor.target_checks import check_target, platforms_of
from sgpu_decl.facts.project import Project
from sgpu_decl.model.target import BASE

if TYPE_CHECKING:
    from sgpu_decl.model.assumptions import Profile
    from sgpu_decl.model.doctor_finding import Finding

__all__ = ["DoctorCalls", "PlatformChecks", "load_profile"]


class DoctorCalls:
    """`Session.doctor`."""

    def __init__(self, project: Project, *, in_project: bool) -> None:
        self._project = project
        self._in_project = in_project
        self._folder = project.state_dir.parent / "doctor"
        self._target = project.target or BASE

    def machine(self) -> "Generator[Finding, None, None]":
        """Check this machine and this project; yields findings as they come. Changes nothing."""
        return check_machine(self._project, in_project=self._in_project)

    def target(self) -> "Generator[Finding, None, None]":
        """Check for free what the runs of the target are for: platforms, and this machine where
        some run here. Whoever stops early closes the generator: what is written to a workspace is
        removed again."""
        return check_target(self._project, in_project=self._in_project)

    def platforms(self) -> "tuple[PlatformChecks, ...]":
        """What can be measured of the platforms that the target uses.

        Raises:
            NotFound: there is no file.
            InvalidInput: it holds errors.
            BackendError: all of its runs are for this machine.
        """
        return platforms_of(self._project)

    def keep(
        self,
        kind: str,
        findings: "Sequence[Finding]",
        profile: Path | None = None,
        *,
        only: "Sequence[str]" = (),
    ) -> Path | None:
        """Keep what was found of a target, for a report and for the workspace emulator.

        Args:
            kind: what found it, such as `free`: the findings take the place of its last ones.
            profile: the file for the profile; by default one beside the states of the project,
                which is brought up to date.
            only: the runs of a probe that made them, where it left others out: what those found
                is kept.

        Returns:
            The file of the profile; `None` where no assumption was measured.

        Raises:
            SgpuError: `profile` exists, or a file cannot be written.
        """
        folder, target = self._folder, self._target
        last_findings.write_findings(kind, findings, folder, target, only=only)
        measured = last_findings.profile_of(findings)
        if not measured.found:
            return None
        if profile is None:
            return last_findings.update_profile(measured, folder, target)
        last_findings.write_profile(measured, profile)
        return profile

    def refuse_profile(self, file: Path) -> None:
        """Refuse to check a workspace if its profile could not be written. Raises SgpuError."""
        check_new(file)

    def kept(self) -> "tuple[Finding, ...]":
        """What the last check of the target found. Raises NotFound: there was none."""
        return last_findings.read_findings(self._folder, self._target)


def load_profile(file: Path, shown: str) -> "Profile":
    """Read the profile of a workspace that a user names.

    Raises:
        NotFound: there is no file.
        InvalidInput: it is no profile; all that is wrong is in `diagnostics`.
        SgpuError: it cannot be read.
    """
    from sgpu_decl.doctor.profile_file import load_profile

    return load_profile(file, shown)
