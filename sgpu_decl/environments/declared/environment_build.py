"""Builds the environment of a lock: uv installs it into a virtual environment beside the store's
objects, and its files become objects. The manifest is written last."""

import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.content.manifest import Manifest
from sgpu_decl.content.store.content_store import store_error
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.environments.captured.capture import capture
from sgpu_decl.environments.declared.build_lock import build_folder, builds_in, remove_leftovers
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.declared.uv import UvResult, find_uv, run_uv
from sgpu_decl.environments.declared.uv_errors import UvReport, read_report, read_warnings
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.environments.interpreters import LocalPython
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Progress

_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_DONE = re.compile(r"\s*(?:Downloaded|Built) ")
_ALL = re.compile(r"(?:Prepared|Installed) \d+ package")


class BuildFailed(SgpuError):
    """uv could not install a lock."""

    def __init__(self, report: UvReport) -> None:
        super().__init__(
            f"the environment cannot be built: {report.message}",
            hint=report.hint,
            code=report.code,
        )
        self.retryable = report.retryable


class BuildResult(NamedTuple):
    """`warnings` are uv's warnings about packages that conflict."""

    manifest: Manifest
    warnings: tuple[Diagnostic, ...] = ()


def find_build(lock: Lock, store: EnvironmentStore) -> Manifest | None:
    """The manifest that was built from a lock, if the store has all of its objects."""
    digest = store.build_of(lock.digest)
    manifest = store.manifest(digest) if digest is not None else None
    return manifest if manifest is not None and not store.missing(manifest) else None


def build(
    lock: Lock,
    python: LocalPython,
    store: EnvironmentStore,
    progress: Progress,
    *,
    folder: Path,
    environ: Mapping[str, str],
) -> BuildResult:
    """Build the environment of a lock, unless the store has it. A second builder waits.

    Args:
        python: an interpreter like the one that the lock was resolved for.
        folder: the base of relative paths in the lock; uv's settings there count.

    Raises:
        SgpuError: the interpreter does not match, uv failed, the disk is full, or a variable is
            missing. The store is unchanged then.
    """
    _check(lock, python)
    manifest = find_build(lock, store)
    if manifest is not None:
        return BuildResult(manifest)
    uv, environ = find_uv(environ), _with_indexes(environ, lock.indexes)
    home = builds_in(store.objects.parent)
    place = home / lock.digest.removeprefix("sha256:")[:16]
    try:
        remove_leftovers(home)
        with build_folder(place, progress) as lock_handle:
            manifest = find_build(lock, store)  # by another process meanwhile
            if manifest is not None:
                return BuildResult(manifest)
            # A new folder: a uv that survived an interrupt may still write into an older one.
            scratch = place / uuid.uuid4().hex[:8]
            scratch.mkdir()
            run = partial(run_uv, uv, folder=folder, environ=environ, pass_fds=(lock_handle,))
            warnings = _install(lock, scratch, python, run, folder, progress)
            return BuildResult(_take(lock, scratch, store, progress), warnings)
    except OSError as error:
        raise store_error(home, error) from error


def _install(
    lock: Lock,
    scratch: Path,
    python: LocalPython,
    run: Callable[..., UvResult],
    folder: Path,
    progress: Progress,
) -> tuple[Diagnostic, ...]:
    """Install a lock into `scratch/venv`, with bytecode. Files are copied: links would share those
    of uv's cache."""
    total = len(lock.entries)
    done = 0

    def on_line(line: str) -> None:
        nonlocal done
        done = total if _ALL.match(line) else min(total, done + bool(_DONE.match(line)))
        progress.advance("building", done, total)

    def call(*arguments: str) -> str:
        answer = run(arguments, on_line=on_line)
        if answer.code != 0:
            raise BuildFailed(read_report(answer.words, python=python.python.minor))
        return answer.words

    venv = os.fspath(scratch / "venv")
    call("venv", "--no-project", "--python", python.program, venv)
    if not lock.entries:
        return ()
    lock_file = scratch / "pylock.toml"
    lock_file.write_text(lock.to_toml(folder), encoding="utf-8")
    arguments = ["pip", "sync", "--strict", "--link-mode=copy", "--compile-bytecode"]
    arguments += ["--require-hashes"] if lock.hashed else []
    arguments += ["--python", _python_of(scratch), os.fspath(lock_file)]
    words = call(*arguments)
    return tuple(
        Diagnostic(
            code="packages_misfit",
            severity=Severity.WARNING,
            summary=text[:1].lower() + text[1:],
            hint="the lock is installed as it is; resolve it again if an import fails",
        )
        for text in read_warnings(words)
    )


def _take(lock: Lock, scratch: Path, store: EnvironmentStore, progress: Progress) -> Manifest:
    cache = scratch / "cache"  # entries of this folder are of no use later
    captured, findings = capture(_python_of(scratch), progress=progress, cache=cache)
    if captured is None or has_errors(findings):
        raise SgpuError(
            "the built environment cannot be stored",
            hint="the findings say which files are wrong; a package may have to be left out",
            code="environment_unusable",
            diagnostics=findings,
        )
    store.put(captured, progress, by_link=True)
    store.record_build(lock.digest, captured.manifest.digest, progress)
    return captured.manifest


def _python_of(scratch: Path) -> str:
    return os.fspath(scratch / "venv" / "bin" / "python")


def _check(lock: Lock, python: LocalPython) -> None:
    required, here = lock.python, python.python
    if required[0] == here[0] and required.minor == here.minor and required[2:4] == here[2:4]:
        return
    raise SgpuError(
        f"the environment was resolved for Python {required.minor} ({required.abi}), and "
        f"`{python.executable}` is {here.minor} ({here.abi})",
        hint="plan again on this machine, or name such an interpreter as `env.python`",
        code="python_mismatch",
    )


def _with_indexes(environ: Mapping[str, str], indexes: Sequence[str]) -> dict[str, str]:
    """Give uv the URLs of indexes by a variable: other users can see arguments."""
    missing = [item for text in indexes for item in _VARIABLE.findall(text) if item not in environ]
    if missing:
        raise SgpuError(
            f"the variable `{missing[0]}` is not set, and an index of the environment needs it",
            hint=f"set `{missing[0]}`",
            code="variable_missing",
        )
    urls = [_VARIABLE.sub(lambda item: environ[item[1]], text) for text in indexes]
    more = [*environ.get("UV_EXTRA_INDEX_URL", "").split(), *urls]
    return {**environ, "UV_EXTRA_INDEX_URL": " ".join(more)} if urls else dict(environ)
