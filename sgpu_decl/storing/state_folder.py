"""Where the state of a project lies."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.errors import SgpuError
from sgpu_decl.system_errors import advice, error_text

_REMOTE = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)
_RESERVED = "reserved_space"  # a file that is there for its size
_RESERVED_BYTES = 1 << 20
_HOME = ".sgpu"
_MOUNTS = Path("/proc/self/mounts")


def state_folder(
    project: Path, target: str | None, *, mounts: str | None = None
) -> tuple[Path, str | None]:
    """Return the folder for the state of `target` (`default` without one) and a note, or `None`.

    It is `.sgpu/<target>` in the project, unless that lies on a network or FUSE file system:
    SQLite's shared memory and locks cannot be trusted there, so the user's own state folder takes
    its place, and the note says so. When that one is remote too, nothing is gained, and the state
    stays in the project. Nothing is created. `mounts` is the text of `/proc/mounts`, read from the
    system when it is not given.
    """
    inside = target or "default"
    near = project / _HOME / inside
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return near, None
    resolved = project.resolve()
    kind = _remote_kind(resolved, mounts)
    if kind is None:
        return near, None

    import hashlib

    import platformdirs

    home = Path(platformdirs.user_state_path("sgpu"))
    if _remote_kind(home.resolve(), mounts) is not None:
        return near, (
            f"state lies on a `{kind}` file system, and so does `{home}`: "
            "use this project from one machine at a time"
        )
    name = hashlib.sha256(str(resolved).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    far = home / "projects" / name / inside
    return far, f"the project lies on a `{kind}` file system: its state is kept in `{far}`"


def make_state_folder(folder: Path) -> None:
    """Make a folder below `.sgpu`, for the user alone, with those above it. An empty `.sgpu` gets a
    `.gitignore` first, which keeps git from seeing any of it.

    Raises:
        OSError: it cannot be made.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        _hide(made.parent)
        # exist_ok: two first applies may race to here.
        made.mkdir(mode=0o700, exist_ok=True)
        made.chmod(0o700)  # a umask may have taken our own bits away
        _hide(made)


def reserve_space(folder: Path) -> None:
    """Set space aside in the folder of a state, so that gc can work on a full disk. Nothing is set
    aside where little is left."""
    reserved = folder / _RESERVED
    if reserved.exists() or _free(folder) < 16 * _RESERVED_BYTES:
        return
    with suppress(OSError), open(reserved, "xb", opener=_for_owner) as file:
        file.write(bytes(_RESERVED_BYTES))


def release_space(folder: Path) -> None:
    """Give up what `reserve_space` set aside, if the disk is full."""
    if folder.is_dir() and _free(folder) < _RESERVED_BYTES:
        (folder / _RESERVED).unlink(missing_ok=True)


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _hide(folder: Path) -> None:
    """Keep git from seeing `.sgpu`. One that is empty is new, or its maker was killed."""
    if folder.name == _HOME and not any(folder.iterdir()):
        write_atomic(folder / ".gitignore", b"*\n", durable=False)


def _remote_kind(path: Path, mounts: str) -> str | None:
    """The type of the file system that holds a path, when that is a remote one."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1])
        # A later mount on the same point covers the earlier one.
        if len(point) >= best and path.is_relative_to(point):
            best, kind = len(point), fields[2]
    return kind if kind in _REMOTE or kind.startswith("fuse.") else None


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def is_folder(path: Path) -> bool:
    """Whether a folder of the state is there.

    Raises:
        SgpuError: it cannot be looked at.
    """
    try:
        return path.is_dir()
    except OSError as error:
        raise unreachable(path, error) from error


def unreachable(path: Path, error: OSError) -> SgpuError:
    """The error for a state, or its folder, that cannot be used."""
    # os.path: false, not an error, where a folder may not be looked into
    blocking = next(
        (
            parent
            for parent in path.parents
            if os.path.lexists(parent) and not os.path.isdir(parent)
        ),
        None,
    )
    if blocking is not None:
        return SgpuError(
            f"`{blocking}` is not a folder, and the state lies in a folder of this name",
            hint="move it away; or keep the state elsewhere: `--project DIR`",
            code="state_unreachable",
        )
    hint = advice(error)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        there = next(parent for parent in path.parents if os.path.isdir(parent))
        hint = f"make `{there}` readable and writable for you; or use another: `--project DIR`"
    return SgpuError(
        f"the state `{path}` cannot be used: {error_text(error)}",
        hint=hint,
        code="state_unreachable",
    )
