"""The jobs of a project as files of a bundle, for those who run no Python in a deploy."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.bundles.bundle_folder import FOLDER
from sgpu_decl.bundles.bundled_jobs import BundledJob, BundledProject, bundled_jobs
from sgpu_decl.code.selection import RENDERED
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.planning.location import Location
from sgpu_decl.planning.project_text import invalid_file

if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedBundle:
    """What was rendered: the path of the file, relative to the project, the names of its jobs,
    whether its content changed, and warnings."""

    file: str
    jobs: tuple[str, ...]
    changed: bool
    findings: tuple[Diagnostic, ...] = ()


def render(location: Location, *, keep: int, check: bool = False) -> RenderedBundle:
    """Write the jobs of a project, and what they launch, into the folder `sgpu` of its bundle.

    Args:
        location: the project. With a target, the jobs are those of the target of the same name.
        keep: the renders whose launches stay in the folder, this one among them.
        check: write nothing; look only at the file of the jobs.

    Raises:
        SgpuError: the file of the project has errors (`InvalidInput`), or the folder has files that
            sgpu did not write.
    """
    project = BundledProject(location)
    name = f"jobs.{project.target}.yml" if project.target is not None else "jobs.yml"
    file = project.root / FOLDER / name
    found = bundled_jobs(project, keep=keep, write=not check)
    if has_errors(found.findings):
        raise invalid_file(project.shown, found.findings)
    text = _text(found.jobs, project.target)
    changed = not file.is_file() or file.read_text() != text
    if changed and not check:
        write_atomic(file, text.encode(), mode=0o666)
    return RenderedBundle(
        file=Path(FOLDER, name).as_posix(),
        jobs=tuple(job.name for job in found.jobs),
        changed=changed,
        findings=(*found.findings, *_twice(file, project.target)),
    )


def _twice(file: Path, target: str | None) -> Iterator[Diagnostic]:
    """A warning about files of an earlier render: `jobs.yml` is for all targets, and each of the
    others for one of them."""
    pattern = "jobs.*.yml" if target is None else "jobs.yml"
    others = sorted(one.name for one in file.parent.glob(pattern) if one != file)
    if others:
        yield Diagnostic(
            code="bundle_twice",
            severity=Severity.WARNING,
            summary=f"`{FOLDER}/{file.name}` and `{FOLDER}/{others[0]}` have the same jobs: a "
            "bundle that includes both has them twice",
            hint=f"delete `{FOLDER}/{others[0]}` if an earlier render has left it",
        )


def _text(jobs: tuple[BundledJob, ...], target: str | None) -> str:
    import yaml

    resources: Mapping[str, Json] = {
        "resources": {"jobs": {job.name: dict(job.resource) for job in jobs}}
    }
    block = resources if target is None else {"targets": {target: dict(resources)}}
    return RENDERED + yaml.safe_dump(block, sort_keys=False, allow_unicode=True, width=100)
