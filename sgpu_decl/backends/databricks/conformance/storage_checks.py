"""Files in the staging folder: written in every way that there is, read, listed, overwritten and
deleted, in a folder of its own that is removed again."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.workspace_files import VOLUMES, VolumePlace, WorkspacePlace
from sgpu_decl.backends.databricks.conformance.comparison import (
    Refusal,
    attempt,
    compared,
    lacks_api,
    request,
)
from sgpu_decl.errors import BackendError
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn
from sgpu_decl.places.file_place import FilePlace

_MIB = 1 << 20
_LARGE = 11 * _MIB  # more than workspace files are read up to
_OLD = 3600  # seconds after which no check still uses its folder
_OURS = re.compile(r"doctor-(\d+)-[0-9a-f]{8}")
_VOLUME_FOLDERS = "/api/2.0/fs/directories"
_NUMBER = re.compile(r"\((\d+) bytes\)")
_NOT_WRITABLE = "set `backend.staging` to a folder where you may write"

Put = Callable[[str, bytes | Path], None]


def workspace_findings(connection: Connection, root: str) -> Iterator[Finding]:
    """Below `/Workspace`.

    Raises:
        BackendError: the workspace cannot be asked.
    """
    files = WorkspacePlace(connection)
    yield from _in_folder(connection, files, root, lambda folder: _workspace(connection, folder))


def volume_findings(connection: Connection, root: str) -> Iterator[Finding]:
    """In a volume. Raises BackendError as `workspace_findings`."""
    files = VolumePlace(connection)
    yield from _in_folder(connection, files, root, lambda folder: _volume(connection, folder))


def _in_folder(
    connection: Connection,
    files: FilePlace,
    root: str,
    check: Callable[[str], Iterator[Finding]],
) -> Iterator[Finding]:
    """In a new folder, which goes with all that is in it, and with the staging folder where that
    was not there before. What a check that was killed left there goes too."""
    is_new = _absent(connection, root)
    now = int(connection.now())
    folder = f"{root}/doctor-{now}-{uuid4().hex[:8]}"
    try:
        refusal = attempt(connection, f"making `{folder}`", lambda: files.make_folder(folder))
        if isinstance(refusal, Refusal):
            yield _failed(f"`{root}` takes no folder: {refusal.message}")
            return
        yield from check(folder)
    finally:
        with suppress(BackendError):  # it was not made, or the workspace has gone
            files.delete(folder)
        if is_new:
            with suppress(BackendError):  # somebody else has put something there
                _delete_empty(connection, root)
    for name in (entry.name for entry in files.list(root)):
        made_at = _OURS.fullmatch(name)
        if folder == f"{root}/{name}":
            yield _failed(f"`{folder}` could not be deleted")
        elif made_at is not None and int(made_at[1]) < now - _OLD:
            with suppress(BackendError):
                files.delete(f"{root}/{name}")


def _absent(connection: Connection, path: str) -> bool:
    if path.startswith(VOLUMES):
        answer = request(connection, "HEAD", f"{_VOLUME_FOLDERS}{quote(path)}")
    else:
        answer = request(connection, "GET", "/api/2.0/workspace/get-status", query={"path": path})
    return isinstance(answer, Refusal)


def _delete_empty(connection: Connection, path: str) -> None:
    if path.startswith(VOLUMES):
        request(connection, "DELETE", f"{_VOLUME_FOLDERS}{quote(path)}")
    else:
        request(connection, "POST", "/api/2.0/workspace/delete", body={"path": path})


def _workspace(connection: Connection, folder: str) -> Iterator[Finding]:
    files = WorkspacePlace(connection)
    small, large = os.urandom(_MIB), os.urandom(_MIB) * (_LARGE // _MIB)

    def put(way: Put, name: str, content: bytes) -> Refusal | None:
        path = f"{folder}/{name}"
        return attempt(connection, f"uploading `{path}`", lambda: way(path, content))

    form = put(files.put_form, "form", small)
    by_form = not lacks_api(form)
    yield _way("form-upload", form, "`workspace/import` as a form")
    raw = put(files.put_raw, "raw", small)
    by_raw = not lacks_api(raw)
    yield _way("raw-upload", raw, "`import-file`")
    best = next(
        (way for way, there in ((files.put_form, form), (files.put_raw, raw)) if there is None),
        None,
    )
    if best is None:
        refusal = form if by_form else raw
        words = refusal.message if refusal else "no way to upload"
        yield _failed(f"`{folder.rpartition('/')[0]}` takes no files: {words}")
        return
    name = "form" if best == files.put_form else "raw"
    if by_form and form is None:
        yield _empty("empty-form-upload", put(files.put_form, "empty-form", b""), "as a form")
        refusal = put(files.put_form, "large-form", large)
        yield _limit(refusal)
    if by_raw and raw is None:
        yield _empty("empty-raw-upload", put(files.put_raw, "empty-raw", b""), "to `import-file`")
        refusal = put(files.put_raw, "large-raw", large)
        if refusal is not None:
            yield _failed(f"`import-file` takes no file of 11 MiB: {refusal.message}")
    yield from _read_back(connection, files, folder, name, small)
    yield from _limits(connection, files, folder, small_name=name)
    yield from _overwritten(connection, files, best, f"{folder}/{name}")
    entries = {entry.name: entry for entry in files.list(folder)}
    yield _listing(name in entries, len(entries))
    if name in entries:
        size = entries[name].size > 0
        says = "says" if size else "does not say"
        yield compared("size-listed", size, f"the workspace {says} how many bytes files have")
    yield _deleted(connection, files, f"{folder}/{name}")


def _way(id_: str, refusal: Refusal | None, what: str) -> Finding:
    if refusal is not None and not lacks_api(refusal):
        return _failed(f"{what} takes no file of 1 MiB: {refusal.message}")
    there = refusal is None
    return compared(id_, there, f"{what} {'takes files' if there else 'is not there'}")


def _empty(id_: str, refusal: Refusal | None, way: str) -> Finding:
    accepted = refusal is None
    return compared(
        id_, accepted, f"an empty file can{'' if accepted else 'not'} be uploaded {way}"
    )


def _limit(refusal: Refusal | None) -> Finding:
    if refusal is None:
        return ok("form-limit", "11 MiB were taken as a form; more was not tried")
    number = _last_number(refusal)
    if number is None:
        return _failed(f"`workspace/import` takes no form with 11 MiB: {refusal.message}")
    return compared("form-limit", number, f"forms have at most {number:,} bytes")


def _read_back(
    connection: Connection, files: WorkspacePlace | VolumePlace, folder: str, name: str,
    content: bytes,
) -> Iterator[Finding]:  # fmt: skip
    path = f"{folder}/{name}"
    answer = attempt(connection, f"reading `{path}`", lambda: _contents(files, path))
    if isinstance(answer, Refusal):
        yield _failed(f"a file cannot be read back: {answer.message}")
    elif answer != content:
        yield _failed("a file that was read back has other bytes")
    else:
        text = "1 MiB was written and read back"
        yield ok("staging", text)


def _limits(
    connection: Connection, files: WorkspacePlace, folder: str, *, small_name: str
) -> Iterator[Finding]:
    """How large a file may be to be read, and how a larger one is refused."""
    there = {entry.name for entry in files.list(folder)}
    large = next((name for name in ("large-form", "large-raw") if name in there), None)
    if large is None:
        return
    path = f"{folder}/{large}"
    answer = attempt(connection, f"reading `{path}`", lambda: _contents(files, path))
    if not isinstance(answer, Refusal):
        yield compared("read-limit", len(answer), f"a file of {len(answer):,} bytes can be read")
        return
    number = _last_number(answer)
    if number is None:
        small = f"{folder}/{small_name}"
        read = attempt(connection, f"reading `{small}`", lambda: _contents(files, small))
        if isinstance(read, Refusal):
            return  # nothing can be read, which `_read_back` has said
        number = len(read)
    yield compared("read-limit", number, f"files are read up to {number:,} bytes")
    yield compared("read-refusal", answer.code, "the error code for a file that is too large")


def _volume(connection: Connection, folder: str) -> Iterator[Finding]:
    files = VolumePlace(connection)
    small = os.urandom(_MIB)
    for name, content in (("empty", b""), ("small", small), ("large", small * (_LARGE // _MIB))):
        path = f"{folder}/{name}"

        def put(path: str = path, content: bytes = content) -> None:
            files.put(path, content)

        refusal = attempt(connection, f"uploading `{path}`", put)
        if refusal is not None:
            text = f"the volume takes no file of {len(content):,} bytes: {refusal.message}"
            yield _failed(text)
            return
    yield from _read_back(connection, files, folder, "small", small)
    yield from _overwritten(connection, files, files.put, f"{folder}/small")
    entries = files.list(folder)
    yield _listing(any(entry.name == "small" for entry in entries), len(entries))
    yield _deleted(connection, files, f"{folder}/small")


def _overwritten(
    connection: Connection, files: WorkspacePlace | VolumePlace, put: Put, path: str
) -> Iterator[Finding]:
    refusal = attempt(connection, f"overwriting `{path}`", lambda: put(path, b"new"))
    if refusal is not None:
        yield _failed(f"a file cannot be overwritten: {refusal.message}")
        return
    answer = attempt(connection, f"reading `{path}`", lambda: _contents(files, path))
    if not isinstance(answer, Refusal) and answer != b"new":
        yield _failed("a file that was overwritten still has its old content")


def _listing(there: bool, number: int) -> Finding:  # noqa: FBT001  what was seen
    if there:
        return ok("listing", f"the folder lists {number} files")
    return warn(
        "listing", "a file that was just written is not listed yet", "results may come late"
    )


def _deleted(connection: Connection, files: FilePlace, path: str) -> Finding:
    refusal = attempt(connection, f"deleting `{path}`", lambda: files.delete(path))
    if refusal is not None:
        return _failed(f"files cannot be deleted: {refusal.message}")
    if files.stat(path) is not None:
        return _failed("a file that was deleted is still there")
    return ok("deleting", "files are overwritten and deleted")


def _contents(files: WorkspacePlace | VolumePlace, path: str) -> bytes:
    with files.contents(path) as stream:
        return bytes(stream.read())


def _last_number(refusal: Refusal) -> int | None:
    numbers = _NUMBER.findall(refusal.message)
    return int(numbers[-1]) if numbers else None


def _failed(text: str) -> Finding:
    return fail("staging", text, _NOT_WRITABLE)
