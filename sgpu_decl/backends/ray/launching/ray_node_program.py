"""The file of a launch folder that the driver of the launch reads."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sgpu_decl.agent.node.input_folder import folder_of_launch
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.ray.head.head_reader import below_root
from sgpu_decl.backends.ray.placement import RayPlacement, whole_cpus
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.backends.remote.launching.launch_folder import NodeProgram, NodeStart, input_folder
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.lease import LOCK, STALE
from sgpu_decl.backends.remote.staging.remote_layout import BACK, INPUTS, LOGS, MARKER
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.run_outputs import outputs_read

LAUNCH = "launch.json"

_INFEASIBLE = 60.0  # seconds until a cluster that does not grow is known to have no such nodes

_PLATFORM = PlatformTable(stops_others=False, has_driver=True)
_WITHOUT_STORAGE = PlatformTable(stops_others=False, has_driver=True, own_objects=True)


class RayNodeProgram(NodeProgram):
    """See `NodeProgram`. `backends.ray.cluster.driver` says what the file has."""

    def __init__(self, launches: RemoteLaunches) -> None:
        self._launches = launches

    def nodes(self, request: LaunchRequest) -> int:
        return planned_placement(request).nodes

    def processors(self, request: LaunchRequest) -> int | None:
        """Those that Ray sets aside for a rank group."""
        return whole_cpus(planned_placement(request).bundle)

    def inputs(self, request: LaunchRequest) -> str | None:
        """Without storage, the driver sends the outputs to its nodes."""
        on_head = isinstance(self._launches.area(request.record).files, HeadPlace)
        return folder_of_launch(request.record.token) if on_head else None

    def files(self, request: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        config, token = request.config, request.record.token
        placement = planned_placement(request)
        files = self._launches.area(request.record).files
        upstreams = [self._upstream(request, upstream, start) for upstream in request.after]
        sent: dict[str, Json] | None = None
        platform = _PLATFORM
        launch_folder, back = start.launch, start.back
        if isinstance(files, HeadPlace):
            launch_folder, back, objects = map(
                below_root, (start.launch, start.back, start.objects)
            )
            upstreams = [
                {**one, **{name: below_root(one[name]) for name in ("launch", "back")}}
                for one in upstreams
            ]
            sent = {
                "objects": objects,
                "code": start.code,
                "environment": start.environment,
                "files": list[Json](start.files),
                "resume": config.resume is not None,
                "gc_lock": {"name": LOCK, "seconds": STALE},
                "marker": MARKER,
            }
            platform = _WITHOUT_STORAGE
            # The words stand for folders of each node (`NodeFiles.folders`).
            start = replace(start, launch="LAUNCH", objects="OBJECTS", back="BACK", outputs=())
        launch: dict[str, Json] = {
            "v": 1,
            "token": token,
            "launch": launch_folder,
            "back": back,
            "logs": LOGS,
            "sent": sent,
            "start": {
                "arguments": list[Json](start.arguments("RUN", platform)),
                "python": options_of(request.config).python,
                "joins": config.drives_existing,
            },
            "placement": {
                **json.loads(placement.id),
                "infeasible": None if placement.scales else _INFEASIBLE,
            },
            "secrets": bool(config.secrets),
            "grace": config.grace.seconds,
            "upstreams": list[Json](upstreams),
            "startup_timeout": config.startup_timeout.seconds if config.startup_timeout else None,
            "retry": dict(self._launches.retry(request.record)),
        }
        return {LAUNCH: canonical(launch).encode()}

    def _upstream(
        self, request: LaunchRequest, upstream: LaunchRecord, start: NodeStart
    ) -> dict[str, Any]:
        """One that the launch comes after, or reads the output of (`cluster.upstream_wait`)."""
        folder, ref = self._launches.folder(upstream), upstream.ref
        read = ref in outputs_read(request.inputs.spec)
        inputs = self.inputs(request) or f"{start.launch}/{INPUTS}"
        return {
            "name": str(ref),
            "token": upstream.token,
            "launch": folder,
            "back": f"{folder}/{BACK}",
            "retry": dict(self._launches.retry(upstream)),
            "nodes": self.nodes(LaunchRequest(record=upstream)),
            "waits": ref in request.record.after,
            "output": input_folder(inputs, ref) if read else None,
        }


def planned_placement(request: LaunchRequest) -> RayPlacement:
    """What a launch asks the cluster for. Raises BackendError if its plan does not say."""
    try:
        return RayPlacement.from_id(request.inputs.placement or "")
    except ValueError:
        raise BackendError(
            f"the plan of `{request.ref}` does not say where its ranks go",
            hint="plan again",
            code="launch_failed",
        ) from None
