"""One run of OpenSSH's client that has the node agent answer on a box.

ssh does all that it does for its user: configuration, keys, agents, jump hosts, known hosts. One
connection for each host is kept for a while after it was used last (`ControlPersist`), so that the
next command need not log in again. Source of the options: https://man.openbsd.org/ssh_config
"""

import json
import os
import select
import shlex
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from sgpu_decl.agent.box.wire import BadFrame, frame_head, read_head
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.agent.system.marked_answer import MARK
from sgpu_decl.backends.archives import agent_sources_digest, agent_zip
from sgpu_decl.errors import BackendError

UNREACHABLE = "host_unreachable"
LOGIN = 60.0
"""Seconds for a login and the first answer."""

_CHUNK = 1 << 20
_NOISE = 1 << 16  # bytes that a login may print before the first answer
_SHOWN = 400  # characters of what ssh said
_OPTIONS = (
    "BatchMode=yes",  # a question could not be answered
    "ConnectTimeout=20",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ControlMaster=auto",
    "ControlPersist=10m",
    "ClearAllForwardings=yes",  # those of the user's own sessions
    "ForwardX11=no",
    "RequestTTY=no",
    "RemoteCommand=none",
    "LogLevel=ERROR",  # its reasons, without the banner of the host
)
# Before the others: of options that are given twice, the first holds. A forwarding of a kept
# connection would stay when this process is gone.
_FORWARDS = ("ControlMaster=no", "ControlPath=none", "ClearAllForwardings=no",
             "ExitOnForwardFailure=no")  # fmt: skip
_PYTHONS = "python3 python3.14 python3.13 python3.12 python3.11 python3.10"
# For any login shell: one line, without an exclamation mark. Goes on with the next Python where one
# is too old, or is a name that leads nowhere.
_FIND = (
    'for p in {names}; do command -v "$p" >/dev/null 2>&1 || continue; '
    '"$p" -I -S -c "$0" {root} {digest}; r=$?; '
    "case $r in 9|126|127) ;; *) exit $r;; esac; done; "
    'echo "{mark}{{\\"python\\": null}}"'
)
# Has the archive of the agent sent if it is not there, and goes on as the agent. It is unpacked and
# compiled here: where a disk is full, Python itself leaves bytecode that is cut off. Its flag 1 is
# that of PEP 552: nothing is compared with the source.
_START = """\
import os, sys
if sys.version_info < (3, 10):
    sys.exit(9)
root = os.path.abspath(os.path.expanduser(sys.argv[1]))
agent = os.path.join(root, "agents", sys.argv[2] + "." + sys.implementation.cache_tag)
def say(name, value):
    import json
    os.write(1, ("{mark}" + json.dumps({name: value}) + chr(10)).encode())
def unpack():
    import hashlib, importlib.util as util, io, marshal, shutil, zipfile
    left, digest = os.read(0, 81).decode().split()
    left = int(left)
    parts = []
    while left:
        parts.append(os.read(0, min(left, 1 << 20)))
        if not parts[-1]:
            sys.exit(1)
        left -= len(parts[-1])
    data = bytes().join(parts)
    if hashlib.sha256(data).hexdigest() != digest:
        sys.exit("the agent was damaged on its way")
    draft = agent + "." + str(os.getpid())
    archive = zipfile.ZipFile(io.BytesIO(data))
    try:
        archive.extractall(draft)
        for name in archive.namelist():
            code = marshal.dumps(compile(archive.read(name), agent + "/" + name, "exec"))
            path = util.cache_from_source(draft + "/" + name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(util.MAGIC_NUMBER + bytes([1]) + bytes(11) + code)
        os.rename(draft, agent)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not os.path.isdir(agent):
            raise
if sys.platform != "linux":
    say("system", sys.platform)
    sys.exit(0)
try:
    os.makedirs(os.path.dirname(agent), 0o700, exist_ok=True)
    try:
        os.utime(agent)
    except FileNotFoundError:
        say("agent", None)
        unpack()
except OSError as error:
    say("refused", str(error))
    sys.exit(0)
main = agent + "/__main__.py"
sys.argv = [main, "box", root]
with open(main, encoding="utf-8") as file:
    code = compile(file.read(), main, "exec")
exec(code, {"__name__": "__main__", "__file__": main, "__package__": None})
""".replace("{mark}", MARK)


class SshConnectionLost(BackendError):
    """The connection ended before an answer came: what was asked may have been done."""

    code = UNREACHABLE
    retryable = True


class SshProcess:
    """A login on a host, whose agent has answered: `hello` is what it says of itself.

    Args:
        host: as ssh takes it.
        python: a Python of that machine, or None for the first on its PATH.
        root: the folder there for what is ours; may begin with `~`.
        forward: a port of this machine's loopback address that leads to one of that machine's.

    Raises:
        BackendError: there is no way to the host, or nothing there that could answer.
    """

    def __init__(
        self, host: str, python: str | None, root: str, forward: tuple[int, int] | None = None
    ) -> None:
        self._host = host
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            _command(host, python, root, forward),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C is for this program alone
        )
        self._heard = 0  # bytes of what ssh said that are of no interest any more
        self._buffer = b""
        self._deadline = time.monotonic() + LOGIN
        try:
            self.hello = self._login(python, root)
            self._heard = os.fstat(self._said.fileno()).st_size
        except BaseException:
            self.close()
            raise

    def call(
        self, message: dict[str, Any], contents: Iterable[bytes], size: int, patience: float
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request with its content of `size` bytes, and return the answer.

        Raises:
            SshConnectionLost: no answer came within `patience` seconds after the content, or none
                will.
        """
        self._deadline = time.monotonic() + patience
        try:
            self._write(frame_head(message, size))
            for part in contents:
                self._write(part)
                self._deadline = time.monotonic() + patience
            head = read_head(self._read)
            if head is not None:
                answer, length = head
                data = self._read(length)
                if len(data) == length:
                    return answer, data
        except BadFrame as error:
            raise self._lost(str(error)) from error
        except (BrokenPipeError, TimeoutError) as error:
            raise self._lost(str(error)) from error
        raise self._lost("the connection was closed")

    def wait(self) -> None:
        """Until it ends by itself. Raises SshConnectionLost."""
        self._process.wait()
        raise self._lost("the connection was closed")

    def close(self) -> None:
        """End the login; the kept connection stays for the next one."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None  # noqa: S101  pipes of ours
            try:
                stream.close()
            except OSError:
                continue  # what was not sent is not sent any more
        try:
            self._process.wait(1.0)  # it ends at the end of its input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _login(self, python: str | None, root: str) -> dict[str, Any]:
        try:
            found = self._first_answer()
            if "agent" in found:
                digest, data = agent_zip()
                self._write(f"{len(data):016d} {digest}".encode() + data)
                found = self._first_answer()
        except TimeoutError as error:
            raise self._failed(f"there was no answer within {LOGIN:.0f} s") from error
        except BrokenPipeError as error:
            raise self._failed(None) from error
        if found.get("python", "") is None:
            named = f"`{python}` does not run there, or is older" if python else "it has none"
            raise BackendError(
                f"`{self._host}` needs a Python 3.10 or newer: {named}",
                hint="name one with `backend.python`, or install one there",
                code="no_python_there",
            )
        if "system" in found:
            raise BackendError(
                f"`{self._host}` runs {found['system']}, and ranks need Linux",
                hint="name another host",
                code="host_system",
            )
        if "refused" in found:
            raise BackendError(
                f"`{root}` on `{self._host}` cannot be used: {found['refused']}",
                hint="name a folder that can be written with `backend.storage`, or make room there",
                code="storage_unusable",
            )
        return found

    def _first_answer(self) -> dict[str, Any]:
        """The next marked line, after whatever a login prints. Raises TimeoutError."""
        mark = MARK.encode()
        while mark not in self._buffer or b"\n" not in self._buffer.partition(mark)[2]:
            if len(self._buffer) > _NOISE and mark not in self._buffer:
                raise self._failed("its login prints without an end")
            if not self._more():
                raise self._failed(None)
        line, _, self._buffer = self._buffer.partition(mark)[2].partition(b"\n")
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._failed("something else answered")
        return found

    def _failed(self, why: str | None) -> BackendError:
        """The error of a login: in ssh's own words, where it has some, or in those of the shell."""
        words = self._words()
        if not words:
            printed = _last_lines(self._buffer, 1)
            words = why or "the connection ended before the shell there answered"
            words += f"; it printed `{printed}`" if printed else ""
        error = BackendError(
            f"cannot reach `{self._host}` by ssh: {words}",
            hint=f"`ssh {shlex.quote(self._host)} echo ok` must print `ok` without a question: it "
            "says what is wrong, and asks whether a new host is the right one; `ssh-add` takes the "
            "passphrase of a key",
            code=UNREACHABLE,
        )
        error.retryable = True
        return error

    def _lost(self, why: str) -> SshConnectionLost:
        return SshConnectionLost(
            f"the connection to `{self._host}` was lost: {self._words() or why}",
            hint="what runs there goes on; try again",
        )

    def _words(self) -> str:
        """What ssh, or a program there, wrote to stderr last."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.wait(0.5)  # ssh writes why, and ends
            except subprocess.TimeoutExpired:
                return ""
        self._said.seek(self._heard)
        return _last_lines(self._said.read())

    def _read(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            if not self._buffer and not self._more():
                break
            part, self._buffer = self._buffer[:left], self._buffer[left:]
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _more(self) -> bool:
        """Read more; false at the end. Raises TimeoutError."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101
        patience = max(0.0, self._deadline - time.monotonic())
        if not select.select([stdout], [], [], patience)[0]:
            raise TimeoutError("there was no answer in time")
        data = os.read(stdout.fileno(), _CHUNK)
        self._buffer += data
        return bool(data)

    def _write(self, data: bytes) -> None:
        """Raises TimeoutError, BrokenPipeError."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101
        os.set_blocking(stdin.fileno(), False)
        view = memoryview(data)
        while view:
            patience = max(0.0, self._deadline - time.monotonic())
            if not select.select([], [stdin], [], patience)[1]:
                raise TimeoutError("it takes nothing any more")
            view = view[os.write(stdin.fileno(), view) :]


def _last_lines(text: bytes, most: int = 3) -> str:
    """The last lines that say something: the first of them names the line of a configuration that
    is wrong. What ssh says of a connection that another process keeps at this moment is no reason.
    (It drops what a jump host says, since it keeps its own connection: see `ControlPersist` in
    `ssh_proxy_connect` of https://github.com/openssh/openssh-portable/blob/master/sshconnect.c)"""
    lines = text.decode(errors="replace").split("\n")
    lines = ["".join(filter(str.isprintable, line)).strip() for line in lines]
    said = [line.removeprefix("ssh: ") for line in lines if line]
    said = [line for line in said if not line.startswith("ControlSocket ")]
    return "; ".join(said[-most:])[:_SHOWN]


def _command(
    host: str, python: str | None, root: str, forward: tuple[int, int] | None
) -> list[str]:
    path = os.path.join(host_lock_folder("ssh"), "%C")
    named = (*(_FORWARDS if forward else ()), *_OPTIONS, f"ControlPath={path}")
    options = [word for one in named for word in ("-o", one)]
    if forward is not None:
        options += ["-L", "127.0.0.1:{}:127.0.0.1:{}".format(*forward)]
    script = _FIND.format(
        names=shlex.quote(python) if python else _PYTHONS,
        root=shlex.quote(root),
        digest=agent_sources_digest(),
        mark=MARK,
    )
    start = f'exec(__import__("base64").b64decode("{b64encode(_START.encode()).decode()}"))'
    return ["ssh", *options, "--", host, f"exec {shlex.join(['sh', '-c', script, start])}"]
