"""The marks of states in a staging folder: a file beside the launches of each lineage."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.errors import BackendError
from sgpu_decl.model.codec import BadValue, JsonObject, to_json
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.model.state_mark import StateMark
from sgpu_decl.places.file_place import PlaceMissing

_NAME = "state.json"
_VERSION = 1


def write_mark(area: StagingArea, lineage: str, mark: Callable[[str], StateMark | None]) -> None:
    """Write the mark of a state, once for each process, beside a launch folder that is there."""

    def write() -> None:
        made = mark(lineage)
        if made is not None:
            fields = cast("dict[str, object]", to_json(made))
            content = canonical({"v": _VERSION, **fields}).encode()  # type: ignore[dict-item]
            # A mark that another user wrote, and that cannot be replaced, says the same.
            with suppress(BackendError):
                area.files.put(f"{area.layout.lineage(lineage)}/{_NAME}", content)

    area.run_once(f"mark {lineage}", write)


def marks_of_others(area: StagingArea, own: StateMark) -> dict[str, StateMark]:
    """The marks that other states of the same project and target left, by the paths of these files.

    Raises:
        BackendError: the storage does not answer.
    """
    found = {}
    here = area.layout.lineage(own.lineage)
    for entry in area.files.list(area.layout.runs):
        folder = f"{area.layout.runs}/{entry.name}"
        if not entry.folder or folder == here:
            continue
        path = f"{folder}/{_NAME}"
        mark = _read(area, path)
        if mark is not None and mark.is_same_project(own):
            found[path] = mark
    return found


def _read(area: StagingArea, path: str) -> StateMark | None:
    """A mark; None where there is none, or another version wrote it."""
    try:
        read = JsonObject(json.loads(area.files.get(path)))
        return read.whole(StateMark) if read.take("v") == _VERSION else None
    except (PlaceMissing, BadValue, ValueError, RecursionError):
        return None
