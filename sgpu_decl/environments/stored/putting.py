"""From files of an environment to objects of the store."""

import contextlib
import os
import uuid
from collections.abc import Collection, Sequence

from sgpu_decl.agent.environment.manifest import File, Kind
from sgpu_decl.environments.captured.capturing import Captured
from sgpu_decl.environments.captured.reading import Destination, read
from sgpu_decl.environments.captured.worker import FIXED, How, Job
from sgpu_decl.environments.progress import Progress
from sgpu_decl.errors import SgpuError

__all__ = ["copy_missing", "link_missing"]


def copy_missing(
    captured: Captured, missing: Collection[File], into: Destination, progress: Progress
) -> frozenset[str]:
    """Copy files into the store, each verified as it is read.

    Returns:
        The keys of bytecode that is not what it was. Nobody depends on it.

    Raises:
        SgpuError: a file is not what it was, or the store takes nothing.
    """
    compiled = {file.path for file in captured.manifest.bytecode}
    jobs: list[tuple[Job, int]] = []
    keys: dict[Job, str] = {}
    for file in missing:
        if file.path in captured.written:
            _write(captured.written[file.path], file, into)
        else:
            job = _job(captured, file, compiled=file.path in compiled)
            keys[job] = file.key
            jobs.append((job, file.size))
    total = sum(size for _, size in jobs)
    stale = set()
    moved = []
    for job, reply in read(jobs, into, lambda done: progress.advance("copying", done, total)):
        if reply.problem and job.how == How.BYTECODE:
            stale.add(keys[job])
        elif reply.problem:
            moved.append(job.path)
    if moved:
        more = f", and {len(moved) - 1:,} more" if moved[1:] else ""
        raise SgpuError(
            f"`{min(moved)}` of the environment changed since it was looked at{more}",
            hint="wait until nothing is being installed, and plan again",
            code="environment_moving",
        )
    return frozenset(stale)


def link_missing(captured: Captured, missing: Sequence[File], into: Destination) -> list[File]:
    """Let files become objects themselves where they are taken as they are.

    Returns:
        Those that could not, and have to be copied.
    """
    left = []
    compiled = {file.path for file in captured.manifest.bytecode}
    for file in missing:
        source = captured.sources.get(file.path)
        if source is None or file.path in compiled or _how(file) != How.PLAIN:
            left.append(file)
            continue
        try:
            os.chmod(source, _mode(file))
            os.utime(source, ns=(FIXED, FIXED))
            with contextlib.suppress(FileExistsError):
                os.link(source, into.objects / file.key[:2] / file.key, follow_symlinks=False)
        except OSError:  # another file system, or one without links
            left.append(file)
    return left


def _job(captured: Captured, file: File, *, compiled: bool) -> Job:
    path = captured.sources[file.path]
    if not compiled:
        return Job(path, _how(file), _mode(file), file.content)
    folder, _, name = file.path.rpartition("/__pycache__/")
    source = captured.sources[f"{folder}/{name.partition('.')[0]}.py"]
    return Job(path, How.BYTECODE, _mode(file), file.content, source, captured.magic)


def _how(file: File) -> str:
    if file.kind == Kind.SCRIPT:
        return How.SCRIPT
    return How.RECORD if file.path.endswith(".dist-info/RECORD") else How.PLAIN


def _mode(file: File) -> int:
    return 0o555 if file.kind == Kind.EXECUTABLE else 0o444


def _write(data: bytes, file: File, into: Destination) -> None:
    temporary = into.incoming / uuid.uuid4().hex
    with open(temporary, "xb") as copy:
        copy.write(data)
        os.fchmod(copy.fileno(), _mode(file))
    os.utime(temporary, ns=(FIXED, FIXED))
    os.rename(temporary, into.objects / file.key[:2] / file.key)
