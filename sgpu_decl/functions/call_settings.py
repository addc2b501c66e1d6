"""The parameters of the decorators: several spellings become one setting."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypedDict

from sgpu_decl.compute import read_gpu_type
from sgpu_decl.errors import InvalidInput
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.jsonable import Json

DEFAULT_TIMEOUT = 10_800.0  # seconds, of functions that run on this machine


class Unset:
    """The parameter was left out; None may be a value."""

    def __repr__(self) -> str:
        return "<unset>"


UNSET: Final = Unset()


class Parameters(TypedDict, total=False):
    """What the decorators take, by name; `ray` is for `@ray_launch` alone."""

    gpus: int | None
    num_accelerators: int | None
    num_gpus: int | None
    gpu_type: str | GPUType | None
    accelerator_type: str | GPUType | None
    remote: bool
    timeout: float | str | timedelta | Unset | None
    run_async: bool
    target: str | None
    ray: Mapping[str, object] | bool | None


_COUNTS = ("gpus", "num_accelerators", "num_gpus")
_TYPES = ("gpu_type", "accelerator_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`gpus` and `gpu_type` are None where the project or the machine decides. `timeout` is in
    seconds, None for no limit. `ray` has the options of the Ray cluster whose driver the function
    is, None for a function that runs as ranks. `max_parallel` limits the calls of a sweep.
    `parameters` maps a field of a run to the parameter that sets it."""

    gpus: int | None = None
    gpu_type: str | None = None
    remote: bool = False
    timeout: float | Unset | None = UNSET
    run_async: bool = False
    target: str | None = None
    ray: Mapping[str, Json] | None = None
    max_parallel: int | None = None
    parameters: Mapping[str, str] = field(default_factory=lambda: {"type": "gpu_type"})

    def run_fields(self) -> dict[str, Json]:
        """The settings as fields of a run."""
        fields: dict[str, Json] = {}
        if self.ray is not None and self.ray.get("cluster") is not None:
            fields |= {"gpus": 0, "type": GPUType.CPU.name}  # the function asks Ray for GPUs
        if self.gpus is not None:
            fields["gpus"] = self.gpus
        if self.gpu_type is not None:
            fields["type"] = self.gpu_type
        if not isinstance(self.timeout, Unset):
            fields["timeout"] = None if self.timeout is None else f"{self.timeout:g}s"
        if self.ray is not None:
            fields["ray"] = dict(self.ray) or True
        if self.max_parallel is not None:
            fields["max_parallel"] = self.max_parallel
        return fields


def merged_settings(before: Settings, values: Mapping[str, object]) -> Settings:
    """Merge the parameters of a decorator, or of `with_overrides`, over earlier settings.

    Args:
        values: parameters by the names that the user gave them.

    Raises:
        InvalidInput: a value is of the wrong kind, or two names of one setting differ.
    """
    known = [name for name in _PARAMETERS if name != "ray" or before.ray is not None]
    for name in values:
        if name not in known:
            raise _unknown(name, known)
    changes: dict[str, Any] = {}
    parameters = dict(before.parameters)
    if "num_gpus" in values:
        warnings.warn("`num_gpus` is called `gpus` here", FutureWarning, stacklevel=3)
    count = _one_of(values, _COUNTS)
    if count is not None:
        parameters["gpus"], changes["gpus"] = count, positive(count, values[count])
    kind = _one_of(values, _TYPES)
    if kind is not None:
        parameters["type"] = kind
        changes["gpu_type"] = _type(kind, values[kind])
    if not isinstance(timeout := values.get("timeout", UNSET), Unset):
        parameters["timeout"] = "timeout"
        changes["timeout"] = _timeout(timeout)
    for name in ("remote", "run_async"):
        if name in values:
            changes[name] = _flag(name, values[name])
    if (ray := values.get("ray")) is not None:
        parameters["ray"], changes["ray"] = "ray", _ray(ray)
    if (target := values.get("target")) is not None:
        changes["target"] = _text("target", target)
    return replace(before, **changes, parameters=parameters)


_PARAMETERS = tuple(Parameters.__annotations__)


class UnknownParameter(InvalidInput, TypeError):
    code = "unknown_parameter"


def _unknown(name: str, known: Sequence[str]) -> UnknownParameter:
    from sgpu_decl.diagnostics.nearest_names import nearest

    decorator = "ray_launch" if "ray" in known else "distributed"
    near = nearest(name, known)
    hint = f"did you mean `{near}`?" if near else f"it takes {', '.join(known)}"
    if name == "ray":
        hint = "`@ray_launch` makes a function the driver of a Ray cluster"
    return UnknownParameter(f"`{decorator}` has no parameter `{name}`", hint=hint)


def _one_of(values: Mapping[str, object], names: tuple[str, ...]) -> str | None:
    """The name that a setting was given by; two of them must say the same."""
    spellings = [name for name in names if values.get(name) is not None]
    for other in spellings[1:]:
        if values[other] != values[spellings[0]]:
            raise InvalidInput(
                f"`{spellings[0]}` and `{other}` are the same setting with different values: "
                f"`{values[spellings[0]]}` and `{values[other]}`",
                hint=f"leave `{other}` out",
                code="parameters_differ",
            )
    return spellings[0] if spellings else None


def positive(name: str, value: object) -> int:
    """A count that the user gave.

    Raises:
        InvalidInput: it is none, or below 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        counted = "calls at once" if name == "max_parallel" else "ranks, one on each GPU"
        raise _wrong(name, "a whole number of 1 or more", value, f"it is the number of {counted}")
    return value


def _type(name: str, value: object) -> str:
    kind = read_gpu_type(value, parameter=name)
    return kind.name if kind.node is None else str(value).strip()


def _timeout(value: object) -> float | None:
    """Seconds, a `timedelta`, or a duration as in YAML."""
    if value is None:
        return None
    seconds: float | None = None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        from sgpu_decl.config.text_types import Duration

        try:
            seconds = Duration.read(value).seconds
        except ValueError:
            seconds = None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        hint = "write `timeout=3600`, `timeout='6h'`, or `timeout=None` for no limit"
        raise _wrong("timeout", "a number of seconds", value, hint)
    return seconds


def _ray(value: object) -> dict[str, Json]:
    """The options of a Ray cluster. The reader of runs knows which there are."""
    if value is True:
        return {}
    try:
        return _options(value)
    except TypeError:
        hint = "write the options as in the YAML: `ray={'num_cpus': 8, 'dashboard': True}`"
        raise _wrong("ray", "a dictionary of options", value, hint) from None


def _options(value: object) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        raise TypeError
    options: dict[str, Json] = {}
    for name, option in value.items():
        if not isinstance(name, str):
            raise TypeError
        if isinstance(option, Mapping):
            options[name] = _options(option)
        elif isinstance(option, timedelta):
            options[name] = f"{option.total_seconds():g}s"
        elif option is None or isinstance(option, str | int | float):
            options[name] = option
        else:
            raise TypeError
    return options


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(name, "True or False", value, f"write `{name}=True`")


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(name, "text", value, "name one of the project's `targets`")


def _wrong(name: str, kind: str, value: object, hint: str) -> InvalidInput:
    return InvalidInput(
        f"`{name}` must be {kind}, not `{value!r}`", hint=hint, code="wrong_parameter"
    )
