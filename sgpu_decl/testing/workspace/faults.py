"""Faults by rule: which requests they befall, how often, and what they do to them."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fnmatch import fnmatchcase

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.routes import JsonObject, Request, invalid

__all__ = ["Effect", "Fault", "Faults", "Hook"]

Hook = Callable[[Request, Mapping[str, Json]], None]


class Effect(StrEnum):
    """What a fault does to a request.

    `status` answers with `status_code` and `body`, and the handler does not run; with `keep` it
    runs first. `lose_answer` runs the handler and cuts the connection. `cut` cuts it before the
    body is read. `delay` waits for `seconds`. `hook` calls what is registered as `hook` with
    `arguments`. `stale` lets the next `reads` requests that match `seen_by` see the workspace as it
    was before this one. Several that befall one request act in the order of their rules.
    """

    STATUS = "status"
    LOSE_ANSWER = "lose_answer"
    CUT = "cut"
    DELAY = "delay"
    HOOK = "hook"
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule. `pattern` is a glob over `METHOD /path`, or over `METHOD /path?query` where it has a
    question mark. It lets the first `after` matches pass and befalls the next `times`; `times` 0 is
    without end."""

    pattern: str
    effect: Effect
    times: int = 1
    after: int = 0
    status_code: int = 503
    body: JsonObject | None = None
    retry_after: int | None = None
    keep: bool = False
    seconds: float = 0.0
    hook: str = ""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    reads: int = 1
    seen_by: str = "GET *"

    @classmethod
    def of_json(cls, given: JsonObject) -> "Fault":
        """The rule of a JSON object. Raises ApiError, 400, for unknown keys and effects."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(given.keys() - known)
        if unknown or "pattern" not in given:
            raise invalid(f"a fault has a `pattern` and {sorted(known)}; unknown: {unknown}")
        effect = given.get("effect", "status")
        if effect not in set(Effect):
            raise invalid(f"`effect` is one of {[str(one) for one in Effect]}, not {effect!r}")
        return cls(**{**given, "effect": Effect(str(effect))})  # type: ignore[arg-type]  # JSON of a test


class Faults:
    """The rules in force, of all tenants or of one, and how often each has matched."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._hooks: dict[str, Hook] = {}
        self._lock = threading.Lock()

    def add(self, fault: Fault, *, tenant: str | None = None) -> None:
        """Put a rule in force; for one tenant (its key), or for all."""
        if fault.effect is Effect.HOOK and fault.hook not in self._hooks:
            raise invalid(f"no hook `{fault.hook}`; there are {sorted(self._hooks)}")
        with self._lock:
            self._rules.append(_Rule(fault, tenant))

    def register(self, name: str, hook: Hook) -> None:
        """Make `name` known to rules with the effect `hook`."""
        self._hooks[name] = hook

    def befalling(self, line: str, tenant: str | None) -> list[Fault]:
        """The faults that befall a request, `METHOD /path?query`; each match is counted."""
        with self._lock:
            return [rule.fault for rule in self._rules if rule.hits(line, tenant)]

    def call(self, fault: Fault, request: Request) -> None:
        """Call the hook of a fault."""
        self._hooks[fault.hook](request, fault.arguments)

    def clear(self, tenant: str | None = None) -> None:
        """Take the rules back; of one tenant, or all."""
        with self._lock:
            self._rules = [
                rule for rule in self._rules if tenant is not None and rule.tenant != tenant
            ]


@dataclass(slots=True)
class _Rule:
    fault: Fault
    tenant: str | None
    seen: int = 0

    def hits(self, line: str, tenant: str | None) -> bool:
        if self.tenant not in (None, tenant) or not matches(self.fault.pattern, line):
            return False
        self.seen += 1
        number = self.seen - self.fault.after
        return number >= 1 and (self.fault.times == 0 or number <= self.fault.times)


def matches(pattern: str, line: str) -> bool:
    """Whether a glob covers `METHOD /path?query`."""
    return fnmatchcase(line if "?" in pattern else line.partition("?")[0], pattern)
