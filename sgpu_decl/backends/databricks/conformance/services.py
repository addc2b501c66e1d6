"""Which APIs a workspace has, and what it offers."""

from collections.abc import Generator

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.conformance.comparison import compared
from sgpu_decl.backends.databricks.conformance.refusal import Refusal, lacks_api, request
from sgpu_decl.model.doctor_finding import Finding, ok, warn

_LISTED = (
    ("compute-options", "/api/2.0/ai-compute-manager/compute-options", "compute_options", "GPUs"),
    ("capacities", "/api/2.0/ai-training/provisioned-capacities", "provisioned_capacities",
     "reserved pools"),
    ("policies", "/api/2.0/serverless-policies", "policies", "budget policies"),
)  # fmt: skip
_LOGS = "/api/2.0/ai-training/workflows/by-run-id/1/logs"


def service_findings(connection: Connection) -> Generator[Finding, None, None]:
    unknown = request(connection, "GET", "/api/2.0/sgpu/doctor")
    if isinstance(unknown, Refusal):
        yield compared("unknown-api", unknown.code, "the error code of an API that does not exist")
    for id_, path, name, what in _LISTED:
        answer = request(connection, "GET", path, query={"page_size": 100})
        if isinstance(answer, Refusal) and not lacks_api(answer):
            yield _closed(id_, answer)
            continue
        entries = [] if isinstance(answer, Refusal) else answer.get(name) or []
        there = not isinstance(answer, Refusal)
        words = (
            f"the workspace lists {len(entries)} kinds of {what}"
            if there
            else f"the workspace lists no {what}"
        )
        if there and id_ != "compute-options":
            words = f"the workspace lists {len(entries)} {what}"
        yield compared(id_, there, words)
        if id_ == "compute-options" and there:
            kinds = tuple(sorted(str(item.get("hardware_accelerator")) for item in entries))
            yield compared("accelerators", kinds, "the kinds of GPU nodes that the workspace lists")
    logs = request(connection, "GET", _LOGS)
    there = not lacks_api(logs)
    yield compared(
        "log-service", there, f"the workspace has {'an' if there else 'no'} API that reads logs"
    )
    scopes = request(connection, "GET", "/api/2.0/secrets/scopes/list")
    if isinstance(scopes, Refusal):
        yield _closed("secrets", scopes)
    else:
        number = len(scopes.get("scopes") or ())
        text = f"the workspace shows {number} secret scopes"
        yield ok("secrets", text)


def _closed(check: str, refusal: Refusal) -> Finding:
    return warn(
        check,
        f"the workspace does not say: {refusal.message} ({refusal.code})",
        "ask who manages the workspace, if you need it",
    )
