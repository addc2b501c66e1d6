"""The code of a run as the platform wants it: a gzipped tar with one folder at its top."""

import gzip
import tarfile
from functools import partial
from pathlib import Path

from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.content.code_tree import CODE_TOP
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.places.file_place import CountingReader
from sgpu_decl.scratch_folders import scratch_folder

_LEVEL = 6


def write_archive(store: CodeStore, digest: str, file: Path, progress: Progress) -> None:
    """Write the code with that digest to a file. The same code gives the same bytes of
    tar, whoever packs it and when.

    Args:
        progress: told `staging` and then `archiving`, in bytes of content.

    Raises:
        SgpuError: the code is not in the store, or a file of it is damaged.
    """
    snapshot = store.require(digest)
    with (
        scratch_folder("code") as scratch,
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.addfile(_member(CODE_TOP, tarfile.DIRTYPE, 0o755))
        tree = scratch / CODE_TOP
        store.materialize(snapshot.digest, tree, progress)
        folders = {""}
        total, before = sum(entry.size for entry in snapshot.entries), 0
        for entry in snapshot.entries:
            for folder in _folders(entry.path):
                if folder not in folders:
                    folders.add(folder)
                    archive.addfile(_member(f"{CODE_TOP}/{folder}", tarfile.DIRTYPE, 0o755))
            name = f"{CODE_TOP}/{entry.path}"
            if entry.target is not None:
                link = _member(name, tarfile.SYMTYPE, 0o777)
                link.linkname = entry.target
                archive.addfile(link)
                continue
            member = _member(name, tarfile.REGTYPE, 0o755 if entry.executable else 0o644)
            member.size = entry.size
            advance = partial(_tell, progress, before, total)
            with CountingReader(tree / entry.path, advance) as content:
                archive.addfile(member, content)
            before += entry.size


def _tell(progress: Progress, before: int, total: int, read: int) -> None:
    progress.advance("archiving", before + read, total)


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, mode
    return member


def _folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]
