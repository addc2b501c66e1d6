"""`spec.json`: all that the agent and the ranks of one attempt need to know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sgpu_decl.model.jsonable import Json, canonical

if TYPE_CHECKING:
    from sgpu_decl.config.idle import Idle
    from sgpu_decl.config.run_blocks import Retry

EntryKind = Literal["script", "file_function", "module_function", "command", "shell", "pickle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """A function that travels with its arguments, in the attempt folder.

    `func.pkl` and `inputs.pkl`, `(args, kwargs)`, are streams of pickle protocol 5; `func.bin` and
    `inputs.bin` hold their out-of-band buffers one after the other, and are there where those are.

    Attributes:
        name: of the function, for messages.
        python: `3.11`, the caller's; bytecode goes with its minor version alone.
        cloudpickle: the version that pickled; None where loading needs none.
        path: folders of the caller's `sys.path`, for the ranks' own after the working folder.
        fill: parameters to fill in, out of `rank` and `world_size`.
        group: whether torch's process group is brought up for the call.
        function_crc: CRC-32 of `func.pkl`; a damaged pickle could do anything.
        inputs_crc: the same of `inputs.pkl`.
        function_buffers: (offset, length) in `func.bin` of each buffer, in bytes.
        inputs_buffers: the same in `inputs.bin`.
    """

    name: str
    python: str
    function_crc: int
    inputs_crc: int
    cloudpickle: str | None = None
    path: tuple[str, ...] = ()
    fill: tuple[Literal["rank", "world_size"], ...] = ()
    group: bool = False
    function_buffers: tuple[tuple[int, int], ...] = ()
    inputs_buffers: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a rank runs; `path` is absolute, or relative to the code folder. A `pickle` is called as
    `call` says, without `args`."""

    kind: EntryKind
    path: str | None = None
    module: str | None = None
    function: str | None = None
    command: tuple[str, ...] | None = None
    shell: str | None = None
    args: Mapping[str, Json] | tuple[Json, ...] | None = None
    call: CallSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The devices of this machine and how many of them the run needs (0: ranks without a GPU).

    `shared_lock_dir` has the locks of all users of the machine; without it, the run also takes
    devices that others use. `callers` are the processes that launched it and may wait for it:
    devices that they use count as free.
    """

    lock_dir: str
    devices: tuple[str, ...] = ()
    need: int = 0
    shared_lock_dir: str = ""
    callers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """At most `limit` of the runs that share this lock folder are active at once."""

    lock_dir: str
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySpec:
    """Restarts inside the attempt: how many, for whose fault, after how many seconds, which double
    for each further one."""

    max: int = 0
    on: tuple[str, ...] = ("infra",)
    backoff: float = 1.0

    @classmethod
    def of(cls, retry: "Retry") -> "RetrySpec":
        return cls(max=retry.max, on=retry.on, backoff=retry.first_backoff.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySpec:
    """The Ray cluster of a run; what is None, a node finds itself. The amounts are those of each
    node: memory in bytes. Times are in seconds. `env` is for Ray's own processes alone. Without an
    MLflow run, `metrics_interval` is None."""

    num_gpus: int
    num_cpus: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    object_store_memory: int | None = None
    temp_dir: str | None = None
    port: int | None = None
    dashboard: bool = False
    metrics_export_port: int | None = None
    metrics_interval: float | None = 10.0
    head_startup_timeout: float = 180.0
    worker_join_timeout: float = 120.0
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSpec:
    """The process that keeps the MLflow run: command line and what it adds to the environment.

    On nodes, `argv` is the path of an archive, relative to the run's folder, which the interpreter
    of the run starts. `credentials` are the variables that may have credentials of the store;
    `secrets` are those of them whose values are masked.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSpec:
    """Where the end is sent, if it is `on` of `success`, `failure` and `cancelled`. An address that
    is a secret is None here."""

    url: str | None = None
    on: tuple[str, ...] = ("success", "failure", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnFinishSpec:
    """Who is told of the end (`agent/notices`): a command and a webhook. `secrets` are the
    references of the webhook, by the variable of a node; their values travel as those of ranks."""

    entry: Entry | None = None
    webhook: WebhookSpec | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSpec:
    """Use `below` so many percent for so many `seconds` is idle; `stop` ends the attempt then."""

    below: float
    seconds: float
    stop: bool = False

    @classmethod
    def of(cls, idle: "Idle") -> "IdleSpec":
        return cls(below=idle.below.percent, seconds=idle.seconds, stop=idle.then == "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightSpec:
    """GPUs are measured for so many `seconds`, once their processes are there, which may take as
    long as `patience`. One that has less than `least` of the speed of its peers is too slow."""

    least: float = 0.7
    seconds: float = 10.0
    patience: float = 300.0


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
class Tether:
    """A process that the attempt shall not outlive, known by its pid and by when it started.

    `start` is field 22 of `/proc/PID/stat` (proc(5)): clock ticks since the machine started.
    """

    pid: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Times in seconds, folders absolute; `log_limit` in bytes for each stream of a rank.

    `code_dir` is a copy of `code_root`, which is empty where that is on another machine; None where
    there is no copy.

    Secrets are name to reference; their values travel by pipe. `parameters` is the text of a YAML
    file that the agent writes for the ranks. With `control_key` the nodes of a run prove to each
    other that they belong to it. It is random and shown nowhere, as the token may be. A run on one
    node needs none. `git` notes which commit the code is from. With `ray`, the run is one driver on
    the first node, beside a Ray cluster of all nodes. A `ray_driver` is that of the cluster which
    the node belongs to. `after` has the folders of attempts that must
    succeed before ranks start, by their names. With `resume`, ranks find what the attempt
    before left (`agent.attempt.previous_output`).
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
    gpus: Gpus = Gpus(lock_dir="")
    port_lock_dir: str = ""
    per: Literal["rank", "node"] = "rank"
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    grace: float = 30.0
    startup_timeout: float | None = None
    progress_timeout: float | None = None
    idle: IdleSpec | None = None
    preflight: PreflightSpec | None = None
    hang_after: float | None = None
    hang: Literal["warn", "stop"] = "warn"
    flight_recorder: bool = True
    retry: RetrySpec = field(default_factory=RetrySpec)
    resume: bool = False
    parallel: Parallel | None = None
    wait_for: tuple[str, ...] = ()
    after: Mapping[str, str] = field(default_factory=dict)
    master_port: int | None = None
    tracker: TrackerSpec | None = None
    warm: Warm | None = None
    tether: Tether | None = None
    log_limit: int | None = 1 << 30
    code_root: str | None = None
    redact_logs: bool = False
    parameters: str | None = None
    control_key: str | None = None
    git: Mapping[str, str] = field(default_factory=dict)
    ray: RaySpec | None = None
    ray_driver: bool = False
    on_finish: OnFinishSpec | None = None

    @property
    def runs_python(self) -> bool:
        """Whether something of the run starts by `_air.py`, and needs `rank.zip`: not a command
        without a Ray cluster."""
        return self.entry.kind not in ("command", "shell") or self.ray is not None


def render_spec(spec: LaunchSpec) -> bytes:
    """Return the bytes of `spec.json`, canonical: `_air.py` carries their SHA-256.

    Raises:
        ValueError: an argument holds NaN or an infinity.
    """
    return (canonical({"v": 1, **_fields(spec)}) + "\n").encode("utf-8", "surrogateescape")


_Block = (
    CallSpec | Entry | Gpus | IdleSpec | OnFinishSpec | Parallel | PreflightSpec | RaySpec
    | RetrySpec | Tether | TrackerSpec | Warm | WebhookSpec
)  # fmt: skip


def _fields(block: LaunchSpec | _Block) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for name in block.__slots__:
        value = getattr(block, name)
        values[name] = _fields(value) if isinstance(value, _Block) else _plain(value)
    return values


def _plain(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
