"""What planning asks of boxes: their GPUs and who uses them, their disk, their clock and their
Python; and of several whether they reach each other. All are asked at once."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sgpu_decl.backends.box.box_checks import (
    block_place,
    box_findings,
    devices_of,
    no_answer,
    no_mlflow,
    noexec_findings,
    reach_findings,
    several_findings,
    users_of,
)
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
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.interpreters import Pythons
from sgpu_decl.errors import BackendError
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.plan import PlanPlatform
from sgpu_decl.model.ray_size import NodeShape

if TYPE_CHECKING:
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.model.gpu_offer import GpuOffer

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
            for offer in gpu_offers(devices_of(box), users_of(box), _words(box), shares=False)
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
            *(several_findings(config, places, boxes) if len(boxes) > 1 else ()),
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
        place = block_place(places)
        for error in ask_all(boxes, no_answer):
            if error is not None:
                found += self.unanswered("machine", error, "an apply would need it", place)
                boxes = [box for box in boxes if no_answer(box) is None]
        there = config.model_copy(
            update={"gpus": max(1, config.gpus // len(self._at(config.backend)))}
        )
        for box in boxes:
            found += box_findings(box, place) if box.host not in self._said else ()
            self._said.add(box.host)
            found += noexec_findings(config, box, place)
            lacking = no_mlflow(config, box, places, called=called) if alone else None
            if lacking is not None:
                if lacking.severity is Severity.ERROR or lacking.summary not in self._said:
                    found.append(lacking)
                self._said.add(lacking.summary)
            if config.type.kind is not GPUType.CPU:
                devices = partial(devices_of, box)
                found += device_findings(there, places, devices, _words(box))
                found += user_findings(there, places, devices, users_of(box), shares=_WAITS)
        if len(boxes) == len(self._at(config.backend)):
            found += reach_findings(boxes, place)
        return found

    def _at(self, block: "BackendOptions") -> list[Box]:
        return [self._boxes.at(place) for place in cast("SshOptions", block).places]


def _words(box: Box) -> str:
    return f"`{box.host}`"
