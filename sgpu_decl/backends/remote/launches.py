"""Where launches lie: in staging areas, and on this machine what nodes brought back of them."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.launch_config import config_of
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.backends.remote.remote_layout import MARKER, Uses, render_marker
from sgpu_decl.backends.remote.remote_results import RemoteResults
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["RemoteLaunches"]


class RemoteLaunches:
    """Launches of one project and target.

    Args:
        layout: has the folders of attempts on this machine.
        area_of: gives the staging area that a run's `backend` block means.
    """

    def __init__(
        self, layout: AttemptLayout, area_of: "Callable[[RunConfig], StagingArea]"
    ) -> None:
        self.layout = layout
        # The config of an attempt is read once, however often the attempt is looked at.
        self._areas = cache(lambda ref, inputs: area_of(config_of(ref, inputs)))

    def area(self, record: LaunchRecord) -> StagingArea:
        """The staging area of a launch."""
        return self._areas(record.ref, record.inputs)

    def folder(self, record: LaunchRecord) -> str:
        """The launch folder."""
        return self.area(record).layout.launch(record)

    def results(self, record: LaunchRecord) -> RemoteResults:
        """What nodes bring back to it."""
        here = self.layout.attempt(record.ref)
        return RemoteResults(self.area(record).files, self.folder(record), here)

    def marker(self, record: LaunchRecord) -> Mapping[str, Any] | None:
        """What the marker of a launch says; None where the launch has none."""
        try:
            marker = json.loads(self.area(record).files.get(f"{self.folder(record)}/{MARKER}"))
        except (RemoteMissing, ValueError):
            return None
        ours = isinstance(marker, dict) and marker.get("token") == record.token
        return marker if ours else None

    def mark(self, record: LaunchRecord, uses: Uses | Mapping[str, Json], **facts: Json) -> None:
        """Write the marker of a launch; see `render_marker`."""
        content = render_marker(uses, token=record.token, **facts)
        self.area(record).files.put(f"{self.folder(record)}/{MARKER}", content)
