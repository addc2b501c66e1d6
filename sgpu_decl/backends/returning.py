"""What ranks returned, read from where they left it or from where that was brought."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.model.jsonable import Json

__all__ = ["read_returned"]


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


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
