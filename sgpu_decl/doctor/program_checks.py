"""Other programs that sgpu calls: uv and git."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.environments.declared.uv import find_uv
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn
from sgpu_decl.regular_files import trusted_path

_PATIENCE = 5.0  # seconds for `git --version`


def check_programs(runs: tuple[LoadedRun, ...], project: Path) -> Iterator[Finding]:
    """`project` is the folder whose programs are not run."""
    yield _uv(any(set(run.config.env.origins) - {"snapshot"} for run in runs), project)
    yield _git(project)


def _uv(needed: bool, project: Path) -> Finding:  # noqa: FBT001  named by its caller
    try:
        return ok("uv", f"`{find_uv(os.environ, project)}`")
    except SgpuError as error:
        if needed:
            return fail("uv", error.message, error.hint)
        return warn("uv", f"{error.message}; no run here needs it", error.hint)


def _git(project: Path) -> Finding:
    path = shutil.which("git", path=trusted_path(os.environ, project))
    missing = "install git: `${git.…}` and the commit of a run come from it"
    if path is None:
        return warn("git", "there is no git on the PATH", missing)
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return warn("git", f"`{path}` does not run: {error}", missing)
    return ok("git", f"{answer.stdout.strip().removeprefix('git ')}, `{path}`")
