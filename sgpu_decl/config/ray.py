"""`ray`: the run's program is the driver of a Ray cluster: its own one, or one that is there."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictFloat,
    StrictInt,
    ValidationInfo,
)

from sgpu_decl.config.block import Block, Flag
from sgpu_decl.config.env import VariableName
from sgpu_decl.config.text_types import Duration, Size, problem
from sgpu_decl.model.ray_size import reserved_for_ray

_LONGEST_TEMP_DIR = 34
"""Bytes. A cluster adds 9 for a folder of its own, Ray up to 64 for its sockets
(`/session_DATE_PID/sockets/plasma_store`), and the kernel takes 107 (unix(7))."""

_SHORTEST_INTERVAL = 1.0  # seconds; Ray itself measures less often
_SMALLEST_STORE = 75 << 20  # bytes; `ray start` refuses less
_MOST = 10**14
"""Of each resource (`MAX_RESOURCE_QUANTITY` in Ray's `ray_constants.py`)."""

_BUILT_IN = {  # the names of Ray's own resources in small letters, each with what to write instead
    "cpu": "use `num_cpus`",
    "gpu": "use `num_gpus`",
    "memory": "remove it: Ray counts the memory that the run has on the node",
    "object_store_memory": "use `object_store_memory`",
}
_IN_OTHER_FIELDS = {  # variables that must not be set in `env`, each with the way out
    "PYTHONPATH": "write it in `env.variables` of the run, where it holds for Ray's processes too",
    "CUDA_VISIBLE_DEVICES": "use `num_gpus`: the nodes have the GPUs of the run",
    "RAY_TMPDIR": "use `temp_dir`",
    "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": "use `object_store_memory`",
    "RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION": "use `object_store_memory`",
}


def _resource_name(name: str) -> str:
    if (way_out := _BUILT_IN.get(name.lower())) is not None:
        raise problem("reserved_resource", "{path} is a resource of Ray's own", way_out)
    if not name:
        raise problem("reserved_resource", "a resource of {path} has no name", "give it one")
    if name.startswith("node:"):
        raise problem("reserved_resource", "{path} is a name that Ray gives to nodes", "rename it")
    return name


def _whole(lowest: int, hint: str, highest: int = _MOST) -> BeforeValidator:
    """Refuse what is no whole number between these, with a way out."""

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int):
            raise problem("wrong_type", "{path} must be a whole number, not {given}", hint)
        if not lowest <= value <= highest:
            bounds = f"from {lowest} to {highest}"
            if highest == _MOST:
                bounds = f"at least {lowest}" if value < lowest else f"at most {_MOST:.0e}"
            raise problem("out_of_range", f"{{path}} must be {bounds}, not {{given}}", hint)
        return value

    return BeforeValidator(check)


def _amount(value: object) -> object:
    hint = "write how much a node has of it, and leave it out where a node has none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise problem("wrong_type", "{path} must be a number, not {given}", hint)
    if value <= 0:
        raise problem("out_of_range", "{path} must be more than 0, not {given}", hint)
    if value != value // 1:
        summary = "{path} must be a whole number, not {given}"
        raise problem("out_of_range", summary, "a task may ask for a part of 1, but a node has all")
    if value > _MOST:
        summary = f"{{path}} must be at most {_MOST:.0e}, not {{given}}"
        raise problem("out_of_range", summary, "count in a larger unit, such as GB")
    return value


def _mapping(example: str) -> BeforeValidator:
    def check(value: object) -> object:
        if not isinstance(value, Mapping):
            hint = f"write it as `{example}`"
            raise problem("wrong_type", "{path} must be a mapping, not {given}", hint)
        return value

    return BeforeValidator(check)


def _dashboard(value: object) -> object:
    if not isinstance(value, bool):
        hint = "write `dashboard: true`; sgpu chooses its port, and `sgpu status` shows it"
        raise problem("wrong_type", "{path} must be true or false, not {given}", hint)
    return value


def _other_port(number: int | None, block: ValidationInfo) -> int | None:
    if number is not None and number == block.data.get("port"):
        raise problem(
            "port_twice",
            f"`port` and `metrics_export_port` of the cluster are both {number}",
            "choose another one, or leave it out for a free port that sgpu chooses",
        )
    return number


def _variable(name: str) -> str:
    if (way_out := reserved_for_ray(name)) is not None:
        raise problem("reserved_variable", f"sgpu decides about `{name}` itself", way_out)
    if (way_out := _IN_OTHER_FIELDS.get(name)) is not None:
        raise problem("reserved_variable", f"`{name}` must not be set in `ray.env`", way_out)
    return name


def _large_enough(size: Size) -> Size:
    if size.bytes < _SMALLEST_STORE:
        raise problem("bad_size", "{path} must be at least 75MiB, not {given}", "write `1GiB`")
    return size


def _short_path(path: str) -> str:
    if not path.startswith("/"):
        raise problem(
            "bad_temp_dir", "{path} must be an absolute path, not {given}", "begin it with /"
        )
    if len(path.encode()) > _LONGEST_TEMP_DIR:
        summary = (
            f"{{path}} is longer than {_LONGEST_TEMP_DIR} bytes: Ray's sockets could not lie there"
        )
        raise problem("bad_temp_dir", summary, "use a short path, such as /scratch/ray")
    return path


def _positive(value: Duration) -> Duration:
    if value.seconds <= 0:
        raise problem("bad_duration", "{path} must be longer than nothing", "write `60s`")
    return value


def _frequent(value: Duration) -> Duration:
    if value.seconds < _SHORTEST_INTERVAL:
        summary = f"{{path}} must be at least {_SHORTEST_INTERVAL:g}s, not {{given}}"
        raise problem("bad_duration", summary, "Ray measures every 5 to 10 seconds: write `10s`")
    return value


Cpus = Annotated[
    StrictInt,
    Field(ge=1, le=_MOST),
    _whole(1, "the driver's tasks need one; leave it out for all CPUs that the run has"),
]
Gpus = Annotated[
    StrictInt,
    Field(ge=0, le=_MOST),
    _whole(0, "leave it out for the GPUs that the run has on each node"),
]
Amount = Annotated[
    StrictFloat, Field(ge=1, le=_MOST), BeforeValidator(_amount), PlainSerializer(int)
]
ResourceName = Annotated[str, AfterValidator(_resource_name)]
Port = Annotated[
    StrictInt,
    Field(ge=1, le=65535),
    _whole(1, "leave it out for a free port that sgpu chooses", highest=65535),
]
RayVariable = Annotated[VariableName, AfterValidator(_variable)]
Period = Annotated[Duration, AfterValidator(_positive)]


class Ray(Block):
    """`true`, or the options of the cluster that is started for the run, or what its driver takes
    of a cluster that is there."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "enabled": "`ray: true` and `ray: false` replace it",
        "cpus_per_node": "`num_cpus` replaces it",
        "gpus_per_worker": "`num_gpus` replaces it, and counts the GPUs of each node",
        "address": "the run starts a cluster of its own; `cluster: existing` makes it the driver "
        "of the one that `backend: {kind: ray, address: ...}` names",
        "startup_timeout": "`head_startup_timeout` and `worker_join_timeout` replace it",
    }

    cluster: Literal["existing"] | None = Field(
        None,
        description="`existing`: the run starts no cluster. Its program is the driver of the Ray "
        "cluster of `backend: {kind: ray}`, and asks Ray for what its tasks need, so `gpus` is 0.",
    )
    num_cpus: Cpus | None = Field(
        None,
        description="CPUs of each node. Default: those that the run may use there. On an existing "
        "cluster: those of the driver alone. Default: none.",
    )
    num_gpus: Gpus | None = Field(
        None,
        description="GPUs of each node. Default: those that the run has there. On an existing "
        "cluster: those of the driver alone. Default: none.",
    )
    resources: Annotated[dict[ResourceName, Amount], _mapping("{ssd: 1}")] = Field(
        {},
        description="Custom resources of each node: names and amounts. On an existing cluster: "
        "those that the driver takes.",
    )
    object_store_memory: Annotated[Size, AfterValidator(_large_enough)] | None = Field(
        None,
        description="Memory of the object store of each node. Default: 30 % of the memory that "
        "the run has there, but no more than the free space in /dev/shm, nor than half of the "
        "available memory.",
    )
    temp_dir: Annotated[str, AfterValidator(_short_path)] | None = Field(
        None,
        description="The folder of Ray's sockets, logs and spilled objects on each node: an "
        f"absolute path of at most {_LONGEST_TEMP_DIR} bytes. Default: a private folder in /tmp.",
    )
    port: Port | None = Field(
        None, description="The port of the head node. Default: a free port that sgpu chooses."
    )
    dashboard: Annotated[Flag, BeforeValidator(_dashboard)] = Field(
        default=False,
        description="Whether Ray's dashboard runs, on loopback of the head node.",
    )
    metrics_export_port: Annotated[Port | None, AfterValidator(_other_port)] = Field(
        None,
        description="The port of a node's metrics. If it is in use, sgpu chooses another port.",
    )
    metrics_interval: Annotated[Duration, AfterValidator(_frequent)] = Field(
        Duration(10.0),
        description="How often the metrics of the nodes are read, at least "
        f"{_SHORTEST_INTERVAL:g}s.",
    )
    head_startup_timeout: Period = Field(
        Duration(180.0),
        description="How long it may take until the head node is ready, including the import of "
        "Ray on all nodes.",
    )
    worker_join_timeout: Period = Field(
        Duration(120.0), description="How long the other nodes may take to join the head node."
    )
    env: Annotated[dict[RayVariable, str], _mapping("{NAME: value}")] = Field(
        {}, description="Environment variables of Ray's own processes."
    )
