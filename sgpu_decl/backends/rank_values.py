"""What ranks returned and left in files, read from where that is or was brought."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.agent.attempt.attempt_files import numbers_in
from sgpu_decl.agent.system.safe_files import regular_opener
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_output import Output
from sgpu_decl.system_errors import error_text

SHOWN = "output.shown.json"


def read_results(ranks: Path) -> list[dict[str, Json]]:
    """Return `{"rank", "value"}` for each rank that left a value, in their order.

    A value that JSON cannot hold is `{"pickle": path, "repr": text}`; ranks write the path relative
    to their own folder, and here it is whole. With one that holds values of secrets comes what is
    `shown` of it, and the names of these `secrets`.

    Args:
        ranks: the folder with one for each rank, named by its number.

    Raises:
        BackendError: what one returned cannot be read.
    """
    results: list[dict[str, Json]] = []
    for rank in numbers_in(ranks):
        folder = ranks / str(rank)
        name = "output.json"
        try:
            value = _read(folder / name)
            result: dict[str, Json] = {"rank": rank, "value": with_pickle_path(value, folder)}
            name = SHOWN
            if os.path.lexists(folder / name):  # few have it
                result |= masked_value(_read(folder / name), folder)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            text = error_text(error) if isinstance(error, OSError) else f"{error}"
            raise BackendError(
                f"what rank {rank} returned cannot be read in `{folder / name}`: {text}",
                hint="ranks write this file whole, so something else changed it",
                code="result_unreadable",
            ) from error
        results.append(result)
    return results


def masked_value(content: Json, folder: Path) -> dict[str, Json]:
    """What `output.shown.json` adds to a result."""
    if not (isinstance(content, Mapping) and content.keys() == {"value", "secrets"}):
        raise ValueError("this is no file of a rank")
    return {"shown": with_pickle_path(content["value"], folder), "secrets": content["secrets"]}


def with_pickle_path(value: Json, folder: Path) -> Json:
    """A value with the whole path of its pickle, if it has one."""
    if isinstance(value, Mapping) and value.keys() == {"pickle", "repr"}:
        return {**value, "pickle": str(folder / str(value["pickle"]))}
    return value


def _read(path: Path) -> Json:
    with open(path, "rb", opener=regular_opener) as file:
        try:
            value: Json = json.load(file)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
    return value


def output_files(folder: Path) -> Output:
    """What is in the folder of SGPU_OUTPUT_DIR now."""
    sizes = [
        os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(folder)
        for name in names
    ]
    return Output(folder=folder, files=len(sizes), bytes=sum(sizes))
