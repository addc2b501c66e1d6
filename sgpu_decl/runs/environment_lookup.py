"""From what is typed after `sgpu env` to the environment that it means."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.environments.package_lists.base_environments import base_named
from sgpu_decl.environments.package_lists.lock_kinds import read_lock
from sgpu_decl.environments.package_lists.packages import cuda_of, this_interpreter
from sgpu_decl.errors import InvalidInput, NotFound
from sgpu_decl.model.backend_kinds import bases_of
from sgpu_decl.model.environment import Environment, EnvironmentKind, Package
from sgpu_decl.model.selectors import resource_named, split_attempt
from sgpu_decl.runs.project_runs import ProjectRuns

if TYPE_CHECKING:
    from sgpu_decl.content.manifest import Manifest
    from sgpu_decl.planning.project import Project

THIS = "this"
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{4,64})")
_KINDS = (
    "name a base (`sgpu env bases` lists them), `this` for this interpreter, a lock file, an "
    "attempt such as `train#8`, a declared one such as `environment.train`, or a staged "
    "environment by the start of its digest"
)


def in_a_project(text: str) -> bool:
    """Whether `text` means something that is found through a project: an attempt, or a declared
    environment. What is staged lies in a store that all projects of a user share."""
    if text == THIS or base_named(text, bases_of()) is not None or Path(text).is_file():
        return False
    return text.startswith("environment.") or split_attempt(text)[1] is not None


def environment_named(text: str, *, project: "Project") -> Environment:
    """The environment that `text` means: a base, `this`, a lock file, an attempt, a declared one,
    or the start of a staged one's digest.

    Raises:
        NotFound: it means none of them, or a digest begins so that is not the only one.
        InvalidInput: the lock file is broken; what is wrong with it is in `diagnostics`.
    """
    if text == THIS:
        return this_interpreter()
    base = base_named(text, bases_of())
    if base is not None:
        return base.environment
    if Path(text).is_file():
        return _locked(text)
    if text.startswith("environment."):
        return _recorded(text, project)
    if split_attempt(text)[1] is not None:
        return _found_by(text, project)
    if _DIGEST.fullmatch(text):
        return _staged(text, project)
    if "/" in text or text.endswith((".txt", ".toml", ".lock")):
        raise NotFound(f"there is no file `{text}`", hint="check the path of the lock file")
    close = nearest(text, [THIS, *(item.name for item in bases_of())])
    raise NotFound(
        f"`{text}` names no environment",
        hint=f"did you mean `{close}`?" if close else _KINDS,
    )


def _locked(text: str) -> Environment:
    lock_file, findings = read_lock(Path(text), text)
    if lock_file is None:
        raise InvalidInput(f"`{text}` is not a usable lock file", diagnostics=findings)
    required = f"requires Python {lock_file.python}" if lock_file.python else None
    return Environment(
        name=text,
        kind=EnvironmentKind.LOCK,
        packages=lock_file.packages,
        cuda=cuda_of(lock_file.packages),
        hashed=lock_file.hashed,
        notes=(required,) if required else (),
    )


def _staged(text: str, project: "Project") -> Environment:
    digests = project.environments.digests(text.removeprefix("sha256:"))
    if len(digests) > 1:
        raise NotFound(
            f"the digests of {len(digests)} staged environments begin with `{text}`",
            hint=f"give more of it, such as `{digests[0][:19]}`",
            code="ambiguous",
        )
    manifest = project.environments.manifest(digests[0]) if digests else None
    if manifest is None:
        raise NotFound(f"no staged environment begins with `{text}`", hint=_KINDS)
    return _of_manifest(manifest, digests[0][:19], EnvironmentKind.SNAPSHOT)


def _of_manifest(manifest: "Manifest", name: str, kind: EnvironmentKind) -> Environment:
    packages = tuple(Package(*pair) for pair in manifest.packages)
    return Environment(
        name=name,
        kind=kind,
        packages=packages,
        python=manifest.python.version,
        cuda=cuda_of(packages),
        digest=manifest.digest,
        size=manifest.size,
        files=len(manifest.files),
    )


def _recorded(text: str, project: "Project") -> Environment:
    """A declared environment as it was applied last."""
    resource = resource_named(project.state().resources, text)
    spec = resource.spec.fields
    digest = str(spec["digest"])
    manifest = project.environments.manifest(project.environments.build_of(digest) or digest)
    kind = EnvironmentKind.LOCK if spec["lock"] else EnvironmentKind.SNAPSHOT
    if manifest is not None:
        return _of_manifest(manifest, text, kind)
    listed = project.state().package_lists[str(spec["packages"])]
    return Environment(
        name=text,
        kind=kind,
        packages=listed.packages,
        cuda=cuda_of(listed.packages),
        digest=digest,
    )


def _found_by(text: str, project: "Project") -> Environment:
    """What the ranks of an attempt found, as it was recorded."""
    ref = ProjectRuns(project).find_one(text)
    attempt = next((item for item in project.states.history(ref.address) if item.ref == ref), None)
    if attempt is not None and attempt.inputs.environment_digest is not None:
        digest_of_tree = (
            project.environments.build_of(attempt.inputs.environment_digest)
            or attempt.inputs.environment_digest
        )
        manifest = project.environments.manifest(digest_of_tree)
        if manifest is not None:
            return _of_manifest(manifest, str(ref), EnvironmentKind.ATTEMPT)
    digest = attempt.inputs.packages_digest if attempt else None
    listed = project.state().package_lists.get(digest or "")
    if attempt is None or listed is None:
        raise NotFound(
            f"which packages the ranks of `{ref}` found is not known",
            hint="it is recorded where ranks use Python, with a declared environment or the "
            "interpreter of sgpu",
        )
    return Environment(
        name=str(ref),
        kind=EnvironmentKind.ATTEMPT,
        packages=listed.packages,
        cuda=cuda_of(listed.packages),
        digest=attempt.inputs.environment_digest,
    )
