"""Other programs that sgpu calls: uv and git."""

import os
import shutil
import subprocess
from collections.abc import Iterator

from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.environments.declared.uv import find_uv
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn

__all__ = ["check_programs"]

_PATIENCE = 5.0  # seconds for `git --version`


def check_programs(runs: tuple[LoadedRun, ...]) -> Iterator[Finding]:
    yield _uv(any(set(run.config.env.origins) - {"snapshot"} for run in runs))
    yield _git()


def _uv(needed: bool) -> Finding:  # noqa: FBT001  one argument, named by its caller
    try:
        return ok("uv", f"`{find_uv(os.environ)}`")
    except SgpuError as error:
        if needed:
            return fail("uv", error.message, error.hint)
        return warn("uv", f"{error.message}; no run here needs it", error.hint)


def _git() -> Finding:
    path = shutil.which("git")
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
