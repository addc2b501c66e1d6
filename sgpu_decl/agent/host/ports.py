"""A port for the rendezvous: no other run takes it, and nothing is bound to it."""

from __future__ import annotations

import errno
import os
from _socket import AF_INET, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket

from sgpu_decl.agent.system.locks import open_lock, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_LOWEST = 12_000
_DEFAULT_EPHEMERAL = 32_768
_DEFAULT_UNPRIVILEGED = 1024
_LISTEN = "0A"  # TCP_LISTEN of the kernel's tcp_states.h


def claim_port(
    folder: str, seed: int, fixed: int | None = None, *, field: str = "master_port"
) -> tuple[int, int]:
    """Return a port, `fixed` if given, and the descriptor of its lock. The port is ours while that
    stays open. `field` is the option that fixes it, for the message.

    Ports lie below the ephemeral range, so the kernel gives them to no outgoing connection. A lock
    per port excludes other runs, and a trial bind finds ports of other programs.

    Raises:
        OSError: the fixed port cannot be had, or all ports are taken.
    """
    os.makedirs(folder, exist_ok=True)
    if fixed is not None:
        return fixed, _lock_fixed(os.path.join(folder, str(fixed)), fixed, field)
    ports = port_range()
    span = len(ports)
    for step in range(span):
        port = ports[(seed + step) % span]
        try:
            descriptor = open_lock(os.path.join(folder, str(port)), 0o666)
        except PermissionError:
            continue  # the file of another user's run
        if try_lock(descriptor) and can_bind(port):
            return port, descriptor
        os.close(descriptor)
    raise OSError(errno.EADDRINUSE, f"no free port from {ports[0]} to {ports[-1]}")


def port_failure(error: OSError, fixed: int | None) -> str:
    """The class of a launch that ends with an error of `claim_port`: a mistake of the user, if a
    chosen port cannot be had."""
    refused = fixed is not None and error.errno in (errno.EADDRINUSE, errno.EACCES)
    return "launch_failed_user" if refused else "launch_failed"


def _lock_fixed(path: str, port: int, field: str) -> int:
    """Return the descriptor of the lock of a port that a user chose.

    Raises:
        OSError: another run or program has it, or this user may not listen there.
    """
    try:
        descriptor = open_lock(path, 0o666)
    except PermissionError:
        raise _taken(port, " by a run of another user", field) from None
    if not try_lock(descriptor):
        pid = _lock_holder(descriptor)
        os.close(descriptor)
        by = " by another run" + (f", process {pid}" if pid else "")
        raise _taken(port, by, field)
    error = _bind_error(port, reuse=True)
    if error is None:
        return descriptor
    os.close(descriptor)
    if error == errno.EACCES:
        why = (
            f"this user may not listen on port {port}, which is below {_lowest_unprivileged()}; "
            f"choose a higher one, or leave `{field}` out"
        )
        raise OSError(errno.EACCES, why)
    holder = port_holder(port)
    raise _taken(port, f" by process {holder[0]} (`{holder[1]}`)" if holder else "", field)


def _taken(port: int, by: str, field: str) -> OSError:
    return OSError(errno.EADDRINUSE, f"port {port} is taken{by}; leave `{field}` out")


def _lock_holder(descriptor: int) -> int | None:
    """Return the pid of the process that holds the lock of an open file; None if it is not seen.
    The fields of a line of /proc/locks are described in proc(5)."""
    inode = str(os.fstat(descriptor).st_ino)
    try:
        with open("/proc/locks") as file:
            for line in file:
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                    return int(fields[4]) if int(fields[4]) > 0 else None
    except (OSError, ValueError, IndexError):
        pass
    return None


def _lowest_unprivileged() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as file:
            return int(file.read())
    except (OSError, ValueError):
        return _DEFAULT_UNPRIVILEGED


def port_holder(port: int) -> tuple[int, str] | None:
    """Return the pid and the name of the process that listens on a TCP port; None if this user may
    not see it, or nobody listens."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for name in os.listdir("/proc") if sockets else ():
        try:
            for descriptor in os.listdir(f"/proc/{name}/fd") if name.isdigit() else ():
                if os.readlink(f"/proc/{name}/fd/{descriptor}") in sockets:
                    with open(f"/proc/{name}/comm") as file:
                        return int(name), file.read().strip()
        except OSError:
            continue  # it has ended, or it is another user's
    return None


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port: fields 2, 4 and 10 of a line of
    /proc/net/tcp (proc(5)) are the local address, the state and the inode."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{table}") as file:
                for line in file.readlines()[1:]:
                    fields = line.split()
                    if fields[1].endswith(f":{port:04X}") and fields[3] == _LISTEN:
                        yield fields[9]
        except OSError:
            continue  # the kernel has no IPv6


def port_range() -> range:
    """Return the ports that ranks may meet at: those below the ephemeral range, unless it leaves
    almost none."""
    top = lowest_ephemeral()
    return range(_LOWEST, top if top > _LOWEST + 1000 else _DEFAULT_EPHEMERAL)


def lowest_ephemeral() -> int:
    """Return the lowest port that the kernel gives to an outgoing connection."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_EPHEMERAL


def can_bind(port: int) -> bool:
    """Whether a program can bind the port.

    The connections of an ended run keep its port for a minute from programs that may not reuse
    addresses.
    """
    return _bind_error(port, reuse=False) is None


def _bind_error(port: int, *, reuse: bool) -> int | None:
    """Return the number of the error of a trial bind; None if a program can bind the port, or one
    that may `reuse` addresses."""
    probe = socket(AF_INET, SOCK_STREAM)  # the bare type: the module around it loads in 2 ms
    try:
        probe.setsockopt(SOL_SOCKET, SO_REUSEADDR, int(reuse))
        probe.bind(("", port))
    except OSError as error:
        return error.errno
    finally:
        probe.close()
    return None
