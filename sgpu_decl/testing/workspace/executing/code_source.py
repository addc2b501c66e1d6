"""Extracts the archive of a task's code on a node."""

import tarfile
from pathlib import Path, PurePosixPath

from sgpu_decl.testing.workspace.executing.sidecars import Unprepared

__all__ = ["extract"]


def extract(archive: Path, folder: Path) -> str:
    """Extract into a new `folder`; return the name of the one folder at the archive's top.

    Raises:
        Unprepared: there is no such archive, or it has not exactly one folder at its top.
    """
    try:
        with tarfile.open(archive) as tar:
            tops = {PurePosixPath(member.name).parts[:1] for member in tar} - {()}
            if len(tops) != 1:
                raise Unprepared("could not determine top level component from tarball")
            folder.mkdir(parents=True)
            if hasattr(tarfile, "data_filter"):  # which Python 3.11.2, that of Debian, has not
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(folder)  # noqa: S202  the user's own code
    except FileNotFoundError:
        raise Unprepared(f"code source not found: {archive.name}") from None
    except tarfile.TarError as error:
        raise Unprepared(f"failed to extract code source {archive.name}: {error}") from None
    (top,) = tops.pop()
    if not (folder / top).is_dir():
        raise Unprepared("could not determine top level component from tarball")
    return top
