"""Gives a node a root folder of its own, in which the workspace's folders lie where they lie on the
platform: `/Workspace`, `/Volumes`, `/databricks`.

Everything else of the machine is bound into that root, so interpreters, devices and `/tmp` are the
machine's. Nothing of it is seen by other processes, and it is gone with the last process inside. It
needs root, or a kernel that lets users make namespaces of their own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

TYPE_CHECKING = False

__all__ = ["NotAllowed", "enter"]

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
_MS_RDONLY = 0x1
_MS_REMOUNT = 0x20
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x4_0000
_libc = ctypes.CDLL(None, use_errno=True)


class NotAllowed(OSError):
    """This machine lets us make no namespace."""


def enter(root: str, folders: dict[str, str], read_only: Sequence[str] = ()) -> None:
    """Move this process into a new root, built on the empty folder `root`. `folders` says which
    folder of this machine lies where in it, and `read_only` which of them take nothing.

    Raises:
        NotAllowed: the kernel or a container's policy forbids it.
    """
    _unshare()
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", 0)
    covered = {place.split("/")[1] for place in folders}
    for name in os.listdir("/"):
        if name not in covered:
            _bind_entry("/" + name, os.path.join(root, name))
    for top in covered - {place[1:] for place in folders}:
        _bind_rest(f"/{top}", root, folders)
    for place, folder in folders.items():
        inside = root + place
        os.makedirs(inside, exist_ok=True)
        _mount(folder, inside, "", _MS_BIND | _MS_REC)
        if place in read_only:
            _mount("none", inside, "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY)
    os.chroot(root)
    os.chdir("/")


def _bind_rest(folder: str, root: str, folders: dict[str, str]) -> None:
    """Bind what a folder of this machine holds beside the folders that lie in it."""
    os.mkdir(root + folder)
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if not any(place == path or place.startswith(path + "/") for place in folders):
            _bind_entry(path, root + path)
        elif path not in folders:
            _bind_rest(path, root, folders)


def _unshare() -> None:
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWNS) == 0:
        return
    if _libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER) != 0:
        raise _refusal("unshare")
    # The same user inside as outside; whoever maps a group gives up changing groups. Written
    # without codecs, since what has not been imported yet may be out of reach already.
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)


def _bind_entry(source: str, target: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.path.isdir(source):
        os.mkdir(target)
        _mount(source, target, "", _MS_BIND | _MS_REC)
    elif os.path.isfile(source):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        _mount(source, target, "", _MS_BIND)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), None) != 0:
        raise _refusal(f"mount {target}")


def _refusal(what: str) -> NotAllowed:
    code = ctypes.get_errno()
    return NotAllowed(code, f"{what}: {os.strerror(code)}")
