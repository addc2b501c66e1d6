"""The one object that every `-o json` answer is: `{"v": 1, "data"}` or `{"v": 1, "error"}`."""

import json

from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import Json

__all__ = ["enveloped", "error_to_json"]

VERSION = 1


def enveloped(data: Json = None, *, error: SgpuError | None = None) -> str:
    """Return the answer as one line of JSON. Both keys stand where work was done and failed.

    It is plain ASCII: file names that are no UTF-8 survive every encoding of the terminal.
    """
    answer: dict[str, Json] = {"v": VERSION}
    if data is not None or error is None:
        answer["data"] = data
    if error is not None:
        answer["error"] = error_to_json(error)
    return json.dumps(answer)


def error_to_json(error: SgpuError) -> dict[str, Json]:
    """The error of the public contract."""
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "diagnostics": [finding.to_json() for finding in error.diagnostics],
    }
