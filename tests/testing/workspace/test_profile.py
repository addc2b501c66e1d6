"""A server that behaves as a profile says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace import WorkspaceServer
from tests.support import require

require("databricks.sdk")

TASK: dict[str, Any] = {
    "experiment": "e",
    "deployments": [
        {
            "command_path": "/Workspace/Shared/command.sh",
            "compute": {"accelerator_type": "GPU_1xA10", "accelerator_count": 1},
        }
    ],
}
BOOT = {"environment_version": "4"}


def ask(tmp_path: Path, found: dict[str, Any], do: Callable[[Any], Any]) -> Any:
    """What the SDK gets of a server with a profile: an answer, or the code of an error."""
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.errors.base import DatabricksError

    with WorkspaceServer(tmp_path, profile=Profile(found)) as server:
        client = WorkspaceClient(host=server.url, token=server.new_token(), auth_type="pat")
        try:
            return do(client)
        except DatabricksError as error:
            return error.error_code


def validate(task: dict[str, Any], environment: Any = BOOT) -> Callable[[Any], Any]:
    body = {"task": {**TASK, **task}, "environment": environment}
    path = "/api/2.0/ai-training/config:validate"

    def do(client: Any) -> Any:
        errors = client.api_client.do("POST", path, body=body).get("errors") or ()
        return [one.get("path", "-") for one in errors]

    return do


def put(path: str, content: bytes = b"12345") -> Callable[[Any], Any]:
    def do(client: Any) -> Any:
        form = {"files": {"content": content}, "data": {"path": path, "format": "AUTO"}}
        return client.api_client.do("POST", "/api/2.0/workspace/import", **form)

    return do


def put_and_read(client: Any) -> Any:
    raw(b"12345")(client)
    export = {"path": "/Shared/raw", "direct_download": "true"}
    answer = client.api_client.do("GET", "/api/2.0/workspace/export", query=export, raw=True)
    return answer["contents"].read()


def raw(content: bytes) -> Callable[[Any], Any]:
    path = "/api/2.0/workspace-files/import-file/Shared%2Fraw"
    return lambda client: client.api_client.do("POST", path, data=content)


def get(path: str) -> Callable[[Any], Any]:
    return lambda client: client.api_client.do("GET", path)


def size(client: Any) -> Any:
    raw(b"12345")(client)
    status = client.api_client.do(
        "GET", "/api/2.0/workspace/get-status", query={"path": "/Shared/raw"}
    )
    return status.get("size")


LOGS = "/api/2.0/ai-training/workflows/by-run-id/1/logs"
IMAGE = {"unity_catalog_image_path": "main.default.image:1"}
MANAGED = {"base_environment": "workspace-base-environments/databricks_ai_v5"}
CASES: list[tuple[str, Any, Callable[[Any], Any], Any, Any]] = [
    ("read-limit", 4, put_and_read, b"12345", "BAD_REQUEST"),
    ("form-upload", False, put("/Shared/form"), {}, "ENDPOINT_NOT_FOUND"),
    ("form-limit", 4, put("/Shared/form"), {}, "BAD_REQUEST"),
    ("raw-upload", False, raw(b"1"), {}, "ENDPOINT_NOT_FOUND"),
    ("empty-form-upload", True, put("/Shared/form", b""), "INVALID_PARAMETER_VALUE", {}),
    ("empty-raw-upload", False, raw(b""), {}, "INVALID_PARAMETER_VALUE"),
    ("size-listed", False, size, 5, None),
    ("unknown-api", "NOT_IMPLEMENTED", get("/api/2.0/x"), "ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED"),
    ("log-service", False, get(LOGS), "RESOURCE_DOES_NOT_EXIST", "ENDPOINT_NOT_FOUND"),
    ("policies", False, get("/api/2.0/serverless-policies"), {"policies": []},
     "ENDPOINT_NOT_FOUND"),
    ("validation", False, validate({}), [], "ENDPOINT_NOT_FOUND"),
    ("validation-names-fields", False, validate({"experiment": ""}), ["experiment"], ["-"]),
    ("image-with-environment", False, validate(IMAGE), [], ["environment"]),
    ("managed-base", False, validate({}, MANAGED), [], ["environment"]),
    ("code-on-volume", False, validate({"code_source_path": "/Volumes/a/b/c/x.tar.gz"}), [],
     ["code_source_path"]),
    ("experiment-below-workspace", False, validate({"mlflow_experiment_directory": "/Shared"}),
     ["mlflow_experiment_directory"], []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("id_", "found", "do", "expected", "then"), CASES, ids=[item[0] for item in CASES]
)
def test_a_server_does_what_its_profile_says(
    tmp_path: Path, id_: str, found: Any, do: Callable[[Any], Any], expected: Any, then: Any
) -> None:
    assert ask(tmp_path / "expected", {}, do) == expected
    assert ask(tmp_path / "found", {id_: found}, do) == then


def test_json_that_has_an_older_name(tmp_path: Path) -> None:
    def delete(client: Any) -> Any:
        client.api_client.do("POST", "/api/2.0/workspace/mkdirs", body={"path": "/Shared/a/b"})
        return client.api_client.do(
            "POST",
            "/api/2.0/workspace/delete",
            headers={"Content-Type": "text/json"},
            data='{"path": "/Shared/a", "recursive": true}',
        )

    assert ask(tmp_path / "expected", {}, delete) == {}
    assert ask(tmp_path / "found", {"json-content-type": False}, delete) == "DIRECTORY_NOT_EMPTY"


def test_the_code_of_a_file_that_is_too_large(tmp_path: Path) -> None:
    found = {"read-limit": 4, "read-refusal": "MAX_NOTEBOOK_SIZE_EXCEEDED"}
    assert ask(tmp_path, found, put_and_read) == "MAX_NOTEBOOK_SIZE_EXCEEDED"
