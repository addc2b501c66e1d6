"""torch's rendezvous store on loopback only, without delays.

By itself, torch has rank 0 listen on every interface. A rank that comes before rank 0 tries again
after half a second. And each rank looks up the name of `::ffff:127.0.0.1`, which no hosts file has:
a name server that does not answer costs 5 s."""

import ctypes
import os
import socket
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_PATIENCE = 30.0  # seconds
_BACKLOG = 1024
_SHORTEST_MESSAGE = 12  # the header of a message to a name server


def keep_store_on_loopback(module: "ModuleType") -> None:
    """Replace the `TCPStore` that torch's rendezvous uses by one that meets on loopback alone."""
    original = module.TCPStore

    def store(host_name: str, port: int, *args: "Any", **options: "Any") -> "Any":
        named = dict(zip(("world_size", "is_master"), args), **options)  # noqa: B905
        own = (os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"))
        if host_name != "127.0.0.1" or (host_name, str(port)) != own:
            return original(host_name, port, *args, **options)
        if named.get("is_master"):
            if named.get("master_listen_fd") is None and len(args) <= 2:
                options["master_listen_fd"] = _listen(host_name, port)
        else:
            await_listener(host_name, port)
        with NoNameServer():
            return original(host_name, port, *args, **options)

    module.TCPStore = store  # type: ignore[attr-defined]


def _listen(host: str, port: int) -> int:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(_BACKLOG)
    return listener.detach()


def await_listener(host: str, port: int) -> None:
    """Wait until the port is open, 30 s at most. After that torch waits by itself."""
    started = time.monotonic()
    while time.monotonic() - started < _PATIENCE:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            time.sleep(min(0.02, 0.001 + (time.monotonic() - started) / 8))


class NoNameServer:
    """Answers the questions of this thread to a name server with "no such name"; other threads are
    not affected.

    It puts a socket of ours into the thread's resolver state, which glibc lets programs set
    (`struct __res_state`: 16 bytes of others, `int nscount`, `struct sockaddr_in nsaddr_list[3]`).
    """

    def __init__(self) -> None:
        self._state: Any = None

    def __enter__(self) -> None:
        try:
            libc = ctypes.CDLL(None)
            find = libc["__res_state"]  # as an attribute, Python would mangle the name
            find.restype = ctypes.c_void_p
            libc["__res_init"]()
        except AttributeError:
            return  # another C library
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        port = self._socket.getsockname()[1]
        # `struct sockaddr_in`: family in the machine's order, port and address in the network's.
        address = (1).to_bytes(4, sys.byteorder)
        address += int(socket.AF_INET).to_bytes(2, sys.byteorder)
        address += port.to_bytes(2, "big") + socket.inet_aton("127.0.0.1") + bytes(8)
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()
        self._state = (ctypes.c_char * len(address)).from_address(find() + 16)
        self._before = self._state.raw
        self._state.raw = address

    def _answer(self) -> None:
        while True:
            question, sender = self._socket.recvfrom(4096)
            if len(question) < _SHORTEST_MESSAGE:
                return
            # The same message back, as a response with the code 3, NXDOMAIN (RFC 1035, 4.1.1).
            self._socket.sendto(question[:2] + b"\x81\x83" + question[4:], sender)

    def __exit__(self, *_: object) -> None:
        if self._state is None:
            return
        self._state.raw = self._before
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
