"""What plans say of boxes, whatever is launched there: their disk, their clock and their kernel; a
store of metrics that their Python cannot keep; and of several, what keeps one run from them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.backends.box.box_reach import require_reach
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.backends.tracker_request import missing_mlflow, store_of
from sgpu_decl.diagnostics.amounts import duration, size
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError
from sgpu_decl.gpus.devices import Device, Devices

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_CLOCK = 5.0  # seconds that clocks may be apart
_LITTLE = 1 << 30  # bytes of a disk
_ON_SEVERAL = {
    "ray": (
        "a run on several `hosts` starts no Ray cluster",
        "use `backend: ray` with the address of a cluster that runs on them",
    ),
    "resume": (
        "with several `hosts`, ranks do not see the output of earlier attempts on other hosts",
        "write checkpoints to a storage that all hosts have, and look for the newest there",
    ),
}


def box_findings(box: Box, place: Place | None) -> Iterator[Diagnostic]:
    """What holds for every run there. Raises BackendError."""
    facts = box.facts
    if abs(facts["ahead"]) > _CLOCK:
        yield Diagnostic(
            code="host_clock",
            severity=Severity.WARNING,
            summary=f"the clock of `{box.host}` is {duration(abs(facts['ahead']))} "
            f"{'ahead of' if facts['ahead'] > 0 else 'behind'} this one: times of its runs are "
            "by that clock",
            place=place,
            hint="have both set by NTP",
        )
    if facts["free"] < _LITTLE:
        yield Diagnostic(
            code="host_disk",
            severity=Severity.WARNING,
            summary=f"the disk of `{box.hello['root']}` on `{box.host}` has "
            f"{size(facts['free'])} left",
            place=place,
            hint="make room there, or name another folder with `backend.storage`",
        )
    if facts["lacks"]:
        yield Diagnostic(
            code="kernel_lacks",
            severity=Severity.INFO,
            summary=f"`{box.host}`: {facts['lacks']}",
            place=place,
            hint="in a container, allow these system calls in its seccomp profile",
        )


def noexec_findings(config: "RunConfig", box: Box, place: Place | None) -> Iterator[Diagnostic]:
    """That compiled modules of an environment do not load there: Linux maps no code from such
    a file system, see `MS_NOEXEC` in https://man7.org/linux/man-pages/man2/mount.2.html"""
    if config.env.origins and box.facts["noexec"]:
        yield Diagnostic(
            code="storage_unusable",
            severity=Severity.WARNING,
            summary=f"`{box.hello['root']}` on `{box.host}` is mounted with `noexec`: "
            "compiled modules of an environment, such as those of torch, do not load there",
            place=place,
            hint="name a folder on another disk with `backend.storage`, or leave out "
            f"`env.{config.env.origins[0]}`: ranks use the Python of the machine then",
        )


def several_findings(
    config: "RunConfig", places: Mapping[str, Place], boxes: Sequence[Box]
) -> Iterator[Diagnostic]:
    """What keeps a run from several boxes."""
    for field, used in (("ray", config.ray is not None), ("resume", config.resume is not None)):
        if used:
            summary, hint = _ON_SEVERAL[field]
            yield Diagnostic(
                code="unsupported_field", summary=summary, place=places.get(field), hint=hint
            )
    if config.ranks % len(boxes):
        yield Diagnostic(
            code="uneven_hosts",
            summary=f"`gpus: {config.gpus}` cannot be shared evenly by {len(boxes)} hosts",
            place=places.get("gpus") or block_place(places),
            hint=f"use a multiple of {len(boxes)}, or other `hosts`",
        )


def reach_findings(boxes: Sequence[Box], place: Place | None) -> Iterator[Diagnostic]:
    """That one of several does not reach another."""
    try:
        require_reach(boxes)
    except BackendError as error:
        yield Diagnostic(code=error.code, summary=error.message, place=place, hint=error.hint)


def no_answer(box: Box) -> BackendError | None:
    """Why a box does not answer."""
    try:
        box.facts  # noqa: B018  it is asked now
    except BackendError as error:
        return error
    return None


def block_place(places: Mapping[str, Place]) -> Place | None:
    """Where a file names the boxes."""
    names = ("backend.hosts", "backend.host", "backend")
    return next((places[name] for name in names if name in places), None)


def devices_of(box: Box) -> Devices:
    """The GPUs of a box. Raises BackendError."""
    return Devices(visible=tuple(Device(**gpu) for gpu in box.facts["gpus"]))


def users_of(box: Box) -> Callable[[], Mapping[str, str]]:
    """Gives who uses GPUs of a box, in words by their index. Raises BackendError."""
    return lambda: box.facts["users"]


def lacks_mlflow(config: "RunConfig", box: Box) -> bool:
    """Whether a run would keep its metrics in a store on its box, by the Python there, which has no
    MLflow. What an environment has is not known here: the tracker says it. Raises BackendError."""
    own = config.mlflow.enabled and store_of(config, os.environ) is None
    return own and not config.env.origins and not box.has_mlflow


def no_mlflow(
    config: "RunConfig", box: Box, places: Mapping[str, Place], *, called: bool
) -> Diagnostic | None:
    """That the box cannot keep the store of a run. Raises BackendError."""
    if not lacks_mlflow(config, box):
        return None
    where = f"MLflow is not installed in `{box.hello['python']}` of `{box.host}`"
    how = (
        "install it there, declare an environment that has it, name a tracking server with "
        "`mlflow.tracking_uri`, or set `mlflow.enabled: false`"
    )
    return missing_mlflow(places, where, how, called=called)
