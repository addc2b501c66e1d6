"""Whether the GPUs of a machine fit a run, and who else uses them: of this one, or of one that runs
are sent to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.gpu_offer import GpuOffer, up_to

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.gpus.devices import Device, Devices

HERE = "this machine"
# One supervisor holds a pidfd of each rank and makes three files for it: far below this a machine
# has neither the cores nor the descriptors for them.
_MOST_RANKS = 4096
_USERS_SHOWN = 4


def gpu_offers(
    devices: "Devices", users: "Callable[[], Mapping[str, str]]", where: str, *, shares: bool
) -> Sequence[GpuOffer]:
    """The GPUs of a machine, by type.

    Args:
        users: gives who else uses them, in words by the index of each device.
        where: the machine, in words.
        shares: whether ranks get devices that others use.
    """
    kinds: dict[str, list[Device]] = {}
    for device in devices.visible:
        kind = device.kind
        kinds.setdefault(kind.name if kind is not None else device.name or "GPU", []).append(device)
    hidden = f"`{devices.variable}` hides {devices.hidden} more" if devices.hidden else None
    return [
        GpuOffer(
            type=name,
            gpus=up_to(len(found)),
            free=len(found) if shares else sum(one.index not in users() for one in found),
            total=len(found),
            where=where,
            note=hidden,
        )
        for name, found in kinds.items()
    ]


def user_findings(
    config: "RunConfig",
    places: Mapping[str, Place],
    devices: "Callable[[], Devices]",
    users: Callable[[], Mapping[str, str]],
    *,
    shares: str | None,
) -> Iterable[Diagnostic]:
    """Say which of the devices that a run may get are used by others.

    Args:
        users: as `gpu_offers`.
        shares: the hint for a run that has to wait; None for one whose ranks share devices.
    """
    kind = config.type.kind
    if kind is GPUType.CPU:
        return ()
    fitting = [item.index for item in devices().visible if item.may_be(kind)]
    used_by = users()
    said = [used_by[index] for index in fitting if index in used_by]
    if not said or config.gpus > len(fitting):
        return ()
    more = f"; so are {len(said) - _USERS_SHOWN:,} more" if len(said) > _USERS_SHOWN else ""
    used = "; ".join(said[:_USERS_SHOWN]) + more
    waits = config.gpus > len(fitting) - len(said) and shares is not None
    after = "its ranks may share that" if shares is None else "the run gets others"
    return (
        Diagnostic(
            code="gpus_in_use",
            severity=Severity.WARNING if waits else Severity.INFO,
            summary=f"{used}: the run waits until enough GPUs are free"
            if waits
            else f"{used}: {after}",
            place=places.get("gpus"),
            hint=shares if waits else None,
        ),
    )


def rank_findings(
    config: "RunConfig", places: Mapping[str, Place], where: str = HERE
) -> list[Diagnostic]:
    """Refuse more ranks than any machine can have."""
    if config.gpus <= _MOST_RANKS or str(config.launch.per) == "node":
        return []
    return [
        Diagnostic(
            code="too_many_ranks",
            summary=f"`gpus: {config.gpus}` asks for more than {_MOST_RANKS:,} processes on "
            f"{where}",
            place=places.get("gpus"),
            hint="each rank is a process with open logs of its own; use fewer, or a target with "
            "another backend",
        )
    ]


def device_findings(
    config: "RunConfig",
    places: Mapping[str, Place],
    devices: "Callable[[], Devices]",
    where: str = HERE,
) -> list[Diagnostic]:
    """Whether the devices of a machine, which `where` names, fit a run."""
    kind = config.type.kind
    if kind is GPUType.CPU:
        return rank_findings(config, places, where)
    from sgpu_decl.gpus.devices import in_words

    here = devices()
    if not here.visible:
        return [_no_gpu(config, places, here, where)]
    fitting = [device for device in here.visible if device.may_be(kind)]
    if not fitting:
        return [_other_gpu(config, places, here, where)]
    if config.gpus > len(fitting):
        return [_too_few(config, places, here, len(fitting), where)]
    if kind is GPUType.GPU:
        there = "here" if where == HERE else f"on {where}"
        summary = f"`type: GPU` is {in_words(here.visible)} {there}"
    elif not all(device.name for device in fitting):
        summary = f"the types of the GPUs of {where} are unknown: {kind.name} is assumed"
    else:
        return []
    return [
        Diagnostic(
            code="gpus_here",
            severity=Severity.INFO,
            summary=summary,
            place=places.get("type"),
        )
    ]


def _no_gpu(
    config: "RunConfig", places: Mapping[str, Place], here: "Devices", where: str
) -> Diagnostic:
    need = f"`type: {config.type}` needs a GPU"
    elsewhere = "use `type: CPU` here (`--set type=CPU`), or a target with another backend"
    if here.hidden:
        return Diagnostic(
            code="no_gpu",
            summary=f"{need}, and `{here.variable}` hides the {here.hidden} of {where}",
            place=places.get("type"),
            hint=f"unset `{here.variable}`, or name devices in it; or {elsewhere}",
        )
    trouble = f": its driver says `{here.trouble}`" if here.trouble else ""
    return Diagnostic(
        code="no_gpu",
        summary=f"{need}, and {where} has none{' that works' if trouble else ''}{trouble}",
        place=places.get("type"),
        hint=elsewhere,
    )


def _other_gpu(
    config: "RunConfig", places: Mapping[str, Place], here: "Devices", where: str
) -> Diagnostic:
    from sgpu_decl.gpus.devices import in_words

    kinds = dict.fromkeys(device.kind.name for device in here.visible if device.kind is not None)
    types = "".join(f"`type: {name}`, " for name in kinds)
    return Diagnostic(
        code="other_gpu",
        summary=f"{where} has no {config.type}: it has {in_words(here.visible)}",
        place=places.get("type"),
        hint=f"use {types}`type: GPU` for whatever is there, or a target with another backend",
    )


def _too_few(
    config: "RunConfig", places: Mapping[str, Place], here: "Devices", fitting: int, where: str
) -> Diagnostic:
    from sgpu_decl.gpus.devices import in_words

    what = "GPUs" if config.type.kind is GPUType.GPU else f"{config.type} GPUs"
    hidden = f"; `{here.variable}` hides {here.hidden} more" if here.hidden else ""
    return Diagnostic(
        code="too_few_gpus",
        summary=f"`gpus: {config.gpus}` is more than the {fitting} {what} of {where}: "
        f"{in_words(here.visible)}{hidden}",
        place=places.get("gpus"),
        hint=f"use `gpus: {fitting}` here, or a target with another backend",
    )
