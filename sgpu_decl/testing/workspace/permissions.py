"""Who may do what with jobs and experiments: `/api/2.0/permissions/{type}/{id}`."""

from collections.abc import Mapping

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
)
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["ROUTES", "asked_at_birth", "given_at_birth", "may_manage", "may_view", "may_write"]

# by type: what the platform calls the object, the level of its owner, and all levels
_TYPES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "jobs": ("job", "IS_OWNER", ("CAN_VIEW", "CAN_MANAGE_RUN", "CAN_MANAGE", "IS_OWNER")),
    "experiments": ("mlflowExperiment", "CAN_MANAGE", ("CAN_READ", "CAN_EDIT", "CAN_MANAGE")),
    "directories": (
        "directory",
        "CAN_MANAGE",
        ("CAN_READ", "CAN_RUN", "CAN_EDIT", "CAN_MANAGE"),
    ),
}
_PRINCIPALS = ("user_name", "group_name", "service_principal_name")


def get(request: Request) -> Response:
    """The list of an object."""
    return Response(json=_answer(request, _entries(request)))


def replace(request: Request) -> Response:
    """Put a list in place of the old one."""
    return Response(json=_answer(request, _kept(request, {})))


def update(request: Request) -> Response:
    """Add to the list, or change what a principal may."""
    with request.tenant.transaction():
        return Response(json=_answer(request, _kept(request, _entries(request))))


def asked_at_birth(request: Request, kind: str) -> dict[str, str] | None:
    """The list that a request wants for what it makes, if it wants one; who makes it owns it,
    unless that is said of another. Raises ApiError, 400 or 404."""
    given = request.json.get("access_control_list")
    before = {f"user_name:{request.tenant.user_name}": _TYPES[kind][1]}
    return _merged(request, kind, before, given) if given else None


def given_at_birth(tenant: Tenant, kind: str, number: int, entries: Mapping[str, str]) -> None:
    """Keep the list of a new object."""
    tenant.table("permissions").put(f"{kind}/{number}", {**entries})


def may_write(tenant: Tenant, folder: int) -> bool | None:
    """Whether the user may write to a folder, by its own list; `None` where it has none and that of
    the folder above counts."""
    levels = _own_levels(tenant, f"directories/{folder}")
    return None if levels is None else any(one in ("CAN_EDIT", "CAN_MANAGE") for one in levels)


def may_view(tenant: Tenant, kind: str, number: int) -> bool:
    """Whether the list of an object names the user, whatever for."""
    return bool(_own_levels(tenant, f"{kind}/{number}"))


def may_manage(tenant: Tenant, job: int) -> bool:
    """Whether the user may cancel the runs of a job by its list."""
    return any(one != "CAN_VIEW" for one in _own_levels(tenant, f"jobs/{job}") or ())


def _own_levels(tenant: Tenant, key: str) -> list[str] | None:
    """What a list lets the user do; `None` where there is none."""
    kept = tenant.table("permissions").get(key)
    if kept is None:
        return None
    names = (f"{kind}:{tenant.user_name}" for kind in ("user_name", "service_principal_name"))
    own = (*names, "group_name:users")
    return [str(kept[who]) for who in own if who in kept]


def _kept(request: Request, before: Mapping[str, str]) -> dict[str, str]:
    kind, owner, _ = _type(request)
    given = request.json.get("access_control_list")
    after = _merged(request, request.parameters["type"], before, given)
    if owner == "IS_OWNER" and owner not in after.values():
        raise ApiError(400, "INVALID_PARAMETER_VALUE", f"The {kind} must have exactly one owner.")
    request.tenant.table("permissions").put(_key(request), {**after})
    return after


def _merged(request: Request, kind: str, before: Mapping[str, str], given: Json) -> dict[str, str]:
    levels = _TYPES[kind][2]
    after = dict(before)
    for entry in given if isinstance(given, list) else []:
        names = [name for name in _PRINCIPALS if entry.get(name)]
        if len(names) != 1 or entry.get("permission_level") not in levels:
            raise invalid(f"An entry has one of {_PRINCIPALS} and a level of {levels}: {entry}")
        group = entry.get("group_name")
        if group and group not in request.server.offers.groups:
            message = f"Principal: GroupName({group}) does not exist"
            raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)
        level = str(entry["permission_level"])
        if level == "IS_OWNER":
            after = {who: one for who, one in after.items() if one != "IS_OWNER"}
        after[f"{names[0]}:{entry[names[0]]}"] = level
    return after


def _entries(request: Request) -> dict[str, str]:
    _, owner, _ = _type(request)
    kept = request.tenant.table("permissions").get(_key(request))
    if kept is None:
        return {f"user_name:{request.tenant.user_name}": owner}
    return {who: str(level) for who, level in kept.items()}


def _type(request: Request) -> tuple[str, str, tuple[str, ...]]:
    name = request.parameters["type"]
    if name not in _TYPES:
        raise ApiError(501, "NOT_IMPLEMENTED", f"the workspace emulator has no list for `{name}`")
    return _TYPES[name]


def _key(request: Request) -> str:
    return f"{request.parameters['type']}/{request.parameters['id']}"


def _answer(request: Request, entries: Mapping[str, str]) -> JsonObject:
    listed: list[Json] = []
    for who, level in entries.items():
        kind, _, name = who.partition(":")
        permission: JsonObject = {"permission_level": level, "inherited": False}
        listed.append({kind: name, "display_name": name, "all_permissions": [permission]})
    return {
        "object_id": f"/{_key(request)}",
        "object_type": _type(request)[0],
        "access_control_list": listed,
    }


ROUTES = (
    Route("GET", "/api/2.0/permissions/{type}/{id}", get),
    Route("PUT", "/api/2.0/permissions/{type}/{id}", replace),
    Route("PATCH", "/api/2.0/permissions/{type}/{id}", update),
)
