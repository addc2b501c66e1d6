"""The `backend` block of a Ray cluster."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from sgpu_decl.backends.ray.api.dashboard_address import (
    DEFAULT_ADDRESS,
    canonical_url,
    refuse_address,
)
from sgpu_decl.backends.ray.api.dashboard_credentials import TOKEN_PLACES
from sgpu_decl.backends.ray.cluster.bundle_counts import TYPE_RESOURCE
from sgpu_decl.backends.ray.placement import Strategy
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.block import Flag, Positive
from sgpu_decl.config.text_types import Size, problem
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.gpu import type_of_device

_OWN_NAMES = {  # of Ray, each with what to write instead
    "GPU": "remove it: each rank has one GPU of `type`",
    "object_store_memory": "remove it: ranks use no object store",
}
_SMALLEST = 0.0001  # Ray counts in steps of it (`src/ray/common/scheduling/fixed_point.h`)
_LEAST_MEMORY = 1 << 20
_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
# Names of Kubernetes, which labels of Ray follow (`ray._private.label_utils`).
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([A-Za-z0-9.-]{{1,253}}/)?{_LABEL}")
_LABEL_VALUE = re.compile(_LABEL)


_AMOUNT_SCHEMA = {"anyOf": [{"type": "number", "minimum": _SMALLEST}, Size.published]}


def _address(text: str) -> str:
    refused = refuse_address(text.strip())
    if refused is not None:
        summary, hint = refused
        raise problem("bad_ray_address", f"{{path}} {summary}", hint)
    return canonical_url(text.strip())


def _rank_resource_name(name: str) -> str:
    for known in ("CPU", "memory"):
        if name != known and name.lower() == known.lower():
            raise problem("reserved_resource", f"{{path}} is `{known}` in Ray", f"write `{known}`")
    for known, hint in _OWN_NAMES.items():
        if name.lower() == known.lower():
            raise problem("reserved_resource", "{path} is a resource of Ray's own", hint)
    if name.startswith(TYPE_RESOURCE):
        summary = "{path} stands for a type of GPU"
        given = name.partition(":")[2]
        kind = type_of_device(given)
        raise problem("reserved_resource", summary, f"write `type: {kind.name if kind else given}`")
    if not name or name.startswith("node:"):
        raise problem(
            "reserved_resource", "{path} is not a name for a custom resource", "remove it"
        )
    return name


def _rank_amount(value: object) -> object:
    """A number, or a size: `4`, `0.5`, `16GB`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Size):
        raise problem("wrong_type", "{path} must be a number or a size", "write `4` or `16GB`")
    if isinstance(value, float) and not math.isfinite(value):
        raise problem("wrong_type", "{path} must be a number, not {given}", "write `4` or `16GB`")
    if isinstance(value, str):
        return float(value) if _PLAIN_NUMBER.fullmatch(value) else Size.read(value)
    return value


def _number(amount: Size | float) -> int | float:
    if isinstance(amount, Size):
        return amount.bytes
    return int(amount) if amount == int(amount) else amount


def _written(amount: Size | float) -> str | int | float:
    return str(amount) if isinstance(amount, Size) else _number(amount)


def _usable(resources: Mapping[str, Size | float]) -> Mapping[str, Size | float]:
    found = tuple(_refused_amounts(resources))
    if found:
        raise problem(found[0].code, found[0].summary, found[0].hint, all=found)
    return resources


def _refused_amounts(resources: Mapping[str, Size | float]) -> Iterator[Diagnostic]:
    for name, amount in resources.items():
        number = _number(amount)
        if name == "CPU" and isinstance(amount, Size):
            code, hint = "wrong_type", "write how many CPUs a rank needs, as in `4` or `0.5`"
            summary = f"`CPU` of `resources_per_rank` must be a number, not the size `{amount}`"
        elif number < _SMALLEST:
            code = "out_of_range"
            summary = f"`{name}` of `resources_per_rank` must be at least {_SMALLEST}, not {number}"
            hint = "remove it where a rank needs none"
            if name == "CPU":
                hint = f"a rank needs at least {_SMALLEST} of a CPU; without `CPU` it has 1"
        elif name == "memory" and number < _LEAST_MEMORY:
            code, hint = "bad_size", "write it as in `16GB`"
            summary = "`memory` of `resources_per_rank` is in bytes"
        else:
            continue
        yield Diagnostic(path=(name,), code=code, summary=summary, hint=hint)


def _label_key(key: str) -> str:
    if not _LABEL_KEY.fullmatch(key):
        hint = "write it as in `market` or `ray.io/market-type`"
        raise problem("bad_ray_label", "{path} is not a valid label name", hint)
    return key


def _label_value(value: str) -> str:
    if not _LABEL_VALUE.fullmatch(value):
        hint = "write the one value that nodes must have, such as `on-demand`"
        raise problem("bad_ray_label", "{path} is not a valid label value", hint)
    return value


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise problem(
            "bad_path", "{path} must be an absolute path without `..`, not {given}", "begin with /"
        )
    return path.rstrip("/") or "/"


RankResourceName = Annotated[str, AfterValidator(_rank_resource_name)]
RankAmount = Annotated[
    Any, BeforeValidator(_rank_amount), PlainSerializer(_written), WithJsonSchema(_AMOUNT_SCHEMA)
]
Resources = Annotated[dict[RankResourceName, RankAmount], AfterValidator(_usable)]
Labels = dict[
    Annotated[str, AfterValidator(_label_key)], Annotated[str, AfterValidator(_label_value)]
]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class RayOptions(BackendOptions):
    """Ranks run on an existing Ray cluster."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "token": f"it is read from {TOKEN_PLACES}",
        "headers": "they are read from `RAY_JOB_HEADERS`",
        "runtime_env": "`env` and `code` of the run replace it",
        "num_cpus": "`resources_per_rank: {CPU: 4}` replaces it",
        "num_gpus": "`gpus` of the run replaces it",
        "resources": "`resources_per_rank` replaces it",
        "nodes": "`ranks_per_node` decides it, with `gpus` of the run",
    }

    address: Annotated[str, AfterValidator(_address)] | None = Field(
        None,
        description="Ray: the URL of the cluster's dashboard. Default: `RAY_API_SERVER_ADDRESS`, "
        f"`RAY_ADDRESS` if it is a URL, `{DEFAULT_ADDRESS}`.",
    )
    ranks_per_node: Positive | None = Field(
        None,
        description="Ray: the number of ranks in a rank group. Default: the largest number for "
        "which the cluster has enough nodes with as many GPUs.",
    )
    resources_per_rank: Resources = Field(
        {},
        description="Ray: resources of each rank beside its GPU: `CPU` (default: 1), `memory`, "
        "and custom resources.",
    )
    strategy: Strategy = Field(
        Strategy.SPREAD,
        description="Ray: `spread` gives each rank group its own node; `pack` lets rank groups "
        "share nodes.",
    )
    labels: Labels = Field({}, description="Ray: labels that the nodes of ranks must have.")
    storage: AbsolutePath | None = Field(
        None,
        description="Ray: a folder that this machine and all nodes have under the same path. "
        "Default: a folder of the head node, which sgpu reads through the dashboard.",
    )
    python: AbsolutePath | None = Field(
        None,
        description="Ray: the Python of ranks, as a path on the nodes. Default: the Python that "
        "runs Ray there.",
    )
    autoscaling: Flag | None = Field(
        None,
        description="Ray: whether the cluster starts nodes when they are needed. Default: true if "
        "its nodes belong to node groups, as all nodes of KubeRay and `ray up` do.",
    )
    insecure: Flag = Field(
        default=False,
        description="Ray: accept an address beyond this machine without encryption.",
    )

    @property
    def rank_resources(self) -> Mapping[str, int | float]:
        """What is set aside for each rank beside its GPU."""
        amounts = {name: _number(amount) for name, amount in self.resources_per_rank.items()}
        return {"CPU": 1, **amounts}
