"""Explains uv's failures.

uv has one exit code for all failures, so its words are read, and only here. Unknown words are shown
as they are.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_GLYPHS = re.compile(r"^\s*(?:[\u00d7╰├│─▶]+\s?)*(?:Caused by:|cause:)?\s*")
_PROGRESS = re.compile(
    r"\s*(?:Resolved|Prepared|Installed|Uninstalled|Audited|Downloading|Downloaded|Building|Built|"
    r"Updating|Updated|Using|Bytecode|Creating|Cloning|Activate)\b|\s*[+~-] \S+(?:==| @ )"
)
_WARNING = re.compile(r"\s*warning: (.+)")
_EXPERIMENTAL = re.compile(r"experimental and may change without warning")
_HOST = re.compile(r"https?://(?:\*\*\*@)?([^/\s`)]+)")
_DISABLED = re.compile(
    r"Wheels are required for (`[^`]+`) because building|"
    r"Building source distributions (?:for (`[^`]+`) )?is disabled"
)
_LONGEST = 4000  # characters of uv's words; a compiler can say a hundred thousand


@dataclass(frozen=True, slots=True, kw_only=True)
class UvReport:
    """`summary` and `hint` are ours, `detail` has uv's words."""

    code: str
    summary: str
    hint: str
    detail: str
    retryable: bool = False

    @property
    def message(self) -> str:
        """The summary, and uv's words on the lines below."""
        words = "\n".join(f"  {line}" for line in self.detail.splitlines())
        return f"{self.summary}\nuv says:\n{words}" if words else self.summary


def read_report(words: str, *, python: str) -> UvReport:
    """Read the stderr of a uv that failed.

    Args:
        python: the version of the interpreter that was asked for, `3.11`.
    """
    detail = _detail(words)
    flat = re.sub(r"\s+", " ", detail)
    for pattern, code, say, hint, retryable in _KNOWN:
        match = re.search(pattern, flat)
        if match is not None:
            return UvReport(
                code=code,
                summary=say(match, flat).replace("{python}", python),
                hint=hint,
                detail=detail,
                retryable=retryable,
            )
    return UvReport(
        code="uv_failed",
        summary="uv failed",
        hint="see its words; `uv pip compile` and `uv pip install` show the same by hand",
        detail=detail,
    )


def needs_build(words: str) -> str | None:
    """The package that a uv which may build nothing has to build; `None` if it failed for another
    reason."""
    match = _DISABLED.search(re.sub(r"\s+", " ", _detail(words)))
    return (match[1] or match[2] or "a requirement") if match else None


def untrusted_build(what: str, detail: str = "") -> UvReport:
    """The report about a package that only code of its own can describe."""
    return UvReport(
        code="build_untrusted",
        summary=f"{what} has to be built to learn what it needs, and a plan runs no code of "
        "packages",
        hint="if you trust it, `sgpu plan --trust-project` builds it; `sgpu apply` builds it where "
        "no wheel fits. With a lock file (`uv lock`), a plan needs no build",
        detail=detail,
    )


def read_warnings(words: str) -> tuple[str, ...]:
    """The warnings in uv's stderr."""
    matches = (_WARNING.match(line) for line in words.splitlines())
    return tuple(
        item[1] for item in matches if item is not None and not _EXPERIMENTAL.search(item[1])
    )


def _detail(words: str) -> str:
    """uv's words without warnings and progress."""
    lines = [
        _GLYPHS.sub("", line, count=1).removeprefix("error: ").rstrip()
        for line in words.splitlines()
        if line.strip() and not _PROGRESS.match(line) and not _WARNING.match(line)
    ]
    detail = "\n".join(lines)
    if len(detail) > _LONGEST:
        half = _LONGEST // 2
        detail = f"{detail[:half]}\n…\n{detail[-half:]}"
    return detail


def _host(match: re.Match[str], flat: str) -> str:
    host = _HOST.search(flat, match.start()) or _HOST.search(flat)
    return host[1] if host else "the index"


_Say = Callable[[re.Match[str], str], str]
_RETRY = "check the network, the address (`UV_DEFAULT_INDEX`, `UV_INDEX`, uv.toml) and proxies"
# The first pattern that matches counts.
_KNOWN: tuple[tuple[str, str, _Say, str, bool], ...] = (
    (
        r"os error 28\b|No space left on device|os error 122\b",
        "disk_full",
        lambda _m, _f: "the disk is full",
        "make room in the store and in uv's cache (`uv cache clean`, `sgpu gc`)",
        True,
    ),
    (
        r"Hash mismatch for `([^`]+)`",
        "hash_mismatch",
        lambda m, _f: f"`{m[1]}` is not the file that the lock names: its hash differs",
        "check where it is installed from; resolve again if the package was built anew",
        False,
    ),
    (
        r"network was disabled|[Nn]etwork connectivity is disabled",
        "offline",
        lambda _m, _f: "the packages are not in uv's cache, and uv runs offline",
        "unset `UV_OFFLINE` once, or name a folder of wheels with `UV_FIND_LINKS`",
        True,
    ),
    (
        r"Failed to build `([^`]+)`",
        "build_failed",
        lambda m, _f: f"`{m[1]}` has no wheel for this machine, and building it failed",
        "take a version that has a wheel, or install what its build asks for (a compiler, headers)",
        False,
    ),
    (
        r"Git operation failed",
        "repository_unreachable",
        lambda m, f: f"the repository at `{_host(m, f)}` cannot be fetched",
        "check the address and your access (`git ls-remote`)",
        True,
    ),
    (
        r"40[13] (?:Unauthorized|Forbidden)|lack of valid authentication",
        "index_denied",
        lambda m, f: f"`{_host(m, f)}` refuses the credentials",
        "give them by `UV_INDEX_<NAME>_USERNAME` and `_PASSWORD`, a keyring or ~/.netrc",
        False,
    ),
    (
        r"[Ff]ailed to fetch:|error sending request|operation timed out",
        "index_unreachable",
        lambda m, f: f"`{_host(m, f)}` does not answer as an index",
        _RETRY,
        True,
    ),
    (
        r"no wheels with a matching|no wheels are available|has no usable wheels|no source dist",
        "no_matching_wheel",
        lambda _m, _f: "there is no wheel for Python {python} on this machine",
        "take a version that has one, or set `env.python` to a Python that it has one for",
        False,
    ),
    (
        r"Couldn't parse|Unexpected '|Expected (?:one of|package name|URL)|Error parsing",
        "bad_requirement",
        lambda _m, _f: "a requirement cannot be read",
        "write it as `name>=1.2`, see PEP 508",
        False,
    ),
    (
        r"Because (?:there are no versions of )?([\w.-]+) was not found in",
        "package_not_found",
        lambda m, _f: f"no index has a package `{m[1]}`",
        "check its name; `UV_INDEX` or uv.toml names a further index",
        False,
    ),
    (
        r"No solution found",
        "unresolvable",
        lambda _m, _f: "no versions satisfy all requirements",
        "relax one of the requirements that uv names",
        False,
    ),
    (
        r"Distribution not found at",
        "package_not_found",
        lambda _m, _f: "a requirement names a file that does not exist",
        "check its path",
        False,
    ),
)

CODES = frozenset({"uv_failed", "build_untrusted", *(code for _, code, *_ in _KNOWN)})
"""Every code that a report can have."""
