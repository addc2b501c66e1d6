"""What ranks need on the node: a copy of the code, the environment, the values of secrets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

from sgpu_decl.agent.node.agent_process import ARCHIVE
from sgpu_decl.agent.node.earlier_output import bring_earlier_output
from sgpu_decl.agent.node.log_forwarding import say
from sgpu_decl.agent.previous_output import BROUGHT
from sgpu_decl.agent.relocation import SITE
from sgpu_decl.agent.secret_environ import secret_names, without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sgpu_decl.agent.node.platform import PlatformTable
    from sgpu_decl.agent.node.stop_request import StopRequest

__all__ = ["CODE_TOP", "TREE", "hydrate", "prepare"]

TREE = "environment/tree"

CODE_TOP = "code"
"""The one folder at the top of an archive of code."""

_PATIENCE = 60.0  # seconds that shared objects may take to become visible
_PAUSE = 2.0


def prepare(
    spec: Mapping[str, Any],
    run_dir: str,
    stopping: StopRequest,
    platform: PlatformTable,
    *,
    code: str | None,
    environment: str | None,
    objects: str,
    back: str,
) -> tuple[str, str] | None:
    """Prepare a run's folder; if that fails, return the class of the failure and the reason.

    Args:
        code: the hex of the digest of its code, if it has any.
        environment: the hex of the digest of its manifest, if one is declared.
        objects: the folder of shared objects.
        back: the folder that nodes of this launch upload to.
    """
    for name in spec["secrets"]:
        if name not in os.environ:
            return "launch_failed_user", f"the platform gave no value for the secret `{name}`"
    try:
        os.mkdir(os.path.join(run_dir, spec["output_dir"]))
        folder = os.path.join(run_dir, spec["code_dir"])
        if code is None:
            os.mkdir(folder)
            problem = None
        elif platform.code is not None:
            problem = _copy_code(folder, platform.code)
        else:
            problem = _extract_code(
                folder, os.path.join(objects, "code", f"{code}.tar.gz"), stopping
            )
        if problem is None and spec.get("resume"):
            bring_earlier_output(back, os.path.join(run_dir, BROUGHT))
        if problem is None and environment is not None:
            os.mkdir(os.path.join(run_dir, SITE))  # Python remembers missing folders
            secrets = {name: os.environ[name] for name in secret_names(spec) if name in os.environ}
            packs = os.path.join(objects, "packs")
            return hydrate(
                run_dir, environment, packs, stopping, without_secrets(os.environ, secrets)
            )
    except (OSError, shutil.Error) as error:
        return "staging_failed", f"the run cannot be written to the node's disk: {error}"
    return problem


def _copy_code(folder: str, variable: str) -> tuple[str, str] | None:
    """Copy the code that the platform extracted."""
    source = os.environ.get(variable, "")
    if not os.path.isdir(source):
        return "staging_failed", f"the platform brought no code: {variable} is `{source}`"
    shutil.copytree(source, folder, symlinks=True)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode | 0o600)
    os.chmod(folder, 0o700)
    return None


def _extract_code(folder: str, archive: str, stopping: StopRequest) -> tuple[str, str] | None:
    """Extract the code, as soon as all of its archive is visible."""
    import gzip
    import tarfile
    import zlib

    deadline = time.monotonic() + _PATIENCE
    scratch = f"{folder}.partial"
    torn = (FileNotFoundError, EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error)
    while True:
        try:
            with tarfile.open(archive, "r:gz") as packed:
                if hasattr(tarfile, "fully_trusted_filter"):  # not in each Python 3.10
                    packed.extraction_filter = tarfile.fully_trusted_filter  # our own archive
                packed.extractall(scratch)  # noqa: S202
            os.rename(os.path.join(scratch, CODE_TOP), folder)
            os.rmdir(scratch)
        except torn as error:
            if time.monotonic() > deadline:
                return "staging_failed", f"the code cannot be read: `{archive}`: {error}"
        else:
            return None
        shutil.rmtree(scratch, ignore_errors=True)
        if stopping.asked:
            return None
        stopping.wait(_PAUSE)


def hydrate(
    run_dir: str,
    environment: str,
    packs: str,
    stopping: StopRequest,
    variables: Mapping[str, str] | None = None,
) -> tuple[str, str] | None:
    """Make the tree of the environment, as soon as all of its packs are visible; return as
    `prepare` does.

    Args:
        variables: those of the process that makes it; None for those of this process.
    """
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
        worker = stopping.start(argv, output=subprocess.PIPE, environment=variables)
        output, _ = worker.communicate()
        stopping.ended()
        seconds = time.monotonic() - started
        if stopping.asked:
            return None
        answer = _last(output)
        if worker.returncode == 0:
            say(f"the environment {environment[:12]} is ready after {seconds:.1f} s")
            return None
        kind = answer.get("error")
        why = answer.get("message") or f"it ended with {worker.returncode}"
        if kind == "mismatch":
            return "launch_failed_user", f"the environment does not fit this node: {why}"
        if seconds > _PATIENCE or kind not in ("packs", "system", "manifest"):
            return "staging_failed", f"the environment cannot be made: {why}"
        stopping.wait(_PAUSE)


def _last(output: bytes) -> dict[str, Any]:
    """Return the last line of a program of ours."""
    try:
        answer = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}
