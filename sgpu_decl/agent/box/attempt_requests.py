"""Attempts on a box: staged, started, looked at, read and freed, by their folders.

A request names the folder of an attempt, and the token of its launch. All requests may come twice,
from two connections at once, or after their sender has lost its answer: a folder gets its name when
it is whole, and of several starters one goes on (`supervision.guardian`).
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import shutil
import time
from contextlib import suppress

from sgpu_decl.agent.attempt import attempt_status
from sgpu_decl.agent.attempt.attempt_files import OUTCOME, SPEC, read_json
from sgpu_decl.agent.attempt.host_record import read_record
from sgpu_decl.agent.attempt.previous_output import holds_files
from sgpu_decl.agent.attempt.staged_folder import (
    active,
    collect_left,
    delete_drafts,
    discard,
    give_up,
    holds_launch,
    launched,
    new_draft,
    size_of,
)
from sgpu_decl.agent.box.box_files import entries
from sgpu_decl.agent.box.code_requests import collect_code, copy_code
from sgpu_decl.agent.box.environment_requests import collect_environments
from sgpu_decl.agent.box.wire import BoxRefusal, RequestContent
from sgpu_decl.agent.launching.agent_launch import AGENT, launch
from sgpu_decl.agent.ranks.rank_stacks import rank_stacks
from sgpu_decl.agent.supervision.forced_stop import LocalForcedStop
from sgpu_decl.agent.supervision.host_node import MEETING
from sgpu_decl.agent.system.host_locks import host_lock_home
from sgpu_decl.agent.system.safe_files import regular_opener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Answer = tuple[dict[str, Any], bytes]

_PIECE = 4 << 20  # bytes of one answer
_LEFT_AFTER = 86_400.0  # seconds
_UNUSED = 14 * 86_400.0  # seconds
_TREE = re.compile(r"/environments/([0-9a-f]{64})/bin/")
_stops: dict[str, LocalForcedStop] = {}


def stage(root: str, message: dict[str, Any], content: RequestContent) -> Answer:
    """Make the `folder` of an attempt: `files` has the name and the size of each that follows,
    `spec.json` last; `code` is the digest of its code, in hex; `folders` are made too."""
    folder, token = attempt_folder(root, message), str(message["token"])
    if holds_launch(folder, token):
        return {}, b""
    if read_record(folder) is not None:
        raise BoxRefusal("active_run", "it still runs, though its folder was deleted")
    draft = new_draft(folder)
    try:
        os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
        delete_drafts(folder)
        if not give_up(folder):
            raise BoxRefusal("folder_taken", f"`{folder}` holds another launch of this run")
        os.mkdir(draft, 0o700)
        for name in message["folders"]:
            os.mkdir(os.path.join(draft, name), 0o700)
        if message["code"] is not None:
            copy_code(root, message["code"], os.path.join(draft, "code"))
        # The tracker imports from what lies beside its archive under this name.
        os.symlink(os.path.dirname(AGENT), os.path.join(draft, "agent.zip"))
        for name, size in message["files"]:
            with open(os.path.join(draft, os.path.basename(name)), "wb") as file:
                while size:
                    size -= file.write(content.read(min(size, 1 << 20)))
        os.rename(draft, folder)
    except (OSError, BoxRefusal):
        if not holds_launch(folder, token):
            raise  # else another one was faster
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return {}, b""


def staged(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """`staged`: whether the folder is that of this launch."""
    return {"staged": holds_launch(attempt_folder(root, message), str(message["token"]))}, b""


def start(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Start what was staged, with the values of its `secrets`, unless it was started before. Of
    several hosts, `node` says which one it is; the first answers with what the others need of it,
    as `meeting`, unless the attempt is over."""
    folder, token, node = attempt_folder(root, message), str(message["token"]), message.get("node")
    if not (launched(folder) and holds_launch(folder, token)):
        try:
            launch(folder, token=token, secrets=message["secrets"], node=node)
        except OSError as error:
            if launched(folder) and holds_launch(folder, token):
                pass  # by another one, meanwhile
            elif not holds_launch(folder, token) or give_up(folder):
                raise _scarce(root, host_lock_home()) or error from error
    over = os.path.exists(os.path.join(folder, OUTCOME))
    return {"meeting": None if over or node is None else read_json(folder, MEETING)}, b""


def _scarce(*places: str) -> OSError | None:
    """The error of the disk that is full, of those that a launch needs."""
    for place in places:
        facts = os.statvfs(place if os.path.isdir(place) else os.path.dirname(place))
        if not facts.f_bavail or (facts.f_files and not facts.f_favail):
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place)
    return None


def look(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """`seen` has for each of the `folders` what `attempt_status` reads; null for none."""
    folders = [_inside(root, folder) for folder in message["folders"]]
    return {
        "seen": [
            attempt_status.read_attempt(folder) if attempt_status.attempt_exists(folder) else None
            for folder in folders
        ],
        "left": attempt_status.remaining_processes(folders) if message.get("remains") else {},
    }, b""


def pull(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Files of an attempt's folder that are new, or longer than what was pulled before.

    `names` are patterns of paths in it; `have` has how many bytes the other side has of each file,
    and of which time, and `grows` are patterns of files that are only appended to. `files` has the
    path, the offset, the size of the piece, the size and the time of the whole file; their content
    follows. `more` says that there is more: ask again. `epoch_ns` is when its clock was 0.
    """
    folder, have = attempt_folder(root, message), message["have"]
    pieces, data, full = [], b"", False
    for path in _matching(folder, message["names"]):
        whole = os.path.join(folder, path)
        if os.path.islink(whole):
            continue  # it may lead to any file
        with suppress(OSError), open(whole, "rb", buffering=0, opener=regular_opener) as file:
            facts = os.fstat(file.fileno())
            has, of = have.get(path, (0, None))
            at = has if has <= facts.st_size else 0
            if any(fnmatch.fnmatchcase(path, one) for one in message["grows"]):
                if of is not None and has == facts.st_size:
                    continue
                at = _next_data(file.fileno(), at, facts.st_size)
            elif of != facts.st_mtime_ns:
                at = 0
            elif has == facts.st_size:
                continue
            room = _PIECE - len(data)
            if room <= 0:
                full = True
                break
            file.seek(at)
            piece = file.read(min(room, max(0, facts.st_size - at)))
            pieces.append([path, at, len(piece), facts.st_size, facts.st_mtime_ns])
            data += piece
            full = full or at + len(piece) < facts.st_size
    there = attempt_status.attempt_exists(folder)
    epoch = attempt_status.monotonic_epoch_ns(folder) if there else None
    return {"files": pieces, "more": full, "there": there, "epoch_ns": epoch}, data


def _next_data(descriptor: int, at: int, size: int) -> int:
    """Where a file goes on after a hole: the bound of a log deletes its older lines."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError:
        return size


def cancel(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Ask it to stop."""
    folder = attempt_folder(root, message)
    if attempt_status.attempt_exists(folder):
        attempt_status.request_cancel(folder)
    return {}, b""


def force(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Take the next step of a forced stop if it is due; `did` says what was done."""
    folder = attempt_folder(root, message)
    stop = _stops.setdefault(folder, LocalForcedStop(folder, float(message["silence"])))
    return {"did": stop.look()}, b""


def stacks(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """`stacks` of its ranks, or of some."""
    return {"stacks": rank_stacks(attempt_folder(root, message), message["ranks"])}, b""


def facts_of(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """The `size` of what it left, whether it has `output`, and whether it is `active`."""
    folder = attempt_folder(root, message)
    if not os.path.isdir(folder):
        return {"there": False, "size": 0, "output": False, "active": False}, b""
    output = holds_files(os.path.join(folder, "output"))
    return {"there": True, "size": size_of(folder), "output": output, "active": active(folder)}, b""


def free(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Delete an ended attempt, or with `code` what was staged for it alone; `size` is that of all
    that went."""
    folder = attempt_folder(root, message)
    if not os.path.isdir(folder) or active(folder):
        return {"size": 0}, b""
    if message.get("code"):
        shutil.rmtree(os.path.join(folder, "code"), ignore_errors=True)
        return {"size": 0}, b""
    size = size_of(folder)
    discard(folder)
    return {"size": size}, b""


def sweep(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Stop what a lost attempt left; `count` processes were there."""
    return {"count": attempt_status.clear_remains(attempt_folder(root, message))}, b""


def collect(root: str, _: dict[str, Any], __: RequestContent) -> Answer:
    """Delete what killed programs left beside attempts, and code, environments and agents that
    nothing has used for a while; what a launch needs of them is sent again."""
    oldest = time.time() - _UNUSED
    states = [os.path.join(entry.path, "runs") for entry in entries(os.path.join(root, "states"))]
    size = sum(collect_left(runs, _LEFT_AFTER) for runs in states)
    pythons = [_python(folder) for folder in _attempts(states) if active(folder)]
    used = {found[1] for python in pythons if (found := _TREE.search(python))}
    size += collect_code(root, oldest) + collect_environments(root, used, oldest)
    for entry in entries(os.path.join(root, "agents")):
        if entry.stat().st_mtime < oldest and not pythons:  # supervisors import from theirs
            size += size_of(entry.path)
            shutil.rmtree(entry.path, ignore_errors=True)
    return {"size": size}, b""


def _attempts(states: list[str]) -> Iterator[str]:
    for runs in states:
        for run in entries(runs):
            for attempt in entries(run.path):
                if attempt.name.isdigit():
                    yield attempt.path


def _python(folder: str) -> str:
    return str((read_json(folder, SPEC) or {}).get("python"))


def _matching(folder: str, patterns: list[str]) -> Iterator[str]:
    """The files below a folder that one of the patterns names, in their order."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        above = os.path.relpath(place, folder)
        if above == ".":
            wanted = {pattern.partition("/")[0] for pattern in patterns if "/" in pattern}
            folders[:] = [name for name in folders if name in wanted]
        for name in sorted(names):
            path = name if above == "." else f"{above}/{name}"
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
                yield path


def attempt_folder(root: str, message: dict[str, Any]) -> str:
    return _inside(root, message["folder"])


def _inside(root: str, folder: object) -> str:
    """The path of a folder, which is named from the root. Raises BoxRefusal: it is elsewhere."""
    path = os.path.normpath(os.path.join(root, str(folder)))
    if not path.startswith((f"{root}/states/", f"{root}/runs/")):
        raise BoxRefusal("bad_folder", f"`{folder}` is no folder of an attempt")
    return path


OPERATIONS = {
    "stage": stage, "staged": staged, "start": start, "look": look, "pull": pull,
    "cancel": cancel, "force": force, "stacks": stacks, "facts_of": facts_of, "free": free,
    "sweep": sweep, "collect": collect,
}  # fmt: skip
