"""What planning asks of a box: its GPUs and who uses them, its disk, its clock and its Python."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sgpu_decl.backends.box.boxes import Box, Boxes
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
from sgpu_decl.diagnostics.amounts import size
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
_WAITS = "wait, or choose devices with `CUDA_VISIBLE_DEVICES` in `env.variables`"


class SshSurvey(RemoteSurvey):
    """Each box is asked once in a process."""

    def __init__(self, pythons: Callable[[], Pythons], boxes: Boxes) -> None:
        super().__init__(pythons)
        self._boxes = boxes
        self._said: set[str] = set()

    def nodes(self, config: "RunConfig") -> NodeShape | None:
        try:
            box = self._box(config.backend)
            facts, cpus = box.facts, box.hello["processors"]
        except BackendError:
            return None
        gpus = 0 if config.type.kind is GPUType.CPU else config.gpus
        return NodeShape(nodes=1, gpus=gpus, cpus=cpus, store=facts["store"], shm=facts["shm"])

    def offers(self, block: "BackendOptions") -> "Sequence[GpuOffer]":
        box = self._box(block)
        return gpu_offers(devices_of(box), lambda: box.facts["users"], _words(box), shares=False)

    def account(self, config: "RunConfig") -> PlanPlatform:
        return PlanPlatform(backend="ssh", host=self._box(config.backend).host)

    def site(self, config: "RunConfig") -> str:
        return f"host `{self._box(config.backend).host}`"

    def rules(
        self, config: "RunConfig", places: Mapping[str, Place], folder: Path
    ) -> Sequence[Diagnostic]:
        return (
            *unsupported_findings(config, places, _UNSUPPORTED, called=False),
            *entrypoint_findings(config, places, folder),
            *rank_findings(config, places, _words(self._box(config.backend))),
        )

    def check(
        self,
        config: "RunConfig",
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,  # noqa: ARG002
    ) -> Sequence[Diagnostic]:
        found = [
            *self.rules(config, places, folder),
            *missing_secrets(config.secrets, places, os.environ, folder),
            *tracking_findings(config, places, os.environ),
        ]
        box = self._box(config.backend)
        try:
            found += self._of_box(box, places)
            if config.type.kind is not GPUType.CPU:
                found += device_findings(config, places, lambda: devices_of(box), _words(box))
                found += user_findings(
                    config, places, lambda: devices_of(box), lambda: box.facts["users"],
                    shares=_WAITS,
                )  # fmt: skip
        except BackendError as error:
            place = places.get("backend.host") or places.get("backend")
            found += self.unanswered("machine", error, "an apply would need it", place)
        return found

    def _of_box(self, box: Box, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
        """What holds for every run there: said once."""
        facts = box.facts
        if box.host in self._said:
            return
        self._said.add(box.host)
        place = places.get("backend.host") or places.get("backend")
        if abs(facts["ahead"]) > _CLOCK:
            yield Diagnostic(
                code="host_clock",
                severity=Severity.WARNING,
                summary=f"the clock of {_words(box)} is {abs(facts['ahead']):.0f} s off this one: "
                "times of its runs are by that clock",
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

    def _box(self, block: "BackendOptions") -> Box:
        return self._boxes.at(cast("SshOptions", block).place)


def devices_of(box: Box) -> Devices:
    """The GPUs of a box. Raises BackendError."""
    return Devices(visible=tuple(Device(**gpu) for gpu in box.facts["gpus"]))


def _words(box: Box) -> str:
    return f"`{box.host}`"
