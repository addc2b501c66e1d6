"""What ranks need on the node: a copy of the code, the environment, the values of secrets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

from sgpu_decl.agent.hosted.attending import ARCHIVE
from sgpu_decl.agent.hosted.echoing import say
from sgpu_decl.agent.placing import SITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sgpu_decl.agent.hosted.stopping import Stopping

__all__ = ["TREE", "prepare"]

TREE = "environment/tree"

_CODE = "CODE_SOURCE_PATH"
_PATIENCE = 60.0  # seconds that packs may take to become visible
_PAUSE = 2.0


def prepare(
    spec: Mapping[str, Any],
    run_dir: str,
    stopping: Stopping,
    *,
    code: bool,
    environment: str | None,
    objects: str,
) -> tuple[str, str] | None:
    """Make a run's folder ready; return as what it counts if that cannot be, and why.

    Args:
        code: whether the run has code, which the platform extracted.
        environment: the hex of the digest of its manifest, if one is declared.
        objects: the folder of shared objects.
    """
    for name in spec["secrets"]:
        if name not in os.environ:
            return "launch_failed_user", f"the platform gave no value for the secret `{name}`"
    try:
        os.mkdir(os.path.join(run_dir, spec["output_dir"]))
        problem = _bring_code(os.path.join(run_dir, spec["code_dir"]), code=code)
        if problem is None and environment is not None:
            os.mkdir(os.path.join(run_dir, SITE))  # Python remembers folders that are not there
            return _hydrate(run_dir, environment, os.path.join(objects, "packs"), stopping)
    except (OSError, shutil.Error) as error:
        return "staging_failed", f"the node's disk does not take the run: {error}"
    return problem


def _bring_code(folder: str, *, code: bool) -> tuple[str, str] | None:
    """Copy the code; the platform's own stays as it is."""
    if not code:
        os.mkdir(folder)
        return None
    source = os.environ.get(_CODE, "")
    if not os.path.isdir(source):
        return "staging_failed", f"the platform brought no code: {_CODE} is `{source}`"
    shutil.copytree(source, folder, symlinks=True)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode | 0o600)
    os.chmod(folder, 0o700)
    return None


def _hydrate(
    run_dir: str, environment: str, packs: str, stopping: Stopping
) -> tuple[str, str] | None:
    """Make the tree of the environment, as soon as all of its packs are visible."""
    started = time.monotonic()
    say(f"making the environment {environment[:12]}")
    tree = os.path.join(run_dir, TREE)
    os.mkdir(os.path.dirname(tree))
    argv = [sys.executable, "-I", "-S", os.path.join(run_dir, ARCHIVE), "hydrate"]
    argv += ["--manifest", os.path.join(packs, f"{environment}.manifest")]
    argv += ["--digest", f"sha256:{environment}", "--packs", packs]
    argv += ["--objects", os.path.join(os.path.dirname(tree), "objects"), "--tree", tree]
    argv += ["--python", sys.executable]
    while True:
        worker = stopping.start(argv, output=subprocess.PIPE)
        said, _ = worker.communicate()
        stopping.ended()
        took = time.monotonic() - started
        if stopping.asked:
            return None
        answer = _last(said)
        if worker.returncode == 0:
            say(f"the environment {environment[:12]} is ready after {took:.1f} s")
            return None
        kind = answer.get("error")
        why = answer.get("message") or f"it ended with {worker.returncode}"
        if kind == "mismatch":
            return "launch_failed_user", f"the environment does not go with this node: {why}"
        if took > _PATIENCE or kind not in ("packs", "system", "manifest"):
            return "staging_failed", f"the environment cannot be made: {why}"
        stopping.wait(_PAUSE)


def _last(said: bytes) -> dict[str, Any]:
    """The last line that a program of ours said."""
    try:
        answer = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}
