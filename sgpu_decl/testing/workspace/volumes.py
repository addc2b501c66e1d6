"""Unity Catalog volumes, as far as files need them: `/api/2.1/unity-catalog/volumes`.

Catalogs and schemas come into being with the volumes in them. Every tenant has the volume
`main.default.files`.
"""

import time
from pathlib import Path

from sgpu_decl.testing.workspace.routes import ApiError, JsonObject, Request, Response, Route
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.testing.workspace.trees import located, normal, removed

__all__ = ["ROUTES", "volume_file", "volume_tree"]

_FIRST = "main.default.files"


def volume_file(tenant: Tenant, path: str) -> Path:
    """Where `/Volumes/catalog/schema/volume/…` lies on disk.

    Raises ApiError: 400 for a path that leads into no volume, 404 for a volume that is not there.
    """
    parts = normal(path).split("/")[1:]
    if len(parts) < 4 or parts[0] != "Volumes":
        message = f"Invalid path: {path}. Expected /Volumes/<catalog>/<schema>/<volume>/<path>."
        raise ApiError(400, "INVALID_PARAMETER_VALUE", message)
    name = ".".join(parts[1:4])
    if not _folder(tenant, name).is_dir():
        raise ApiError(404, "NOT_FOUND", f"Volume '{name}' does not exist.")
    return located(tenant.tree("Volumes"), "/" + "/".join(parts[1:]))


def create(request: Request) -> Response:
    """Make a volume."""
    name = ".".join(request.text(key) for key in ("catalog_name", "schema_name", "name"))
    folder = _folder(request.tenant, name)
    with request.tenant.lock:
        if folder.exists():
            raise ApiError(409, "VOLUME_ALREADY_EXISTS", f"Volume '{name}' already exists.")
        folder.mkdir(parents=True)
    return Response(json=_info(request.tenant, name))


def read(request: Request) -> Response:
    """What is known of a volume."""
    return Response(json=_info(request.tenant, request.parameters["name"]))


def list_volumes(request: Request) -> Response:
    """The volumes of a schema."""
    schema = f"{request.asked('catalog_name')}.{request.asked('schema_name')}"
    _folder(request.tenant, _FIRST)
    folder = request.tenant.tree("Volumes").joinpath(*schema.split("."))
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return Response(json={"volumes": [_info(request.tenant, f"{schema}.{one}") for one in names]})


def delete(request: Request) -> Response:
    """Delete a volume with all that is in it."""
    name = request.parameters["name"]
    _info(request.tenant, name)
    with request.tenant.lock:
        removed(_folder(request.tenant, name), request.server.incoming)
    return Response(json={})


def volume_tree(tenant: Tenant) -> Path:
    """The folder of all volumes; where there is none yet, the first one is made."""
    volumes = tenant.tree("Volumes")
    if not any(volumes.iterdir()):
        volumes.joinpath(*_FIRST.split(".")).mkdir(parents=True)
    return volumes


def _folder(tenant: Tenant, name: str) -> Path:
    volumes = volume_tree(tenant)
    parts = name.split(".")
    if len(parts) != 3 or not all(parts):
        raise ApiError(400, "INVALID_PARAMETER_VALUE", f"'{name}' is not a valid volume name.")
    return located(volumes, normal("/" + "/".join(parts)))


def _info(tenant: Tenant, name: str) -> JsonObject:
    folder = _folder(tenant, name)
    if not folder.is_dir():
        raise ApiError(404, "VOLUME_DOES_NOT_EXIST", f"Volume '{name}' does not exist.")
    catalog, schema, volume = name.split(".")
    return {
        "catalog_name": catalog,
        "schema_name": schema,
        "name": volume,
        "full_name": name,
        "volume_type": "MANAGED",
        "owner": tenant.user_name,
        "created_at": int(min(folder.stat().st_ctime, time.time()) * 1000),
    }


ROUTES = (
    Route("POST", "/api/2.1/unity-catalog/volumes", create),
    Route("GET", "/api/2.1/unity-catalog/volumes", list_volumes),
    Route("GET", "/api/2.1/unity-catalog/volumes/{name}", read),
    Route("DELETE", "/api/2.1/unity-catalog/volumes/{name}", delete),
)
