"""A run: the root of a run file, or an entry of `runs` in a project file."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
    model_validator,
)

from sgpu_decl.config.backend import Backend, read_backend
from sgpu_decl.config.block import NONE_IF_EMPTY, Block, Flag, Name, Positive, name_or_address
from sgpu_decl.config.cross_field import ComparedFields, contradictions
from sgpu_decl.config.entry import Args, Command, Entrypoint
from sgpu_decl.config.env import Env
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.idle import Idle
from sgpu_decl.config.on_finish import OnFinish
from sgpu_decl.config.other_tool_keys import OTHER_TOOL_KEYS
from sgpu_decl.config.ray import Ray
from sgpu_decl.config.run_blocks import (
    Code,
    Launch,
    Lifecycle,
    Logs,
    Mlflow,
    Permission,
    Retry,
)
from sgpu_decl.config.text_types import Duration, problem
from sgpu_decl.diagnostics.amounts import duration_hint, read_duration
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.text.shape import OtherToolKey

# They name a run or multiply it, and are no part of what one run is.
NOT_IN_SPEC = frozenset({"name", "matrix", "renamed_from", "enabled"})

AxisName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


def _scalar(value: object) -> object:
    if isinstance(value, bool | int | float | str):
        return value
    raise problem("wrong_type", "{path} must be text, a number, true or false", "axes hold scalars")


Cell = Annotated[StrictBool | StrictInt | StrictFloat | str, BeforeValidator(_scalar)]


def _pool(name: str) -> str:
    if not name.strip():
        raise problem("empty_value", "{path} is empty", "name a pool, or remove it")
    return name


def _tag(name: str) -> str:
    if not name:
        raise problem("empty_value", "a name in {path} is empty", "give the tag one, or remove it")
    if name == "mlflow.runName":
        raise problem(
            "reserved_tag", "{path} is the name of the MLflow run", "use `mlflow.run_name`"
        )
    if name.startswith("sgpu."):
        hint = "choose a name that does not begin with `sgpu.`"
        raise problem("reserved_tag", "{path} is a name for sgpu's own tags", hint)
    return name


def _positive(value: Duration) -> Duration:
    if value.seconds <= 0:
        raise problem("bad_duration", "{path} must be longer than nothing", "leave it out for none")
    return value


def _auto_or_limit(value: object) -> object:
    """`auto`, or a limit; a text that is neither is said to be neither."""
    if value == "auto":
        return value
    if isinstance(value, str) and read_duration(value) is None:
        summary = "{path} must be a duration or `auto`, not {given}"
        raise problem("bad_duration", summary, duration_hint(value))
    limit = Duration.read(value)
    if limit.seconds <= 0:
        hint = "write `60s`; `launch: {flight_recorder: off}` keeps sgpu from asking"
        raise problem("bad_duration", "{path} must be longer than nothing", hint)
    return limit


def _ray(value: object) -> object:
    """`true` is a block without options. What other tools read as true or false is named."""
    if isinstance(value, bool):
        return {} if value else None
    if value is None or isinstance(value, Mapping | Ray):
        return value
    first = value.strip().lower().partition(" ")[0] if isinstance(value, str) else ""
    hint = "write `ray: true`, or options such as `ray: {num_cpus: 8}`"
    if first in ("true", "yes", "on", "y"):
        hint = "write `ray: true`, without quotes"
    elif first in ("false", "no", "off", "n", "none"):
        hint = "write `ray: false`, without quotes, or remove it"
    raise problem(
        "wrong_type", "{path} must be true, false or a block of options, not {given}", hint
    )


def _somebody(value: OnFinish | None) -> OnFinish | None:
    return value if value is not None and value.says_something else None


Matrix = Annotated[
    dict[AxisName, Annotated[tuple[Cell, ...], Field(min_length=1)]], Field(min_length=1)
]
Pool = Annotated[str, AfterValidator(_pool)]
TagName = Annotated[str, AfterValidator(_tag)]
Limit = Annotated[Duration, AfterValidator(_positive)]


def _run_name(text: str) -> str:
    """`train`, also where its address is written: `run.train`."""
    return text.removeprefix("run.")


OldName = Annotated[str, Field(pattern=name_or_address("run")), AfterValidator(_run_name)]


class RunConfig(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = OTHER_TOOL_KEYS

    # Blocks that are left out are made without their validators, which nothing else needs.
    name: Name = Field(description="The run's name; in a project file it is the key under `runs`.")
    renamed_from: OldName | None = Field(
        None,
        description="The earlier name of the run. The run keeps its history, and is not launched "
        "again. Remove the line once you have applied it in all targets.",
    )
    description: str | None = Field(None, description="What the run is for.")
    enabled: Flag = Field(
        default=True,
        description="Whether the run belongs to the project. A target that sets `false` leaves it "
        "out: nothing is launched there, and what is recorded stays.",
    )
    tags: dict[TagName, str] = Field({}, description="Labels: tags of the MLflow run.")
    # No cluster is as large: a number beyond is a mistake, and one without end breaks arithmetic.
    gpus: StrictInt = Field(
        ge=0,
        le=1_000_000,
        description="The number of GPUs, with one rank on each: the world size. 0 with "
        "`ray: {cluster: existing}`, whose program asks Ray for GPUs.",
    )
    type: GpuType = Field(
        description="The kind of GPU by its name, such as A10, A100, A100_80GB, H100, H200, B300, "
        "L4, L40S, T4, V100, RTX_4090 or MI300X; GPU for any GPU; CPU for ranks without one; or "
        "the name of a node, such as GPU_8xH100, in upper or lower case. The backend decides "
        "which types and counts you can use."
    )
    entrypoint: Entrypoint | None = Field(
        None,
        description="The Python to run: `FILE.py`, `FILE.py:FUNCTION` or "
        "`package.module:FUNCTION`. Either this or `command`.",
    )
    command: Command | None = Field(
        None, description="A program and its arguments as a list, or text for `bash -euo pipefail`."
    )
    args: Annotated[Args | None, NONE_IF_EMPTY] = Field(
        None, description="A mapping: the function's keyword arguments. A list: the script's argv."
    )
    parameters: Annotated[dict[str, JsonValue] | None, NONE_IF_EMPTY] = Field(
        None,
        description="A mapping that ranks find in a YAML file, which `HYPERPARAMETERS_PATH` names.",
    )
    launch: Launch = Field(Launch.model_construct(), description="How ranks are started.")
    env: Env = Field(
        Env.model_construct(), description="The Python environment, variables and secrets."
    )
    code: Code = Field(Code.model_construct(), description="Which files are the code of the run.")
    ray: Annotated[Ray | None, BeforeValidator(_ray)] = Field(
        None,
        description="Start a Ray cluster on the nodes of the run, with its program as the driver: "
        "`true`, or the options of the cluster. With `cluster: existing`, it is the driver of the "
        "cluster of the backend.",
    )
    timeout: Limit | None = Field(None, description="How long the ranks may run, such as `6h`.")
    grace: Duration = Field(
        Duration(30.0),
        description="The time between asking ranks to stop (SIGTERM) and killing them.",
    )
    startup_timeout: Limit | None = Field(
        None, description="How long the start of all ranks may take."
    )
    progress_timeout: Limit | None = Field(
        None, description="How long ranks may show no sign of progress."
    )
    preflight: Flag = Field(
        default=False,
        description="Before ranks start, measure each GPU, or processor, beside the others of its "
        "node. If one is slower than 70 % of the others, the run does not start.",
    )
    idle: Idle | None = Field(
        None, description="What happens to a run that does nothing with its GPUs; default: nothing."
    )
    hang_after: Annotated[Literal["auto"] | Limit, BeforeValidator(_auto_or_limit)] = Field(
        Duration(60.0),
        description="How long ranks may wait in a collective that others have not entered, until "
        "sgpu says so. `auto`: five times the longest gap seen between collectives, and at least "
        "30 seconds.",
    )
    hang: Literal["warn", "stop"] = Field(
        "warn", description="What to do once ranks hang for `hang_after`: say so, or end the run."
    )
    resume: Literal["auto"] | None = Field(
        None,
        description="`auto`: ranks, even restarted ones, find the output of an earlier attempt in "
        "the folder that `SGPU_PREVIOUS_OUTPUT_DIR` names. It is the newest attempt that left "
        "output.",
    )
    after: tuple[Annotated[str, AfterValidator(_run_name)], ...] = Field(
        (),
        description="Names or addresses of runs of the same project that must have succeeded "
        "before this one starts. "
        "`${run.NAME.output}` is the folder of their output, in `args`, `parameters`, `command` "
        "and `env.variables`.",
    )
    retry: Retry = Field(Retry.model_construct(), description="When ranks are started again.")
    logs: Logs = Field(Logs.model_construct(), description="Options of the log files of ranks.")
    mlflow: Mlflow = Field(Mlflow.model_construct(), description="The tracking of the run.")
    matrix: Matrix | None = Field(
        None,
        description="Axes and their values: one run for each combination. A value goes into "
        "`args` under its axis' name, and wherever `${matrix.axis}` stands.",
    )
    max_parallel: Positive | None = Field(
        None,
        description="How many runs of the matrix are active at once on this machine; the others "
        "wait. Default: no limit, so that they wait for GPUs alone.",
    )
    until: Literal["success", "always"] = Field(
        "success",
        description="`success`: launch until an attempt has succeeded. `always`: "
        "launch at every apply.",
    )
    on_active: Literal["error", "replace", "queue", "parallel"] = Field(
        "error", description="What to do with a changed run that is active."
    )
    lifecycle: Lifecycle = Field(
        Lifecycle.model_construct(), description="What plans may do to the run."
    )
    pool: Pool | None = Field(
        None,
        description="The pool of the GPUs, if the backend has pools: the id of a pool, `reserved` "
        "(a reserved pool, if you may use one) or `on_demand`.",
    )
    priority: str | None = Field(None, description="The priority, by the backend's name for it.")
    permissions: tuple[Permission, ...] = Field(
        (), description="Who may see or manage the run, if the backend has users."
    )
    budget: str | None = Field(None, description="The budget or policy that pays for the run.")
    image: str | None = Field(
        None, description="The container image, if the backend supports images."
    )
    on_finish: Annotated[OnFinish | None, AfterValidator(_somebody)] = Field(
        None,
        description="Who is told when the run has ended: a command, a webhook, or, on Databricks, "
        "mail addresses.",
    )
    report: Flag = Field(
        default=False,
        description="Whether the page of `sgpu report` becomes an artifact of the MLflow run: once "
        "`sgpu apply`, `sgpu run` or `sgpu wait` has seen the end, or by `sgpu report --upload`.",
    )
    backend: Backend = Field(
        read_backend({}),
        description="Where ranks run; `local` is this machine.",
    )

    @property
    def drives_existing(self) -> bool:
        """Whether the program is the driver of a Ray cluster that the run does not start."""
        return self.ray is not None and self.ray.cluster == "existing"

    @property
    def ranks(self) -> int:
        """How many processes a launch starts, if `launch.per` is no node: the world size. The
        driver of an existing Ray cluster is one."""
        return self.gpus or 1

    @property
    def secrets(self) -> dict[str, str]:
        """The references that a launch resolves, by the variable that takes the value to a node:
        those of ranks, and those of `on_finish`."""
        return {**self.env.secrets, **(self.on_finish.secrets if self.on_finish else {})}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        conflicts = contradictions(
            ComparedFields(
                gpus=self.gpus,
                type=self.type,
                entrypoint=self.entrypoint is not None,
                command=self.command is not None,
                args=self.args is not None,
                parameters=self.parameters is not None,
                per_node=self.launch.per == "node",
                warm_modules=isinstance(self.launch.warm, tuple),
                redacted=self.logs.redact,
                variables=self.env.variables,
                secrets=self.env.secrets,
                environment=self.env.origins,
                ray=self.ray is not None,
                ray_gpus=self.ray.num_gpus if self.ray is not None else None,
                drives_existing=self.drives_existing,
                ray_fields=self.ray.model_fields_set if self.ray is not None else (),
                launch=self.launch.model_fields_set,
            )
        )
        if conflicts:
            raise problem(conflicts[0].code, conflicts[0].summary, conflicts[0].hint, all=conflicts)
        return self


class ProjectRun(RunConfig):
    targets: tuple[str, ...] | None = Field(
        None,
        description="The targets that have the run; default: all. The others leave it out, as with "
        "`enabled: false`. `default` stands for commands without a target.",
    )


@lru_cache(maxsize=16_384)
def run_config(name: str, spec: Spec) -> RunConfig:
    """The config of a run that was planned or recorded, validated once in a process.

    Raises:
        ValueError: another version of sgpu has written it, or something else.
    """
    return RunConfig.model_validate({"name": name, **spec.fields})
