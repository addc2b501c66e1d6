"""An sshd of the tests' own: a port, keys and a home of its own, for the user of the tests.

`path` is a folder with the programs of a client: an `ssh` that reads the configuration of this
server alone, in which it has the name `box`. Tests put it first on the PATH.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/hostkey
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
MaxSessions 100
MaxStartups 100
SetEnv HOME={home}{variables}
LogLevel VERBOSE
"""
_CLIENT = """\
Host box
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
"""
_PATIENCE = 30.0
LOSSY = Path(__file__).with_name("lossy_ssh.py")


def sshd() -> str | None:
    """The path of sshd."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def require_sshd() -> str:
    """The path of sshd; the test is skipped where it is not there."""
    program = sshd()
    if program is None or shutil.which("ssh") is None:
        pytest.skip("no OpenSSH here: install `openssh-server` and `openssh-client`")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd wants it
    return program


class SshServer:
    """Runs until `close`. `home` is what HOME says there, `path` the folder with `ssh`.

    Args:
        folder: a new folder for all that it needs.
        variables: those of logins.
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        self._program = require_sshd()
        self.folder = folder
        self.home = folder / "home"
        self.path = folder / "bin"
        for made in (self.home, self.path):
            made.mkdir(parents=True)
        for name in ("hostkey", "key"):
            keygen(folder / name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        told = "".join(f' "{name}={value}"' for name, value in variables.items())
        names = {"port": self.port, "folder": folder, "home": self.home, "variables": told}
        (folder / "sshd_config").write_text(_SERVER.format(**names))
        (folder / "ssh_config").write_text(_CLIENT.format(**names))
        self.know_host()
        client = self.path / "ssh"
        client.write_text(
            f'#!/bin/sh\nset -- {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n'
            f"if [ -e {folder}/lose ]; then\n  exec {sys.executable} {LOSSY} {folder}/lose "
            f'"$(cat {folder}/word)" "$@"\nfi\nexec "$@"\n'
        )
        client.chmod(0o755)
        self._log = folder / "sshd.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, on the same port as before."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-D", "-e", "-f", f"{self.folder}/sshd_config"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + _PATIENCE
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, "sshd does not listen"
            time.sleep(0.02)

    def stop(self) -> None:
        """End it with all of its connections, as a box that goes away."""
        if self._process is not None:
            self.cut()
            self._process.kill()
            self._process.wait()
            self._process = None

    def cut(self) -> None:
        """End all connections: each is a child of sshd."""
        assert self._process is not None
        for pid in _descendants(self._process.pid):
            if b"sshd" in _command_line(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def know_host(self, key: str = "hostkey") -> None:
        """Have clients know a key as that of this host."""
        kind, text = (self.folder / f"{key}.pub").read_text().split()[:2]
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n")

    def lose(self, request: str, times: int = 1) -> None:
        """Have the answers to the next requests of that name get lost, with their connections. It
        holds for logins that begin from now on."""
        (self.folder / "word").write_text(f'"do":"{request}"')
        (self.folder / "lose").write_text(f"{times}")

    @property
    def logins(self) -> int:
        """How many connections there have been."""
        return self._log.read_text().count("Accepted publickey")

    def close(self) -> None:
        """Leave nothing running: kept connections end with the server."""
        self.stop()


def keygen(path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(words, check=True, capture_output=True)


def _descendants(pid: int) -> list[int]:
    found = []
    try:
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in file.read_text().split():
                found += [int(child), *_descendants(int(child))]
    except OSError:
        return found  # it has just ended
    return found


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
