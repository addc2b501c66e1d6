"""Sessions of clients: recorded on their way to a workspace, and played again without them."""

import base64
import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.http_servers import QuietThreadingServer
from tests.support import PATIENCE

__all__ = ["Exchange", "recorded", "replay"]

Exchange = dict[str, Any]
"""A request (`method`, `path` with its query, `type`, `body` in base64), the `status` that it was
answered with, and the `answer`, where it is JSON."""


@contextmanager
def recorded(url: str) -> Iterator[tuple[str, list[Exchange]]]:
    """Give another URL of a workspace, and what passes there."""
    passed: list[Exchange] = []

    class Between(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {
                name: text for name, text in self.headers.items()
                if name.lower() in ("authorization", "content-type")
            }  # fmt: skip
            status, kind, answer = _ask(url, self.command, self.path, headers, body)
            exchange = {
                "method": self.command, "path": self.path, "type": headers.get("Content-Type"),
                "body": base64.b64encode(body).decode(), "status": status,
                "answer": json.loads(answer) if _is_json(kind) and answer else None,
            }  # fmt: skip
            _note(exchange, passed)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _pass  # noqa: N815  http.server's names

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            pass

    with QuietThreadingServer(("127.0.0.1", 0), Between) as between:
        Thread(target=between.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{between.server_address[1]}", passed
        between.shutdown()


def _note(exchange: Exchange, passed: list[Exchange]) -> None:
    """Of looks that are repeated, between two that change something, the last one counts: that is
    what was waited for."""
    if exchange["method"] == "GET":
        for at in range(len(passed) - 1, -1, -1):
            if passed[at]["method"] != "GET":
                break
            if passed[at]["path"] == exchange["path"]:
                del passed[at]
                break
    passed.append(exchange)


def replay(session: list[Exchange], url: str, token: str) -> None:
    """Ask a workspace all of it again, and see that it answers alike: with the same status, and
    with all fields that were there, of the same kind. Ids may be others."""
    ids: dict[str, str] = {}
    for exchange in session:
        deadline = time.monotonic() + PATIENCE
        while True:
            status, answer = _again(exchange, url, token, ids)
            wrong = list(_differences(exchange, status, answer))
            if not wrong or exchange["method"] != "GET" or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert not wrong, (exchange["method"], exchange["path"], wrong, answer)
        _learn(exchange["answer"], answer, ids)


def _again(exchange: Exchange, url: str, token: str, ids: Mapping[str, str]) -> tuple[int, Any]:
    path = re.sub(r"&to=[0-9]+", "", exchange["path"])  # it was said at another time
    body = base64.b64decode(exchange["body"])
    for old, new in ids.items():
        path, body = path.replace(old, new), body.replace(old.encode(), new.encode())
    headers = {"Authorization": f"Bearer {token}"}
    if exchange["type"]:
        headers["Content-Type"] = exchange["type"]
    status, kind, answer = _ask(url, exchange["method"], path, headers, body)
    return status, json.loads(answer) if _is_json(kind) and answer else None


def _ask(
    url: str, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    try:
        connection.request(method, path, body=body or None, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read()
    finally:
        connection.close()


def _is_json(kind: str) -> bool:
    return kind.partition(";")[0].strip() == "application/json"


# How far a run has come; what else is said depends on the moment.
_STATES = ("PENDING", "QUEUED", "RUNNING", "TERMINATING", "TERMINATED", "FINISHED")


def _differences(exchange: Exchange, status: int, answer: Any) -> Iterator[str]:
    if status != exchange["status"]:
        yield f"status {status} in the place of {exchange['status']}"
    else:
        yield from _unlike(exchange["answer"], answer, "")


def _unlike(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            if name not in new:
                yield f"{path}.{name} is missing"
            else:
                yield from _unlike(value, new[name], f"{path}.{name}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(new) < len(old):
            yield f"{path} has {len(new)} of {len(old)}"
        for at, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _unlike(one, other, f"{path}[{at}]")
    elif type(old) is not type(new):
        yield f"{path} is {new!r} in the place of {old!r}"
    elif old in _STATES and (new not in _STATES or _STATES.index(new) < _STATES.index(old)):
        yield f"{path} is {new!r}, and not as far as {old!r}"
    elif path.endswith((".result_state", ".body")) and old != new:
        yield f"{path} is {new!r} in the place of {old!r}"


def _learn(old: Any, new: Any, ids: dict[str, str], name: str = "") -> None:
    """What is called an id has another one now."""
    if isinstance(old, dict):
        for key, value in old.items():
            _learn(value, new[key], ids, key)
    elif isinstance(old, list):
        for one, other in zip(old, new, strict=False):
            _learn(one, other, ids, name)
    elif name.endswith("_id") and str(old) != str(new) and len(str(old)) > 5:
        ids[str(old)] = str(new)
