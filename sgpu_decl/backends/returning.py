"""What ranks returned and left in files, read from where that is or was brought."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.backends.base import Output
from sgpu_decl.model.jsonable import Json

__all__ = ["output_in", "read_returned"]


def read_returned(ranks: Path) -> list[dict[str, Json]]:
    """Return `{"rank", "value"}` for each rank that left a value, in their order.

    A value that JSON cannot hold is `{"pickle": path, "repr": text}`; ranks write the path relative
    to their own folder, and here it is whole.

    Args:
        ranks: the folder with one for each rank, named by its number.
    """
    found: list[dict[str, Json]] = []
    for rank in sorted(int(name) for name in _names(ranks) if name.isdigit()):
        folder = ranks / str(rank)
        try:
            value = json.loads((folder / "output.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(value, Mapping) and value.keys() == {"pickle", "repr"}:
            value = {**value, "pickle": str(folder / value["pickle"])}
        found.append({"rank": rank, "value": value})
    return found


def output_in(folder: Path) -> Output:
    """What is in the folder of SGPU_OUTPUT_DIR now."""
    sizes = [
        os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(folder)
        for name in names
    ]
    return Output(folder=folder, files=len(sizes), bytes=sum(sizes))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
