"""The credentials for a dashboard, from the places where Ray's own client looks.

The token: `RAY_AUTH_TOKEN`, the file that `RAY_AUTH_TOKEN_PATH` names, `~/.ray/auth_token`, in this
order (https://docs.ray.io/en/latest/ray-security/token-auth.html). Other headers, as a proxy in
front of the dashboard may need them: `RAY_JOB_HEADERS`, as JSON (`ray.dashboard.modules.job.cli`).
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.system_errors import advice, error_text

TOKEN_PLACES = "`RAY_AUTH_TOKEN`, `RAY_AUTH_TOKEN_PATH` and `~/.ray/auth_token`"  # noqa: S105  no token
_DEFAULT_FILE = "~/.ray/auth_token"
_TOKEN = re.compile(r"[!-~]+")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_HEADER_VALUE = re.compile(r"[\t -~]*")
_SECRET_WORDS = frozenset((
    "apikey", "auth", "authorization", "cookie", "credential", "credentials", "jwt", "key",
    "password", "secret", "session", "token",
))  # fmt: skip
"""Words of the names of headers that say who sends a request: `Authorization`, `X-Api-Key`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """`source` says where the token is from. `exposed` is its file, if other users of this machine
    can read it."""

    token: str | None = field(default=None, repr=False)
    source: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    exposed: Path | None = None

    @property
    def has_secret_header(self) -> bool:
        """Whether a header of the user's carries a credential, as far as its name tells. One such
        as `X-Team` keeps nobody out."""
        return any(
            value.strip() and _SECRET_WORDS.intersection(re.split(r"[-_]", name.lower()))
            for name, value in self.headers.items()
        )

    @property
    def authorization(self) -> Mapping[str, str]:
        """The header that carries the token. A header of the user's is not replaced."""
        if self.token is None:
            return {}
        name = "Authorization"
        if name.lower() in (header.lower() for header in self.headers):
            name = "X-Ray-Authorization"  # Ray takes either
        return {name: f"Bearer {self.token}"}


def credentials_of(environ: Mapping[str, str]) -> Credentials:
    """Return the credentials of the user.

    Raises:
        BackendError: a file or variable that names them cannot be used.
    """
    headers = _headers(environ.get("RAY_JOB_HEADERS", ""))
    if token := environ.get("RAY_AUTH_TOKEN", "").strip():
        source = "`RAY_AUTH_TOKEN`"
        return Credentials(token=_checked(token, source), source=source, headers=headers)
    named = environ.get("RAY_AUTH_TOKEN_PATH", "").strip()
    file = Path(os.path.expanduser(named or _DEFAULT_FILE))
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            token = opened.read(1 << 16).strip()
    except OSError as error:
        if not named and isinstance(error, FileNotFoundError):
            return Credentials(headers=headers)
        raise BackendError(
            f"the token for Ray's dashboard cannot be read: {error_text(error)}",
            hint="correct `RAY_AUTH_TOKEN_PATH`, or unset it" if named else advice(error),
            code="bad_ray_token",
        ) from error
    if not token and not named:
        return Credentials(headers=headers)
    source = f"`{file}`"
    return Credentials(
        token=_checked(token, source),
        source=source,
        headers=headers,
        exposed=file if mode & (stat.S_IRGRP | stat.S_IROTH) else None,
    )


def _checked(token: str, source: str) -> str:
    if not _TOKEN.fullmatch(token):
        fault = "has line breaks, spaces or other characters that no token has"
        raise BackendError(
            f"the token of {source} {fault if token else 'is empty'}",
            hint="write the token alone, as `ray get-auth-token` shows it",
            code="bad_ray_token",
        )
    return token


def _headers(text: str) -> dict[str, str]:
    if not text.strip():
        return {}
    try:
        headers = json.loads(text)
    except ValueError:
        headers = None
    if isinstance(headers, dict) and all(
        isinstance(value, str) and _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)
        for name, value in headers.items()
    ):
        return headers
    raise BackendError(
        "the environment variable `RAY_JOB_HEADERS` is not a JSON object that maps header names "
        "to text",
        hint='write it as in \'{"X-Team": "research"}\'',
        code="bad_ray_headers",
    )
