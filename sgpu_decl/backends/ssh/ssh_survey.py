"""What planning asks of boxes: their GPUs and who uses them, their disk, their clock and their
Python; and of several whether they reach each other. All are asked at once."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sgpu_decl.backends.box.box_reach import require_reach
from sgpu_decl.backends.box.boxes import Box, Boxes, ask_all
from sgpu_decl.backends.device_checks import (
    device_findings,
    gpu_offers,
    rank_findings,
    user_findings,
)
from sgpu_decl.backends.node_tracker import tracking_findings
from sgpu_decl.backends.remote.remote_survey import (
    RemoteSurvey,
    entrypoint_findings,
    unsupported_findings,
)
from sgpu_decl.backends.secret_resolution import missing_secrets
from sgpu_decl.backends.ssh.options import SshOptions
from sgpu_decl.backends.tracker_request import missing_mlflow, store_of
from sgpu_decl.diagnostics.amounts import duration, size
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.interpreters import Pythons
from sgpu_decl.errors import BackendError
from sgpu_decl.gpus.devices import Device, Devices
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.plan import PlanPlatform
from sgpu_decl.model.ray_size import NodeShape

if TYPE_CHECKING:
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.model.gpu_offer import GpuOffer

_CLOCK = 5.0  # seconds that clocks may be apart
_LITTLE = 1 << 30  # bytes of a disk
_UNSUPPORTED = {
    "code.link": (
        "`code.link` names files of this machine, which ranks on another one do not see",
        "write their path there into the run, or make them part of the code with `code.include`",
    ),
}
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
_WAITS = "wait, or choose devices with `CUDA_VISIBLE_DEVICES` in `env.variables`"


class SshSurvey(RemoteSurvey):
    """Each box is asked once in a process."""

    def __init__(self, pythons: Callable[[], Pythons], boxes: Boxes) -> None:
        super().__init__(pythons)
        self._boxes = boxes
        self._said: set[str] = set()

    def nodes(self, config: "RunConfig") -> NodeShape | None:
        boxes = self._at(config.backend)
        try:
            facts, cpus = boxes[0].facts, boxes[0].hello["processors"]
        except BackendError:
            return None
        gpus = 0 if config.type.kind is GPUType.CPU else config.gpus // len(boxes)
        return NodeShape(
            nodes=len(boxes), gpus=gpus, cpus=cpus, store=facts["store"], shm=facts["shm"]
        )

    def offers(self, block: "BackendOptions") -> "Sequence[GpuOffer]":
        return [
            offer
            for box in self._at(block)
            for offer in gpu_offers(devices_of(box), _users_of(box), _words(box), shares=False)
        ]

    def account(self, config: "RunConfig") -> PlanPlatform:
        hosts = ", ".join(box.host for box in self._at(config.backend))
        return PlanPlatform(backend="ssh", host=hosts)

    def site(self, config: "RunConfig") -> str:
        boxes = self._at(config.backend)
        return f"host{'s' * (len(boxes) > 1)} {', '.join(map(_words, boxes))}"

    def rules(
        self, config: "RunConfig", places: Mapping[str, Place], folder: Path
    ) -> Sequence[Diagnostic]:
        boxes = self._at(config.backend)
        return (
            *unsupported_findings(config, places, _UNSUPPORTED, called=False),
            *(_several_findings(config, places, boxes) if len(boxes) > 1 else ()),
            *entrypoint_findings(config, places, folder),
            *rank_findings(config, places, ", ".join(map(_words, boxes))),
        )

    def check(
        self,
        config: "RunConfig",
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,
    ) -> Sequence[Diagnostic]:
        boxes = self._at(config.backend)
        alone = len(boxes) == 1
        found = [
            *self.rules(config, places, folder),
            *missing_secrets(config.secrets, places, os.environ, folder),
            *tracking_findings(config, places, os.environ, keeps_store=alone),
        ]
        place = _place(places)
        for error in ask_all(boxes, _problem):
            if error is not None:
                found += self.unanswered("machine", error, "an apply would need it", place)
                boxes = [box for box in boxes if _problem(box) is None]
        there = config.model_copy(
            update={"gpus": max(1, config.gpus // len(self._at(config.backend)))}
        )
        for box in boxes:
            found += self._of_box(box, places)
            found += self._noexec(config, box, places)
            found += self._missing_mlflow(config, box, places, called=called) if alone else ()
            if config.type.kind is not GPUType.CPU:
                devices = partial(devices_of, box)
                found += device_findings(there, places, devices, _words(box))
                found += user_findings(there, places, devices, _users_of(box), shares=_WAITS)
        if len(boxes) == len(self._at(config.backend)):
            try:
                require_reach(boxes)
            except BackendError as error:
                found.append(
                    Diagnostic(code=error.code, summary=error.message, place=place, hint=error.hint)
                )
        return found

    def _of_box(self, box: Box, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
        """What holds for every run there: said once."""
        facts = box.facts
        if box.host in self._said:
            return
        self._said.add(box.host)
        place = _place(places)
        if abs(facts["ahead"]) > _CLOCK:
            yield Diagnostic(
                code="host_clock",
                severity=Severity.WARNING,
                summary=f"the clock of {_words(box)} is {duration(abs(facts['ahead']))} "
                f"{'ahead of' if facts['ahead'] > 0 else 'behind'} this one: times of its runs are "
                "by that clock",
                place=place,
                hint="have both set by NTP",
            )
        if facts["free"] < _LITTLE:
            yield Diagnostic(
                code="host_disk",
                severity=Severity.WARNING,
                summary=f"the disk of `{box.hello['root']}` on {_words(box)} has "
                f"{size(facts['free'])} left",
                place=place,
                hint="make room there, or name another folder with `backend.storage`",
            )
        if facts["lacks"]:
            yield Diagnostic(
                code="kernel_lacks",
                severity=Severity.INFO,
                summary=f"{_words(box)}: {facts['lacks']}",
                place=place,
                hint="in a container, allow these system calls in its seccomp profile",
            )

    def _noexec(
        self, config: "RunConfig", box: Box, places: Mapping[str, Place]
    ) -> Iterator[Diagnostic]:
        """That compiled modules of an environment do not load there: Linux maps no code from such
        a file system, see `MS_NOEXEC` in https://man7.org/linux/man-pages/man2/mount.2.html"""
        if config.env.origins and box.facts["noexec"]:
            yield Diagnostic(
                code="storage_unusable",
                severity=Severity.WARNING,
                summary=f"`{box.hello['root']}` on {_words(box)} is mounted with `noexec`: "
                "compiled modules of an environment, such as those of torch, do not load there",
                place=_place(places),
                hint="name a folder on another disk with `backend.storage`, or leave out "
                f"`env.{config.env.origins[0]}`: ranks use the Python of the machine then",
            )

    def _missing_mlflow(
        self, config: "RunConfig", box: Box, places: Mapping[str, Place], *, called: bool
    ) -> Iterator[Diagnostic]:
        """That the box cannot keep the store of a run; said once, unless it is an error."""
        if not lacks_mlflow(config, box):
            return
        where = f"MLflow is not installed in `{box.hello['python']}` of {_words(box)}"
        how = (
            "install it there, declare an environment that has it, name a tracking server with "
            "`mlflow.tracking_uri`, or set `mlflow.enabled: false`"
        )
        finding = missing_mlflow(places, where, how, called=called)
        if finding.severity is Severity.ERROR or where not in self._said:
            self._said.add(where)
            yield finding

    def _at(self, block: "BackendOptions") -> list[Box]:
        return [self._boxes.at(place) for place in cast("SshOptions", block).places]


def _several_findings(
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
            place=places.get("gpus") or _place(places),
            hint=f"use a multiple of {len(boxes)}, or other `hosts`",
        )


def _problem(box: Box) -> BackendError | None:
    """Why a box does not answer."""
    try:
        box.facts  # noqa: B018  it is asked now
    except BackendError as error:
        return error
    return None


def _place(places: Mapping[str, Place]) -> Place | None:
    names = ("backend.hosts", "backend.host", "backend")
    return next((places[name] for name in names if name in places), None)


def _users_of(box: Box) -> Callable[[], Mapping[str, str]]:
    return lambda: box.facts["users"]


def devices_of(box: Box) -> Devices:
    """The GPUs of a box. Raises BackendError."""
    return Devices(visible=tuple(Device(**gpu) for gpu in box.facts["gpus"]))


def lacks_mlflow(config: "RunConfig", box: Box) -> bool:
    """Whether a run would keep its metrics in a store on its box, by the Python there, which has no
    MLflow. What an environment has is not known here: the tracker says it. Raises BackendError."""
    own = config.mlflow.enabled and store_of(config, os.environ) is None
    return own and not config.env.origins and not box.has_mlflow


def _words(box: Box) -> str:
    return f"`{box.host}`"
