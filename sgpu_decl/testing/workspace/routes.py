"""What an API module speaks: requests, responses, errors, and routes to its handlers."""

import json as json_text
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.body import Body

if TYPE_CHECKING:
    from sgpu_decl.testing.workspace.server import WorkspaceServer
    from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = [
    "ApiError",
    "Handler",
    "JsonObject",
    "Request",
    "Response",
    "Route",
    "Router",
    "invalid",
    "malformed",
    "missing",
    "unknown_api",
]

JsonObject = dict[str, Json]


class ApiError(Exception):
    """An answer that says no, in the shape of the platform; `body` where it has another one."""

    def __init__(
        self,
        status: int,
        error_code: str,
        message: str,
        details: list[Json] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        super().__init__(f"{status} {error_code}: {message}")
        self.status = status
        self.error_code = error_code
        self.message = message
        self.details = details
        self.headers = dict(headers or {})
        self.body = body


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer: `json`, or `body`, or a `stream` (chunked where its `length` is unknown)."""

    status: int = 200
    json: object = None
    body: bytes | None = None
    stream: Iterable[bytes] | None = None
    length: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. `parameters` are those of the route's pattern, percent-decoded; of a query
    parameter that is given twice, `query` has the last. Names of `headers` have no case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Message
    content: Body
    server: "WorkspaceServer"
    caller: "Tenant | None" = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def tenant(self) -> "Tenant":
        """Whose workspace it is. Routes that are public have none."""
        if self.caller is None:
            raise RuntimeError(f"`{self.path}` is public: it has no tenant")
        return self.caller

    @property
    def body(self) -> bytes:
        """The whole body. Of a big one take `content`, which may lie on disk."""
        return self.content.read()

    @cached_property
    def json(self) -> dict[str, Json]:
        """The body as a JSON object; an empty body is an empty one. Raises ApiError, 400."""
        if not self.content.size:
            return {}
        try:
            value = json_text.loads(self.body)
        except ValueError as error:
            raise malformed(str(error)) from None
        if not isinstance(value, dict):
            raise malformed("the body is no JSON object")
        return value

    def text(self, name: str) -> str:
        """A text that the body must have. Raises ApiError, 400."""
        value = self.json.get(name)
        if not isinstance(value, str) or not value:
            raise missing(name)
        return value

    def asked(self, name: str) -> str:
        """A parameter that the query must have. Raises ApiError, 400."""
        value = self.query.get(name)
        if not value:
            raise missing(name)
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """A number of the query, or of the body where the query lacks it. Raises ApiError, 400."""
        value = self.query.get(name)
        found = self.json.get(name) if value is None and self.method != "GET" else value
        if found is None and default is not None:
            return default
        if found is None:
            raise missing(name)
        try:
            return int(str(found))
        except ValueError:
            raise invalid(f"Expected `{name}` to be an integer, got '{found}'.") from None

    def flag(self, name: str) -> bool:
        """A yes or no of the query, or of the body; no where neither has it."""
        return str(self.query.get(name, self.json_or_empty.get(name))).lower() == "true"

    @cached_property
    def json_or_empty(self) -> dict[str, Json]:
        """The body's JSON object where the body says that it is one. Older clients call it
        `text/json` (evidence: A7)."""
        given = self.headers.get("Content-Type") or ""
        older = self.server.profile.flag("json-content-type") and given.startswith("text/json")
        return self.json if older or given.startswith("application/json") else {}


_UNKNOWN_STATUS = {"FEATURE_DISABLED": 403, "NOT_IMPLEMENTED": 501}

Handler = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path. In the path `{name}` stands for one segment, `{name...}` for the rest
    of it; a `public` one asks for no token. A route that `needs` an assumption is there where the
    profile of the server says yes to it."""

    method: str
    pattern: str
    handler: Handler
    public: bool = False
    needs: str | None = None


class Router:
    """Finds the route of a request, and its parameters."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._plain: dict[tuple[str, str], Route] = {}
        self._patterns: list[tuple[str, re.Pattern[str], Route]] = []
        for route in routes:
            if "{" not in route.pattern:
                self._plain[route.method, route.pattern] = route
            else:
                self._patterns.append((route.method, _compiled(route.pattern), route))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """The route of `method` and `path` (still percent-encoded). A HEAD without a route of its
        own takes that of GET."""
        for wanted in (method, "GET") if method == "HEAD" else (method,):
            plain = self._plain.get((wanted, path))
            if plain is not None:
                return plain, {}
            for one, pattern, route in self._patterns:
                if one == wanted and (match := pattern.fullmatch(path)):
                    return route, {name: unquote(text) for name, text in match.groupdict().items()}
        return None


def unknown_api(request: Request) -> ApiError:
    """An API that is not there, as the platform says it."""
    code = request.server.profile.text("unknown-api")
    message = f"No API found for '{request.method} {request.path}'"
    return ApiError(_UNKNOWN_STATUS.get(code, 404), code, message)


def missing(name: str) -> ApiError:
    """Something that must be there is not."""
    return invalid(f"Missing required field: {name}")


def invalid(message: str) -> ApiError:
    """Something given makes no sense."""
    return ApiError(400, "INVALID_PARAMETER_VALUE", message)


def malformed(reason: str) -> ApiError:
    """A body that cannot be read."""
    return ApiError(400, "MALFORMED_REQUEST", f"Could not parse request object: {reason}")


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_parts(pattern)))


def _parts(pattern: str) -> Iterator[str]:
    for text, name, rest in re.findall(r"([^{]+)|\{(\w+)(\.\.\.)?\}", pattern):
        if text:
            yield re.escape(text)
        else:
            yield f"(?P<{name}>.*)" if rest else f"(?P<{name}>[^/]+)"
