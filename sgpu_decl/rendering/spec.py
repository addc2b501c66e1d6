"""`spec.json`: all that the agent and the ranks of one attempt need to know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sgpu_decl.model.jsonable import Json, canonical

__all__ = [
    "Entry",
    "EntryKind",
    "Gpus",
    "LaunchSpec",
    "Parallel",
    "Retry",
    "Tracker",
    "Warm",
    "render_spec",
]

EntryKind = Literal["script", "file_function", "module_function", "command", "shell", "pickle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a rank runs; `path` is absolute, or relative to the code folder."""

    kind: EntryKind
    path: str | None = None
    module: str | None = None
    function: str | None = None
    command: tuple[str, ...] | None = None
    shell: str | None = None
    args: Mapping[str, Json] | tuple[Json, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The devices of this machine and how many of them the run needs (0: ranks without a GPU)."""

    lock_dir: str
    devices: tuple[str, ...] = ()
    need: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """At most `limit` of the runs that share this lock folder are active at once."""

    lock_dir: str
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Restarts inside the attempt: how many, for whose fault, after how many seconds."""

    max: int = 0
    on: tuple[str, ...] = ("infra",)
    backoff: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracker:
    """The process that keeps the MLflow run: command line and what it adds to the environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """What a warm parent imports before ranks fork from it.

    `imports` are modules with the names that are taken from each; `required` says that the user
    asked for them, so one that cannot be imported is an error; `refused` is why there is no warm
    start where one could be expected.
    """

    imports: tuple[tuple[str, tuple[str, ...]], ...] = ()
    required: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Times in seconds, folders absolute; `log_limit` in bytes for each stream of a rank.

    Secrets are name to reference; their values travel by pipe.
    """

    token: str
    address: str
    name: str
    attempt: int
    lineage: str
    project_dir: str
    run_dir: str
    output_dir: str
    code_dir: str
    world_size: int
    entry: Entry
    python: str
    gpus: Gpus
    port_lock_dir: str
    per: Literal["rank", "node"] = "rank"
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    grace: float = 30.0
    startup_timeout: float | None = None
    progress_timeout: float | None = None
    retry: Retry = field(default_factory=Retry)
    parallel: Parallel | None = None
    wait_for: tuple[str, ...] = ()
    master_port: int | None = None
    tracker: Tracker | None = None
    warm: Warm | None = None
    log_limit: int | None = 1 << 30


def render_spec(spec: LaunchSpec) -> bytes:
    """Return the bytes of `spec.json`, canonical: `_air.py` carries their SHA-256.

    Raises:
        ValueError: an argument holds NaN or an infinity.
    """
    return (canonical({"v": 1, **_fields(spec)}) + "\n").encode("utf-8", "surrogateescape")


_BLOCKS = (Entry, Gpus, Parallel, Retry, Tracker, Warm)


def _fields(
    block: LaunchSpec | Entry | Gpus | Parallel | Retry | Tracker | Warm,
) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for name in block.__slots__:
        value = getattr(block, name)
        values[name] = _fields(value) if isinstance(value, _BLOCKS) else _plain(value)
    return values


def _plain(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
