"""An HTTP server that keeps comments and issues as GitHub and GitLab do.

It knows the calls that `examples/gitops/ci/comment.py` makes, as these pages describe them:
https://docs.github.com/en/rest/issues/comments, https://docs.github.com/en/rest/issues/issues,
https://docs.github.com/en/graphql/reference/queries, https://docs.gitlab.com/api/users/,
https://docs.gitlab.com/api/notes/, https://docs.gitlab.com/api/issues/, and for the pages of a list
https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api,
https://docs.gitlab.com/api/rest/#pagination. As GitHub it gives the tokens of jobs, too.
"""

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.http_servers import QuietThreadingServer

__all__ = ["ISSUER", "PROJECT", "REPOSITORY", "TOKEN", "CommentHost", "comment_host"]

TOKEN = "a-token-of-the-job"
ISSUER = "https://token.actions.githubusercontent.com"
REPOSITORY = "team/vision"  # of GitHub
PROJECT = "7"  # of GitLab
APP = "github-actions[bot]"  # whose token the one of a job is
USER = "project_7_bot"  # of GitLab
LONGEST = 65_536  # characters of a body on GitHub
_GITHUB = f"/repos/{REPOSITORY}/issues"
_GITLAB = f"/api/v4/projects/{PROJECT}"
_LISTS = re.compile(
    rf"{_GITHUB}(/\d+/comments)?|{_GITLAB}/(issues|merge_requests/\d+/notes)", re.ASCII
)
_ITEMS = re.compile(
    rf"{_GITHUB}/(comments/)?\d+|{_GITLAB}/(issues|merge_requests/\d+/notes)/\d+", re.ASCII
)
_STATES = {"closed": "closed", "close": "closed"}


@dataclass
class CommentHost:
    """`kept` has what was written to each list, in order; `url` is where it answers."""

    url: str
    page: int = 100  # the most that an answer holds
    nameless: bool = False  # whether it does not say whose the token is
    kept: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    _numbers: int = 0

    def github(self, number: int | None = None) -> dict[str, str]:
        """The environment of a job, of that pull request."""
        environ = {
            "GITHUB_ACTIONS": "true", "GITHUB_API_URL": self.url, "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_TOKEN": TOKEN,
        }  # fmt: skip
        return environ | ({} if number is None else {"PULL_REQUEST": str(number)})

    def identity(self, environment: str) -> dict[str, str]:
        """What a job of an environment with `id-token: write` has to ask for its own token."""
        return {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.url}/id-token?environment={environment}",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": TOKEN,
        }

    def gitlab(self, number: int | None = None) -> dict[str, str]:
        """The same, of that merge request."""
        environ = {
            "CI_API_V4_URL": f"{self.url}/api/v4", "CI_PROJECT_ID": PROJECT, "GITLAB_TOKEN": TOKEN,
        }  # fmt: skip
        return environ | ({} if number is None else {"CI_MERGE_REQUEST_IID": str(number)})

    def comments(self, number: int) -> list[dict[str, Any]]:
        """Those of a pull request, or of a merge request."""
        github = self.kept.get(f"{_GITHUB}/{number}/comments", [])
        return github + self.kept.get(f"{_GITLAB}/merge_requests/{number}/notes", [])

    def issues(self) -> list[dict[str, Any]]:
        return self.kept.get(_GITHUB, []) + self.kept.get(f"{_GITLAB}/issues", [])

    def add(self, path: str, fields: dict[str, Any], author: str | None = None) -> dict[str, Any]:
        number = self._numbers = self._numbers + 1
        if path.startswith("/repos"):
            whose = {"state": "open", "user": {"login": author or APP}}
        else:
            whose = {"state": "opened", "author": {"username": author or USER}}
        one = {"id": 1000 + number, "number": number, "iid": number, **whose, **fields}
        self.kept.setdefault(path, []).append(one)
        return one

    def whose(self, *, gitlab: bool) -> tuple[int, dict[str, Any]]:
        """The answer to the question whose token it is."""
        if self.nameless:
            return 403, {"message": "Resource not accessible by integration"}
        return 200, {"username": USER} if gitlab else {"data": {"viewer": {"login": APP}}}

    def listed(self, path: str, query: dict[str, str]) -> tuple[list[dict[str, Any]], str]:
        """A page of a list, and the header `Link`."""
        found = self.kept.get(path, [])
        if "state" in query:
            found = [one for one in found if one["state"] == query["state"]]
        if "labels" in query:
            found = [one for one in found if query["labels"] in _labels(one)]
        size, page = min(int(query.get("per_page", "20")), self.page), int(query.get("page", "1"))
        more = f"{self.url}{path}?" + "&".join(
            f"{name}={value}" for name, value in {**query, "page": page + 1}.items()
        )
        link = f'<{more}>; rel="next", <{more}>; rel="last"' if len(found) > size * page else ""
        return found[size * (page - 1) : size * page], link

    def item(self, path: str) -> dict[str, Any] | None:
        """One that is kept, by its own address."""
        whole, _, number = path.rpartition("/")
        if whole.endswith("/issues/comments"):
            found = [one for path, kept in self.kept.items() if path.endswith("/comments")
                     for one in kept]  # fmt: skip
        else:
            found = self.kept.get(whole, [])
        name = "iid" if whole == f"{_GITLAB}/issues" else "number" if whole == _GITHUB else "id"
        return next((one for one in found if one[name] == int(number)), None)


def _labels(one: dict[str, Any]) -> list[str]:
    labels = one.get("labels", [])
    return labels.split(",") if isinstance(labels, str) else labels


def _id_token(query: dict[str, list[str]]) -> str:
    """As https://docs.github.com/en/actions/reference/security/oidc says; nobody signs it."""
    claims = {
        "iss": ISSUER,
        "sub": f"repo:{REPOSITORY}:environment:{query['environment'][0]}",
        "aud": query["audience"][0],
        "exp": time.time() + 300,
    }
    parts = (json.dumps(one).encode() for one in ({"alg": "RS256"}, claims))
    signed = [*(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts), "c2ln"]
    return ".".join(signed)


@contextmanager
def comment_host() -> Iterator[CommentHost]:
    host = CommentHost(url="")

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self) -> None:
            method, parts = self.command, urlsplit(self.path)
            host.asked.append((method, parts.path))
            if parts.path == "/id-token":
                return self.send(200, {"value": _id_token(parse_qs(parts.query))})
            fields = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            gitlab = parts.path.startswith("/api/v4/")
            token = self.headers.get("PRIVATE-TOKEN" if gitlab else "Authorization", "")
            if token.removeprefix("Bearer ") != TOKEN:
                return self.send(401, {"message": "Bad credentials"})
            if parts.path in ("/graphql", "/api/v4/user"):
                return self.send(*host.whose(gitlab=gitlab))
            if method == "GET" and _LISTS.fullmatch(parts.path):
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                found, link = host.listed(parts.path, query)
                return self.send(200, found, link)
            if not gitlab and len(fields.get("body", "")) > LONGEST:
                return self.send(422, {"message": "Validation Failed"})
            if method == "POST" and _LISTS.fullmatch(parts.path):
                return self.send(201, host.add(parts.path, fields))
            one = host.item(parts.path) if _ITEMS.fullmatch(parts.path) else None
            if method != ("PUT" if gitlab else "PATCH") or one is None:
                return self.send(404, {"message": "Not Found"})
            if gitlab and one["author"]["username"] != USER:
                return self.send(403, {"message": "403 Forbidden"})
            state = fields.pop("state_event", fields.pop("state", None))
            one.update(fields, **({"state": _STATES[state]} if state else {}))
            return self.send(200, one)

        do_GET = do_POST = do_PATCH = do_PUT = answer  # noqa: N815

        def send(self, code: int, value: object, link: str = "") -> None:
            body = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            if link:
                self.send_header("Link", link)
            self.end_headers()
            self.wfile.write(body)

    server = QuietThreadingServer(("127.0.0.1", 0), Handler)
    host.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
