"""Several machines that ssh reaches, as far as one machine can be several: each has a network, a
user with a home of its own, processes, `/tmp` and a boot id, in namespaces of the kernel.

Tests need root for it, and are skipped elsewhere. `path` is a folder with the `ssh` of a client
that knows the hosts, as `gpu1`, `gpu2` and so on.
"""

import itertools
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sgpu_decl.agent.system.host_locks import host_lock_folder
from tests.ssh_server import keygen, require_sshd

GATE = "/mnt/gate"
"""The folder of this machine that ranks see, on each host its own."""

_SERVER = """\
HostKey /mnt/hostkey
AuthorizedKeysFile /mnt/key.pub
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
MaxSessions 100
MaxStartups 100
"""
_CLIENT = """\
Host {name}
  HostName {address}
  User ann
  IdentityFile {folder}/key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
"""
# The network comes from outside; a line on stdin says that it is there.
_BOOT = """\
set -e
mount -t tmpfs tmpfs /mnt
mkdir /mnt/home /mnt/gate
cp {folder}/hostkey {folder}/key.pub {folder}/sshd_config /mnt
chmod 644 /mnt/key.pub
mount --bind {folder}/home /mnt/home
mount --bind {folder}/gate /mnt/gate
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/boot_id /proc/sys/kernel/random/boot_id
mount -t tmpfs -o size={tmp},mode=1777 tmpfs /tmp
ip link set lo up
read up
exec {sshd} -D -e -f /mnt/sshd_config
"""
_PATIENCE = 60.0
_made = itertools.count(1)


class SshHost:
    """One of them, up until `kill`. `gate` is its folder of this machine that ranks see."""

    def __init__(
        self, folder: Path, number: int, net: str, bridge: str, tmp: str, variables: str
    ) -> None:
        self.name = f"gpu{number}"
        self.address = f"{net}.{number + 1}"
        # The same after each boot, so that nobody looks for an old one.
        parts = (int(part) for part in self.address.split("."))
        self._hardware = ":".join(("02:00", *(f"{part:02x}" for part in parts)))
        self.home, self.gate = folder / "home", folder / "gate"
        self._folder = folder
        self._link = f"{bridge}n{number}"
        self._bridge = bridge
        self._tmp = tmp
        self._process: subprocess.Popen[bytes] | None = None
        user = 70_000 + number
        for made in (self.home, self.gate):
            made.mkdir(parents=True)
            os.chown(made, user, user)
        keygen(folder / "hostkey")
        users = Path("/etc/passwd").read_text()
        (folder / "passwd").write_text(f"{users}ann:x:{user}:{user}::/mnt/home:/bin/sh\n")
        (folder / "sshd_config").write_text(_SERVER + variables)
        shutil.copy(folder.parent / "key.pub", folder)

    def start(self) -> None:
        """Have it boot."""
        (self._folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        script = _BOOT.format(folder=self._folder, sshd=require_sshd(), tmp=self._tmp)
        words = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc"]
        with (self._folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*words, "sh", "-c", script],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        first = self._first()
        inside = ["nsenter", "--net", f"--target={first}"]
        peer = f"{self._link}p"
        ends = ("type", "veth", "peer", "name", peer, "address", self._hardware)
        run("ip", "link", "add", self._link, *ends)
        run("ip", "link", "set", peer, "netns", str(first))
        run("ip", "link", "set", self._link, "master", self._bridge, "up")
        run(*inside, "ip", "address", "add", f"{self.address}/24", "dev", peer)
        run(*inside, "ip", "link", "set", peer, "up")
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.close()
        self._await(lambda: "listening" in (self._folder / "sshd.log").read_text())

    def kill(self) -> None:
        """End all of its processes, as a power cut."""
        if self._process is not None:
            os.kill(self._first(), signal.SIGKILL)
            self._process.wait()
            self._process = None
            subprocess.run(["ip", "link", "delete", self._link], check=False, capture_output=True)
            (self._folder / "sshd.log").unlink()

    def cut(self, *, off: bool = True) -> None:
        """Cut it off the network, without a word to anybody, or connect it again."""
        run("ip", "link", "set", self._link, "down" if off else "up")

    @contextmanager
    def full_tmp(self) -> Iterator[None]:
        """Have its `/tmp` full for a while."""
        fill = Path(f"/proc/{self._first()}/root/tmp/fill")
        try:
            with fill.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(b"x" * 4096)
            yield
        finally:
            fill.unlink()

    @contextmanager
    def noexec_home(self) -> Iterator[None]:
        """Have its home run no programs for a while."""
        inside = ["nsenter", "--mount", f"--target={self._first()}", "mount", "-o"]
        try:
            run(*inside, "remount,bind,noexec", "/mnt/home")
            yield
        finally:
            run(*inside, "remount,bind,exec", "/mnt/home")

    def processes(self, word: str) -> Sequence[int]:
        """Its processes that have a word in their command line or environment, by the pids of this
        machine."""
        found, space = [], os.readlink(f"/proc/{self._first()}/ns/pid")
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(entry / "ns/pid") == space:
                    text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if word.encode() in text:
                        found.append(int(entry.name))
            except OSError:
                continue
        return found

    def _first(self) -> int:
        """The pid, here, of its first process."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self._await(lambda: bool(children.read_text().split()))
        return int(children.read_text().split()[0])

    def _await(self, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not happened():
            assert self._process is not None
            assert self._process.poll() is None, (self._folder / "sshd.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.02)


class SshHosts:
    """`count` hosts, which reach each other and this machine. `tmp` is the size of their `/tmp`,
    and `variables` are those of logins."""

    def __init__(self, folder: Path, count: int = 2, tmp: str = "100m", **variables: str) -> None:
        require_sshd()
        if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
            pytest.skip("needs root and the programs `ip`, `unshare` and `nsenter`")
        if subprocess.run(["unshare", "--net", "true"], check=False).returncode:
            pytest.skip("no namespaces here")
        folder.mkdir(parents=True)
        keygen(folder / "key")
        self.path = folder / "bin"
        self.path.mkdir()
        made = next(_made)
        self._bridge = f"sg{os.getpid() % 10_000}x{made}"
        told = "".join(f' "{name}={value}"' for name, value in variables.items())
        told = f"SetEnv{told}\n" if told else ""
        net = f"10.{100 + os.getpid() % 100}.{made}"
        run("ip", "link", "add", self._bridge, "type", "bridge")
        run("ip", "address", "add", f"{net}.1/24", "dev", self._bridge)
        run("ip", "link", "set", self._bridge, "up")
        self.hosts = [
            SshHost(folder / f"gpu{number}", number, net, self._bridge, tmp, told)
            for number in range(1, count + 1)
        ]
        config, known = "", ""
        for host in self.hosts:
            config += _CLIENT.format(name=host.name, address=host.address, folder=folder)
            kind, text = (folder / host.name / "hostkey.pub").read_text().split()[:2]
            known += f"{host.address} {kind} {text}\n"
        (folder / "ssh_config").write_text(config)
        (folder / "known_hosts").write_text(known)
        client = self.path / "ssh"
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        client.chmod(0o755)
        for host in self.hosts:
            host.start()

    def hang_up(self) -> None:
        """End kept connections, which would notice only after a minute that a host is away."""
        path = f"ControlPath={host_lock_folder('ssh')}/%C"
        for host in self.hosts:
            words = [f"{self.path}/ssh", "-o", path, "-O", "exit", host.name]
            subprocess.run(words, check=False, capture_output=True)

    def close(self) -> None:
        """Leave nothing running."""
        self.hang_up()
        for host in self.hosts:
            host.kill()
        run("ip", "link", "delete", self._bridge)


def run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
