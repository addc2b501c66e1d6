"""A server to which programs report their progress, as they do to Kubeflow Trainer.

Hugging Face's Trainer speaks this protocol by itself if `KUBEFLOW_TRAINER_SERVER_URL` is set:
`KubeflowCallback` in transformers/integrations/integration_utils.py (5.0 and newer) posts

    {"trainerStatus": {"progressPercentage": 41, "estimatedRemainingSeconds": 2280,
                       "metrics": [{"name": "current_step", "value": "1200"}, ...]}}

with the bearer token in the file that `KUBEFLOW_TRAINER_SERVER_TOKEN` names. The protocol is
KEP-2779 of Kubeflow Trainer (docs/proposals/2779-trainjob-progress); its Python SDK and any program
can speak it, too. The server listens on loopback alone.
"""

from __future__ import annotations

import hmac
import json
import threading
import time

from sgpu_decl.agent.monitor.progress_estimate import Report, checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

_LARGEST = 1 << 16  # bytes of a request
_DIGITS = 10  # of a length; `int` refuses thousands of them
_PATIENCE = 2.0  # seconds for a request: a slow one keeps others waiting
_MOST = 100  # requests a second; more are slowed down


_sleep = time.sleep


def serve(listening: socket.socket, token: str, take: Callable[[Report], None]) -> None:
    """Answer requests in a thread, until the process ends; `take` is called in that thread."""
    thread = threading.Thread(target=_serve, args=(listening, token, take), daemon=True)
    thread.start()


def _serve(listening: socket.socket, token: str, take: Callable[[Report], None]) -> None:
    begun, count = time.monotonic(), 0
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            _sleep(1.0)  # no descriptor is left
            continue
        with connection:
            try:
                connection.settimeout(_PATIENCE)
                status = _answer(connection, token, take)
                connection.sendall(
                    f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
                )
            except OSError:
                pass
        count += 1
        if count >= _MOST:
            _sleep(max(0.0, begun + 1.0 - time.monotonic()))
            begun, count = time.monotonic(), 0


def _answer(connection: socket.socket, token: str, take: Callable[[Report], None]) -> str:
    """Read a request; return the status of its answer. Raises OSError."""
    until = time.monotonic() + _PATIENCE
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(_LARGEST)
        data += chunk
        if not chunk or len(data) > _LARGEST or time.monotonic() > until:
            return "400 Bad Request"
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
    }
    if not hmac.compare_digest(
        headers.get("authorization", "").encode("utf-8", "replace"), f"Bearer {token}".encode()
    ):
        return "401 Unauthorized"
    if not first.startswith(("POST ", "PUT ", "PATCH ")):
        return "405 Method Not Allowed"
    length = headers.get("content-length", "")
    if not (length.isdecimal() and len(length) < _DIGITS) or int(length) > _LARGEST:
        return "413 Content Too Large"
    while len(body) < int(length):
        chunk = connection.recv(_LARGEST)
        body += chunk
        if not chunk or time.monotonic() > until:
            return "400 Bad Request"
    report = parsed(body[: int(length)])
    if report is None:
        return "400 Bad Request"
    take(report)
    return "200 OK"


def parsed(body: bytes) -> Report | None:
    """The report in a request; None where it is none."""
    try:
        status: Any = json.loads(body)["trainerStatus"]
        given = {str(one["name"]): one["value"] for one in status.get("metrics") or ()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    values = {name: _number(value) for name, value in given.items()}
    step, total = (values.pop(name, None) for name in ("current_step", "total_steps"))
    percent = status.get("progressPercentage")
    if step is not None:
        return checked(step, total, values, source="trainer")
    if total is not None and percent == 0:  # the first report of Hugging Face's Trainer
        return checked(0, total, values, source="trainer")
    return checked(percent, 100, values, source="trainer", unit="percent")


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]  # what it refuses is none
    except (TypeError, ValueError, OverflowError):
        return None
