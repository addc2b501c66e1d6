"""What a platform makes of the settings of jobs, as far as planning and status must know it.

Paths are those of a job's document. `*` in a path stands for one name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from functools import lru_cache
from types import MappingProxyType

from sgpu_decl.frozen_dataclass import UNWRITTEN, dataclass
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.plan import Reason


class Anything(Enum):
    """Whatever the platform says is as good."""

    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class JobDefault:
    """The values that the platform adds by itself, and why."""

    values: tuple[Json | Anything, ...]
    why: str


@dataclass(frozen=True, slots=True)
class JobRule:
    """What a change of a setting is, and why."""

    reason: Reason
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """What starts a job by itself: the clock, or a trigger as the platform has it. `paused` says
    whether that is suspended; `None` where nothing starts it."""

    schedule: str | None = None
    timezone: str | None = None
    trigger: Mapping[str, Json] | None = None
    paused: bool | None = field(default=None, metadata=UNWRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobRules:
    """Attributes:
    defaults: the settings that the platform adds by itself, by their paths: where nobody asked for
        anything, they are no drift. One that expects anything holds for all below its path too.
    reasons: what a changed setting is, by its path, for it and all below it. What is not named is
        the config of the job.
    task: the block that says what is launched.
    of_run: the blocks that are made of the run which the job launches.
    of_notebook: the parts of a member of these blocks that only notebooks have.
    start: says what starts a job, of its document.
    link: where a person looks at a job, of its workspace and its id.
    changing: the levels of permissions that let somebody change a job.
    staged_by: the user whose own staging folder a job is launched from, of its document; None where
        the folder is nobody's own.
    is_id: whether a text may be the id of a job.
    manager: says who else manages a job, of its document, in words for messages; None where nobody
        does.
    """

    defaults: Mapping[str, JobDefault] = field(default_factory=lambda: MappingProxyType({}))
    reasons: Mapping[str, JobRule] = field(default_factory=lambda: MappingProxyType({}))
    task: str = ""
    of_run: frozenset[str] = frozenset()
    of_notebook: frozenset[str] = frozenset()
    start: Callable[[Mapping[str, Json]], JobStart] = lambda document: JobStart()  # noqa: ARG005
    link: Callable[[str, str], str] = lambda workspace, job_id: f"{workspace} {job_id}"
    changing: frozenset[str] = frozenset()
    staged_by: Callable[[Mapping[str, Json]], str | None] = lambda document: None  # noqa: ARG005
    is_id: Callable[[str], bool] = bool
    manager: Callable[[Mapping[str, Json]], str | None] = lambda document: None  # noqa: ARG005

    def is_default(self, path: str, value: Json) -> bool:
        """Whether the platform says so by itself where nobody asked for anything at `path`.
        Settings that are empty are never drift: a platform writes them, or leaves them out."""
        if value in (None, "", [], {}):
            return True
        default = _default(self, path)
        if default is None:
            return False
        return Anything.ANYTHING in default.values or any(
            not isinstance(one, Anything) and canonical(one) == canonical(value)
            for one in default.values
        )


@lru_cache(maxsize=4096)
def _default(rules: JobRules, path: str) -> JobDefault | None:
    parts = path.split(".")
    for pattern, default in rules.defaults.items():
        names = pattern.split(".")
        above = Anything.ANYTHING in default.values
        if (len(names) == len(parts) or above) and _fits(names, parts):
            return default
    return None


def first_match(patterns: Iterable[tuple[str, JobRule]], path: str) -> JobRule | None:
    """The rule of the first pattern that holds for a path, or for what is above it."""
    parts = path.split(".")
    return next((rule for pattern, rule in patterns if _fits(pattern.split("."), parts)), None)


def _fits(names: list[str], parts: list[str]) -> bool:
    return len(names) <= len(parts) and all(
        name in ("*", part) for name, part in zip(names, parts, strict=False)
    )
