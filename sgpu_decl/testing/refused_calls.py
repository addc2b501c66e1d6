"""A machine that refuses system calls, as sandboxes do: a program under a seccomp filter.

    python -m sgpu_decl.testing.refused_calls ENOSYS pidfd_open,memfd_create -- PROGRAM ARGUMENT...

The filter holds for the program and for all that it starts. The names are those of
`agent.system.kernel_features`.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Mapping

from sgpu_decl.agent.system import kernel_features as features

__all__ = ["REFUSABLE", "refuse"]

_X86_64, _ARM64 = 0xC000_003E, 0xC000_00B7  # linux/audit.h
_ARCHITECTURES = {"x86_64": (_X86_64, 0), "aarch64": (_ARM64, 1)}
_PRCTL, _FCNTL = (157, 167), (72, 25)

# The number of the call on both architectures; then, where only one use of it is refused, which
# argument must have which value.
_CALLS: dict[str, tuple[tuple[int, int], tuple[int, int] | None]] = {
    features.PIDFD_OPEN: ((434, 434), None),
    features.PIDFD_SEND_SIGNAL: ((424, 424), None),
    features.CHILD_SUBREAPER: (_PRCTL, (0, features.PR_SET_CHILD_SUBREAPER)),
    features.PARENT_DEATH_SIGNAL: (_PRCTL, (0, features.PR_SET_PDEATHSIG)),
    features.MEMFD_CREATE: ((319, 279), None),
    "directory_notify": (_FCNTL, (1, 1026)),
    "fallocate": ((285, 47), None),
    "seek_data": ((8, 62), (2, 3)),
}

REFUSABLE = tuple(_CALLS)
"""What can be refused; punching holes goes with `fallocate`."""

_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # linux/bpf_common.h
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000  # linux/seccomp.h
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_PR_SET_SECCOMP, _MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def refuse(refused: Mapping[str, int]) -> None:
    """Refuse system calls to this process, and to all that it starts, from now on.

    Args:
        refused: for each name, of `REFUSABLE`, the errno that it is refused with.

    Raises:
        OSError: the kernel takes no filter.
    """
    code, column = _ARCHITECTURES[os.uname().machine]
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 1, 0, code), (_RETURN, 0, 0, _ALLOW)]
    for name, number in refused.items():
        calls, argument = _CALLS[name]
        rest = [(_RETURN, 0, 0, _ERRNO | number)]
        if argument is not None:
            position, value = argument
            load = (_LOAD, 0, 0, _ARGUMENTS + 8 * position)
            rest = [load, (_IF_EQUAL, 0, 1, value), *rest]
        steps += [(_LOAD, 0, 0, _NUMBER), (_IF_EQUAL, 0, len(rest), calls[column]), *rest]
    steps.append((_RETURN, 0, 0, _ALLOW))
    program = _Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    _set(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), None)
    _set(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(program))


def _set(option: int, value: ctypes.c_ulong, rest: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, value, rest, zero, zero) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"no seccomp filter can be set: {os.strerror(code)}")


def main(arguments: list[str]) -> None:
    """Become the program behind `--`."""
    word, names, dashes, *argv = arguments
    if dashes != "--":
        raise SystemExit(__doc__)
    refuse(dict.fromkeys(names.split(","), getattr(errno, word)))
    os.execvp(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
