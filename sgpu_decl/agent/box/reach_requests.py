"""Whether boxes reach each other: one listens for a moment, the others connect."""

from __future__ import annotations

import os
import socket
import threading

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = tuple[dict[str, Any], bytes]

_PATIENCE = 5.0  # seconds for a connection
_LISTENS = 60.0  # seconds
_MOST = 64  # bytes of a word


def listen(_root: str, message: dict[str, Any], _content: object) -> Answer:
    """Answer with a `word` whoever connects to a `port` of those that runs use, a while long."""
    port, lock = claim_port(host_lock_folder("ports"), int.from_bytes(os.urandom(4), "big"))
    listener = socket.create_server(("", port), backlog=100)
    listener.settimeout(_LISTENS)
    word = str(message["word"]).encode()[:_MOST]
    threading.Thread(target=_answer, args=(listener, lock, word), daemon=True).start()
    return {"port": port}, b""


def _answer(listener: socket.socket, lock: int, word: bytes) -> None:
    try:
        while True:
            guest, _ = listener.accept()
            with guest:
                guest.settimeout(_PATIENCE)
                guest.sendall(word)
    except OSError:  # nobody came for a while
        listener.close()
        os.close(lock)


def reach(_root: str, message: dict[str, Any], _content: object) -> Answer:
    """`why` none of the `targets`, each with `address`, `port` and `word`, was reached; null for
    one that was."""
    return {"why": [_reached(**target) for target in message["targets"]]}, b""


def _reached(address: str, port: int, word: str) -> str | None:
    try:
        with socket.create_connection((address, port), timeout=_PATIENCE) as connection:
            found = b""
            while part := connection.recv(_MOST):
                found += part
    except OSError as error:
        return error.strerror or str(error)
    return None if found == word.encode()[:_MOST] else "another machine answers there"


OPERATIONS = {"listen": listen, "reach": reach}
