"""The code of a run on its node: a copy that is the code which the plan pinned, or none.

The digest of code is that of its list of files. So whoever has the files can tell whether they are
that code, whatever packed or copied them.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import IO

CODE_TOP = "code"
"""The one folder at the top of an archive of code: Databricks refuses any other number."""

_CHUNK = 1 << 20
_DEEPEST = 400  # folders; a tree that is deeper than Python's stack cannot be deleted


class BadCode(Exception):
    """It is not the code that it should be; the text says what is wrong with it. `content` is the
    file with another content than its name says, where that is known."""

    content: str | None = None


def code_digest(entries: Iterable[Sequence[object]]) -> str:
    """The SHA-256 of code, in hex.

    Args:
        entries: of each file, by path: the path, the SHA-256 of its content in hex, its bytes,
            whether it is executable, and None. Of a link: the path, an empty text, 0, False, and
            what it leads to.
    """
    text = json.dumps(list(entries), separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def archive_name(digest: str) -> str:
    """The name of the archive of code, by its digest or the hex of that."""
    return digest.removeprefix("sha256:") + ".tar.gz"


def extract_code(archive: str, folder: str, digest: str) -> None:
    """Extract an archive of code to a new folder.

    Raises:
        BadCode: it holds other code, or something that would lie outside of the folder.
        OSError, EOFError, tarfile.TarError, zlib.error: it is missing, cut short or damaged.
    """
    import tarfile

    tree = _Tree(folder)
    with tarfile.open(archive, "r:gz", encoding="utf-8") as packed:
        for member in packed:
            top, _, path = member.name.partition("/")
            if top != CODE_TOP:
                raise BadCode(f"it holds `{member.name}`, which is outside of its folder")
            if not path:
                continue
            if member.isdir():
                tree.folder(path)
            elif member.issym():
                tree.link(path, member.linkname)
            elif member.isreg():
                content = packed.extractfile(member)
                assert content is not None  # noqa: S101  only links and folders have none
                tree.file(path, content, executable=bool(member.mode & stat.S_IXUSR))
            else:
                raise BadCode(f"it holds `{path}`, which is no file, folder or link")
    tree.check(digest)


def copy_code(source: str, folder: str, digest: str) -> None:
    """Copy code to a new folder.

    Raises:
        BadCode: the source holds other code.
        OSError: it cannot be read, or the copy cannot be written.
    """
    tree = _Tree(folder)
    for place, folders, files in os.walk(source):
        for name in (*folders, *files):
            found = os.path.join(place, name)
            path = os.path.relpath(found, source)
            mode = os.lstat(found).st_mode
            if stat.S_ISLNK(mode):
                tree.link(path, os.readlink(found))
            elif stat.S_ISDIR(mode):
                tree.folder(path)
            elif stat.S_ISREG(mode):
                with open(found, "rb") as content:
                    tree.file(path, content, executable=bool(mode & stat.S_IXUSR))
    tree.check(digest)


def assemble_code(manifest: bytes, contents: str, folder: str) -> None:
    """Make a copy of code in a new folder.

    Args:
        manifest: the list of its files, whose SHA-256 is the digest of the code.
        contents: a folder with the content of each file: `ab/cdef…`, by its SHA-256.

    Raises:
        BadCode: the manifest is none, or the folder holds another content.
        OSError: a content is missing, or the copy cannot be written.
    """
    tree = _Tree(folder)
    for path, digest, _, executable, target in listed_files(manifest):
        if target is not None:
            tree.link(path, target)
            continue
        source = content_path(contents, digest)
        with open(source, "rb") as content:
            found = tree.file(path, content, executable=executable)
        if found != digest:
            error = BadCode(f"the content of `{path}` is damaged")
            error.content = source
            raise error
    tree.check(hashlib.sha256(manifest).hexdigest())


def listed_files(manifest: bytes) -> list[tuple[str, str, int, bool, str | None]]:
    """The files that a list of code names, see `code_digest`. Raises BadCode."""
    try:
        entries = json.loads(manifest.decode("utf-8", "surrogatepass"))
        return [
            (str(path), str(digest), int(size), bool(executable), target and str(target))
            for path, digest, size, executable, target in entries
        ]
    except (ValueError, TypeError, RecursionError) as error:
        raise BadCode(f"this is no list of files: {error}") from None


def content_path(contents: str, digest: str) -> str:
    """Where the content with a SHA-256 lies in a folder of them. Raises BadCode: it is none."""
    if len(digest) != 64 or not digest.isalnum():
        raise BadCode(f"`{digest}` is no SHA-256")
    return os.path.join(contents, digest[:2], digest[2:])


class _Tree:
    """A new folder with all that is put into it. Nothing is written through a link."""

    def __init__(self, top: str) -> None:
        os.mkdir(top, 0o700)
        self._top = top
        self._folders = {""}
        self._entries: list[Sequence[object]] = []

    def folder(self, path: str) -> None:
        """Make a folder, with those above it, unless it is there."""
        if path in self._folders:
            return
        if path.count("/") >= _DEEPEST:
            raise BadCode(f"it holds folders below {_DEEPEST} others")
        made = ""
        for name in path.split("/"):
            if name in ("", ".", ".."):
                raise BadCode(f"it holds `{path}`, which is outside of its folder")
            made = f"{made}/{name}" if made else name
            if made in self._folders:
                continue
            try:
                os.mkdir(f"{self._top}/{made}", 0o700)
            except FileExistsError:
                raise _twice(made) from None
            self._folders.add(made)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link."""
        try:
            os.symlink(target, self._place(path))
        except FileExistsError:
            raise _twice(path) from None
        self._entries.append((path, "", 0, False, target))

    def file(self, path: str, content: IO[bytes], *, executable: bool) -> str:
        """Write a file; return the SHA-256 of its content."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        mode = 0o700 if executable else 0o600
        try:
            descriptor = os.open(self._place(path), flags, mode)
        except FileExistsError:
            raise _twice(path) from None
        hashed = hashlib.sha256()
        size = 0
        with open(descriptor, "wb", buffering=0) as file:
            while chunk := content.read(_CHUNK):
                hashed.update(chunk)
                file.write(chunk)
                size += len(chunk)
        self._entries.append((path, hashed.hexdigest(), size, executable, None))
        return hashed.hexdigest()

    def check(self, digest: str) -> None:
        """Compare all with the digest. Raises BadCode, and OSError where it cannot be deleted."""
        found = code_digest(sorted(self._entries, key=lambda entry: str(entry[0])))
        if found != digest:
            raise BadCode(f"it holds the code {found[:12]} and not {digest[:12]}")

    def _place(self, path: str) -> str:
        """Where a file or a link of that path comes to."""
        above, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise BadCode(f"it holds `{path}`, which is outside of its folder")
        self.folder(above)
        return f"{self._top}/{path}"


def _twice(path: str) -> BadCode:
    return BadCode(f"it holds `{path}` twice, or something below a file")
