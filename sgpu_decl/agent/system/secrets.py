"""Secret values: kept out of `/proc/PID/environ`, and out of texts that are reported or shown.

That file shows the variables that a process was started with, as long as the process lives. So the
agent gets the caller's variables by a socket. The tracker, forked ranks, and the programs of a node
get what may be secret in a file without a name. They set the variables themselves.
"""

from __future__ import annotations

import os
from binascii import b2a_base64

from sgpu_decl.agent.system.fast_stdlib import dumps, loads
from sgpu_decl.agent.system.kernel_features import MEMFD_CREATE, available

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

# The variables that the interpreter and the loader read before any of our code runs, and the cookie
# by which a run that is launched inside a rank is found again.
_EARLY = ("LANG", "LD_", "LC_", "GLIBC_TUNABLES", "SGPU_COOKIE")
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "AUTH")
DESCRIPTOR = "SGPU_ENVIRON_FD"
"""The variable that has the number of the descriptor which `split_secrets` passes to a program."""

WEBHOOK_URL, WEBHOOK_KEY = "SGPU_WEBHOOK_URL", "SGPU_WEBHOOK_KEY"
"""The variables that take the secrets of `on_finish.webhook` to a node. Ranks do not get them."""

_MEMORY = "/dev/shm"  # noqa: S108
# Shorter values are ordinary words of logs, and not secrets.
_SHORTEST = 4
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


def secret_names(spec: Mapping[str, Any]) -> list[str]:
    """Return the variables of a node that hold secrets: those of the run, the passwords and tokens
    of its tracker, and those of its webhook. A user name or a host is no secret: masks would damage
    logs."""
    others = (spec["tracker"] or {}, spec.get("on_finish") or {})
    return [*spec["secrets"], *(name for one in others for name in one.get("secrets", ()))]


def startup_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a process needs to start at all."""
    return {name: value for name, value in environment.items() if name.startswith(_EARLY)}


def without_secrets(environment: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that have the name or the value of a secret."""
    hidden = {value for value in secrets.values() if value}
    return {
        name: value
        for name, value in environment.items()
        if name not in secrets and value not in hidden
    }


def visible_variables(environment: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without secrets and variables whose names look like secrets."""
    return {
        name: value
        for name, value in without_secrets(environment, secrets).items()
        if not any(word in name.upper() for word in _SECRET)
    }


def split_secrets(
    environment: Mapping[str, str], secrets: Mapping[str, str]
) -> tuple[dict[str, str], int]:
    """Split an environment into the variables that a program starts with, and a descriptor of the
    others: secrets, and variables whose names look like secrets. The program calls
    `receive_variables`.

    Raises:
        OSError: the machine has no descriptor or no memory left.
    """
    plain = visible_variables(environment, secrets)
    rest = {name: value for name, value in environment.items() if name not in plain}
    memory = memory_file(dumps(rest).encode("utf-8", "surrogateescape"))
    return {**plain, DESCRIPTOR: str(memory)}, memory


def receive_variables() -> None:
    """Set the variables that `split_secrets` passed to this process by a descriptor."""
    descriptor = os.environ.pop(DESCRIPTOR, None)
    if descriptor is None:
        return
    with open(int(descriptor), "rb") as memory:
        memory.seek(0)
        variables = loads(memory.read().decode("utf-8", "surrogateescape"))
    os.environ.update(variables)


def memory_file(data: bytes) -> int:
    """Return a descriptor of a new file without a name, that programs do not inherit.

    The file is in memory. If the kernel has no such files, it is an unlinked one of /dev/shm, or
    else of the folder of temporary files.

    Raises:
        OSError: there is no descriptor or no room left.
    """
    descriptor = os.memfd_create("sgpu") if available(MEMFD_CREATE) else _nameless()
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _nameless() -> int:
    usable = os.access(_MEMORY, os.W_OK | os.X_OK)
    folder = _MEMORY if usable else os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    path = os.path.join(folder, f"sgpu-{os.urandom(16).hex()}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


class Redactor:
    """Replaces values by `***`, in plain form, in base64, and as in a URL.

    Each line of a long value (a private key) is replaced, since logs are read line by line.
    """

    def __init__(self, values: Iterable[str]) -> None:
        forms: set[str] = set()
        for value in values:
            for part in (value, *value.splitlines()):
                if len(part.strip()) >= _SHORTEST:
                    forms.update(_spellings(part.strip()))
        self._forms = sorted(forms, key=len, reverse=True)

    @property
    def in_lines(self) -> list[str]:
        """The spellings without a newline, which can be masked line by line."""
        return [form for form in self._forms if "\n" not in form]

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, "***")
        return text


def _spellings(value: str) -> tuple[str, str, str]:
    data = value.encode("utf-8", "surrogateescape")
    quoted = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)
    return value, b2a_base64(data, newline=False).decode().rstrip("="), quoted
