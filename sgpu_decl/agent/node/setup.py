"""What ranks need on the node: a copy of the code, the environment, the values of secrets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress

from sgpu_decl.agent.attempt.previous_output import BROUGHT
from sgpu_decl.agent.attempt.relocation import SITE
from sgpu_decl.agent.node.agent_process import ARCHIVE
from sgpu_decl.agent.node.earlier_output import bring_earlier_output
from sgpu_decl.agent.node.log_forwarding import say
from sgpu_decl.agent.system.secrets import secret_names, without_secrets
from sgpu_decl.content.code_tree import BadCode, archive_name, copy_code, extract_code
from sgpu_decl.content.output_pieces import DamagedOutput
from sgpu_decl.content.packs import index_name, manifest_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sgpu_decl.agent.node.platform import PlatformTable
    from sgpu_decl.agent.node.stop_request import StopRequest

TREE = "environment/tree"

_PATIENCE = 60.0  # seconds that shared objects may take to become visible
_PAUSE = 2.0


class SharedObjects:
    """The folder of what launches share, by content.

    Args:
        own: whether nodes keep it on their own disks. There is nothing to wait for then, and what
            is damaged is deleted, so that it is sent again.
        patience: the seconds that a file may take to become visible elsewhere.
    """

    def __init__(self, folder: str, *, own: bool = False, patience: float = _PATIENCE) -> None:
        self.patience = 0.0 if own else patience
        self.packs = os.path.join(folder, "packs")
        self._folder = folder
        self._own = own

    def code(self, digest: str) -> str:
        """The archive of code."""
        return os.path.join(self._folder, "code", archive_name(digest))

    def way_out(self, *damaged: str) -> str:
        """What to do about files that are not what they should be, or what was done."""
        there = [path for path in dict.fromkeys(damaged) if os.path.lexists(path)]
        if not there:
            return "apply again, which uploads it"
        if not self._own:
            files = " and ".join(f"`{path}`" for path in there)
            return f"delete {files} and apply again, which uploads what is missing"
        for path in there:
            with suppress(OSError):
                os.unlink(path)
        return "this node deleted its copy: apply again, which sends another one"


def prepare(
    spec: Mapping[str, Any],
    run_dir: str,
    stopping: StopRequest,
    platform: PlatformTable,
    *,
    code: str | None,
    environment: str | None,
    objects: SharedObjects,
    back: str,
) -> tuple[str, str] | None:
    """Prepare a run's folder; if that fails, return the class of the failure and the reason.

    Args:
        code: the hex of the digest of its code, if it has any.
        environment: the hex of the digest of its manifest, if one is declared.
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
            problem = _copy_code(folder, platform.code, code, objects, stopping)
        else:
            problem = _extract_code(folder, code, objects, stopping)
        if problem is None and spec.get("resume"):
            problem = _bring_earlier(back, os.path.join(run_dir, BROUGHT))
        if problem is None and environment is not None:
            os.mkdir(os.path.join(run_dir, SITE))  # Python remembers missing folders
            secrets = {name: os.environ[name] for name in secret_names(spec) if name in os.environ}
            return hydrate(
                run_dir, environment, objects, stopping, without_secrets(os.environ, secrets)
            )
    except (OSError, shutil.Error) as error:
        return "staging_failed", f"the run cannot be written to the node's disk: {error}"
    return problem


def _bring_earlier(back: str, target: str) -> tuple[str, str] | None:
    """Copy the output that `resume` finds."""
    try:
        bring_earlier_output(back, target)
    except OSError as error:
        why = f"the output of an earlier attempt, which `resume` finds, cannot be copied: {error}"
        if isinstance(error, DamagedOutput):
            attempt = error.path.partition("/node_")[0]
            why += f"; delete `{attempt}` and apply again: ranks find what the attempt before left"
        return "staging_failed", why
    return None


def _copy_code(
    folder: str, variable: str, code: str, objects: SharedObjects, stopping: StopRequest
) -> tuple[str, str] | None:
    """Copy the code that the platform extracted, or extract it here if that is not as pinned."""
    source = os.environ.get(variable, "")
    if not os.path.isdir(source):
        return "staging_failed", f"the platform brought no code: {variable} is `{source}`"
    try:
        copy_code(source, folder, code)
    except BadCode as error:
        say(f"`{source}`, which {variable} names, is not the code of this run: {error}; "
            "this node extracts the archive itself")  # fmt: skip
        shutil.rmtree(folder)
        return _extract_code(folder, code, objects, stopping)
    return None


def _extract_code(
    folder: str, code: str, objects: SharedObjects, stopping: StopRequest
) -> tuple[str, str] | None:
    """Extract the code, as soon as all of its archive is visible."""
    import gzip
    import tarfile
    import zlib

    archive = objects.code(code)
    scratch = f"{folder}.partial"
    damaged = (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error, ValueError, OverflowError)
    deadline = time.monotonic() + objects.patience
    while True:
        try:
            extract_code(archive, scratch, code)
            os.rename(scratch, folder)
        except BadCode as error:
            problem, late = f"is not the code of this run: {error}", False
        except FileNotFoundError as error:
            if error.filename != archive:
                raise
            problem, late = "is missing", True
        except damaged as error:
            problem, late = f"is cut short or damaged: {error}", True
        else:
            return None
        shutil.rmtree(scratch, ignore_errors=True)
        if stopping.asked:
            return None
        if not late or time.monotonic() >= deadline:
            why = f"the archive of the code, `{archive}`, {problem}; {objects.way_out(archive)}"
            return "staging_failed", why
        stopping.wait(_PAUSE)


def hydrate(
    run_dir: str,
    environment: str,
    objects: SharedObjects,
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
    argv += ["--manifest", os.path.join(objects.packs, manifest_name(environment))]
    argv += ["--digest", f"sha256:{environment}", "--packs", objects.packs]
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
        if seconds >= objects.patience or kind not in ("packs", "system", "manifest"):
            if kind in ("packs", "manifest"):
                # Whoever uploads an environment takes one that has its index for whole.
                index = os.path.join(objects.packs, index_name(environment))
                why += "; " + objects.way_out(index, *answer.get("damaged", ()))
            return "staging_failed", f"the environment cannot be made: {why}"
        stopping.wait(_PAUSE)


def _last(output: bytes) -> dict[str, Any]:
    """Return the last line of a program of ours."""
    try:
        answer = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}
