"""Copies or links files of an environment into the store."""

import contextlib
import os
import uuid
from collections.abc import Collection, Sequence

from sgpu_decl.content.manifest import File, FileKind
from sgpu_decl.environments.captured.capture import Captured
from sgpu_decl.environments.captured.file_readers import Destination, read
from sgpu_decl.environments.captured.file_worker import FIXED, Form, ReadJob
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Progress


def copy_missing(
    captured: Captured, missing: Collection[File], into: Destination, progress: Progress
) -> frozenset[str]:
    """Copy files into the store, each verified as it is read.

    Returns:
        The keys of bytecode that changed. Nothing depends on it.

    Raises:
        SgpuError: a file changed, or the store cannot be written.
    """
    bytecode = {file.path for file in captured.manifest.bytecode}
    jobs: list[tuple[ReadJob, int]] = []
    keys: dict[ReadJob, str] = {}
    for file in missing:
        if file.path in captured.new_contents:
            _write(captured.new_contents[file.path], file, into)
        else:
            job = _job(captured, file, compiled=file.path in bytecode)
            keys[job] = file.key
            jobs.append((job, file.size))
    total = sum(size for _, size in jobs)
    stale = set()
    changed_paths = []
    for job, reply in read(jobs, into, lambda done: progress.advance("copying", done, total)):
        if reply.problem and job.how == Form.BYTECODE:
            stale.add(keys[job])
        elif reply.problem:
            changed_paths.append(job.path)
    if changed_paths:
        more = f", and {len(changed_paths) - 1:,} more" if changed_paths[1:] else ""
        raise SgpuError(
            f"`{min(changed_paths)}` of the environment changed since it was captured{more}",
            hint="wait until nothing is being installed, and plan again",
            code="environment_moving",
        )
    return frozenset(stale)


def link_missing(captured: Captured, missing: Sequence[File], into: Destination) -> list[File]:
    """Link files into the store, where their bytes are stored unchanged.

    Returns:
        The files that have to be copied.
    """
    remaining = []
    for file in missing:
        source = captured.sources.get(file.path)
        if source is None or _how(file) != Form.PLAIN:
            remaining.append(file)
            continue
        try:
            os.chmod(source, _mode(file))
            os.utime(source, ns=(FIXED, FIXED))
            with contextlib.suppress(FileExistsError):
                os.link(source, into.objects / file.key[:2] / file.key, follow_symlinks=False)
        except OSError:  # another file system, or one without links
            remaining.append(file)
    return remaining


def _job(captured: Captured, file: File, *, compiled: bool) -> ReadJob:
    if not compiled:
        return ReadJob(captured.sources[file.path], _how(file), _mode(file), file.content)
    folder, _, name = file.path.rpartition("/__pycache__/")
    source = captured.sources[f"{folder}/{name.partition('.')[0]}.py"]
    path = f"{os.path.dirname(source)}/__pycache__/{name}"
    return ReadJob(path, Form.BYTECODE, _mode(file), file.content, source, captured.magic)


def _how(file: File) -> str:
    if file.kind == FileKind.SCRIPT:
        return Form.SCRIPT
    return Form.RECORD if file.path.endswith(".dist-info/RECORD") else Form.PLAIN


def _mode(file: File) -> int:
    return 0o555 if file.kind == FileKind.EXECUTABLE else 0o444


def _write(data: bytes, file: File, into: Destination) -> None:
    temporary = into.incoming / uuid.uuid4().hex
    with open(temporary, "xb") as copy:
        copy.write(data)
        os.fchmod(copy.fileno(), _mode(file))
    os.utime(temporary, ns=(FIXED, FIXED))
    os.rename(temporary, into.objects / file.key[:2] / file.key)
