"""The one object that every `-o json` answer is: `{"v": 1, "data"}` or `{"v": 1, "error"}`."""

import json

from sgpu_decl.diagnostics.masks import masked
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import Json

VERSION = 1


def enveloped(data: Json = None, *, error: SgpuError | None = None) -> str:
    """Return the answer as one line of JSON. Both keys stand where work was done and failed. What
    looks like a token in `data` is the caller's to mask (`shown_values`).

    It is plain ASCII: file names that are no UTF-8 survive every encoding of the terminal.
    """
    answer: dict[str, Json] = {"v": VERSION}
    if data is not None or error is None:
        answer["data"] = data
    if error is not None:
        answer["error"] = shown_values(error_to_json(error))
    return json.dumps(answer)


def shown_values(value: Json) -> Json:
    """A value of JSON for programs and their logs: tokens and passwords are masked, those that the
    name of a field tells in specs and in what a plan says of fields."""
    if isinstance(value, dict):
        if isinstance(path := value.get("path"), str) and "after" in value:
            sides = {side: masked(value.get(side), path) for side in ("before", "after")}
            return {**value, **sides}
        return {
            key: masked(below, "") if key == "spec" else shown_values(below)
            for key, below in value.items()
        }
    return list(map(shown_values, value)) if isinstance(value, list | tuple) else masked(value)


def error_to_json(error: SgpuError) -> dict[str, Json]:
    """The error of the public contract."""
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "diagnostics": [finding.to_json() for finding in error.diagnostics],
    }
