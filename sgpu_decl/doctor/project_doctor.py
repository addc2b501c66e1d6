"""`sgpu doctor`: checks of this machine, of a project, and of what its target uses."""

from collections.abc import Generator, Sequence
from pathlib import Path

from sgpu_decl.backends.platform_checks import PlatformChecks
from sgpu_decl.config.backend import BackendOptions, read_backend
from sgpu_decl.doctor import last_findings
from sgpu_decl.doctor.machine import check_machine
from sgpu_decl.doctor.profile_file import check_new
from sgpu_decl.errors import NotFound, SgpuError
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.doctor_finding import Finding, fail
from sgpu_decl.model.gpu_offer import GpuOffer
from sgpu_decl.model.target import BASE
from sgpu_decl.planning.job_facts import DeclaredJobs
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_file import read_file


@checked_calls
class ProjectDoctor:
    """`Session.doctor`."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._folder = project.state_dir.parent / "doctor"
        self._target = project.target or BASE

    def machine(self) -> Generator[Finding, None, None]:
        """Check this machine and this project; yields findings as they come. Changes nothing."""
        return check_machine(self._project)

    def target(self) -> Generator[Finding, None, None]:
        """Check for free what the runs of the target are for: platforms, and this machine where
        some run here. Whoever stops early closes the generator: what is written to a workspace is
        removed again."""
        try:
            blocks, elsewhere = _blocks(self._project)
        except SgpuError:  # the check of the machine reports it
            yield from self.machine()
            return
        if len(elsewhere) < len(blocks) or not blocks:
            yield from self.machine()
        for block in elsewhere:
            try:
                yield from self._project.checks(block).free()
            except SgpuError as error:
                yield fail("backend", error.message, error.hint)

    def platforms(self) -> tuple[PlatformChecks, ...]:
        """What can be measured of the platforms that the target uses.

        Raises:
            NotFound: there is no file.
            InvalidInput: it holds errors.
            BackendError: all of its runs are for this machine.
        """
        blocks, elsewhere = _blocks(self._project)
        return tuple(self._project.checks(block) for block in elsewhere or blocks)

    def gpus(self) -> tuple[tuple[GpuOffer, ...], tuple[SgpuError, ...]]:
        """The GPUs that the runs of the target can ask for, each type at each place; those of this
        machine where no file says more. Also what could not be asked.

        Raises:
            InvalidInput: the file holds errors.
        """
        try:
            blocks, _ = _blocks(self._project)
        except NotFound:
            blocks = []
        offers: list[GpuOffer] = []
        silent: list[SgpuError] = []
        for block in blocks or [read_backend({})]:
            try:
                found = self._project.backend(block.kind).survey.offers(block)
            except SgpuError as error:
                silent.append(error)
            else:
                offers += [offer for offer in found if offer not in offers]
        return tuple(offers), tuple(silent)

    def keep(
        self,
        kind: str,
        findings: Sequence[Finding],
        profile: Path | None = None,
        *,
        only: Sequence[str] = (),
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

    def kept(self) -> tuple[Finding, ...]:
        """What the last check of the target found. Raises NotFound: there was none."""
        return last_findings.read_findings(self._folder, self._target)


def _blocks(project: Project) -> tuple[list[BackendOptions], list[BackendOptions]]:
    """The different `backend` blocks of the runs and jobs of the file, and those of platforms."""
    loaded = read_file(project).loaded
    jobs = DeclaredJobs.of(loaded, "")
    blocks: list[BackendOptions] = []
    for block in (
        *(run.config.backend for run in loaded.runs),
        *(jobs.backend_of(job) for job in loaded.jobs),
    ):
        if block not in blocks:  # a block with a mapping has no hash
            blocks.append(block)
    return blocks, [block for block in blocks if is_remote(block.kind)]
