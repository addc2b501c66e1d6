"""What a workspace offers those who run something: GPUs, reservations, policies, environments."""

from dataclasses import dataclass, field

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.executing.capacity import pool_of
from sgpu_decl.testing.workspace.routes import ApiError, JsonObject, Request, Response, Route

__all__ = ["ROUTES", "Capacity", "Offers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """GPUs that are reserved for a workspace."""

    id: str
    accelerator_type: str
    accelerator_count: int
    used: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What a server has. `policies` are serverless usage policies: names by id; `groups` those
    that permissions may be given to. `users` and `service_principals` are listed to everybody; None
    where only admins may list them. `principal_names` are the display names of service
    principals, `warehouses` and `notification_destinations` names by id."""

    accelerators: tuple[str, ...] = field(default_factory=lambda: Profile().texts("accelerators"))
    capacities: tuple[Capacity, ...] = ()
    policies: tuple[tuple[str, str], ...] = ()
    base_environments: tuple[str, ...] = (
        "databricks_ai_v4",
        "databricks_ai_v5",
        "databricks_ai_v6",
    )
    environment_versions: tuple[str, ...] = ("1", "2", "3", "4", "5", "6")
    groups: tuple[str, ...] = ("admins", "users")
    users: tuple[str, ...] | None = None
    service_principals: tuple[str, ...] | None = None
    principal_names: tuple[tuple[str, str], ...] = ()
    warehouses: tuple[tuple[str, str], ...] = ()
    notification_destinations: tuple[tuple[str, str], ...] = ()

    @property
    def idle(self) -> dict[str, int]:
        """How many GPUs of each reservation are nobody else's."""
        return {one.id: one.accelerator_count - one.used for one in self.capacities}


def compute_options(request: Request) -> Response:
    """The kinds of GPU."""
    options: list[Json] = [
        {"hardware_accelerator": one} for one in request.server.offers.accelerators
    ]
    return Response(json={"compute_options": options})


def capacities(request: Request) -> Response:
    """The reservations."""
    found = request.server.offers.capacities
    return _page(request, "provisioned_capacities", [_capacity(one) for one in found])


def capacity(request: Request) -> Response:
    """A reservation, with how much of it is used."""
    for one in request.server.offers.capacities:
        if one.id == request.parameters["id"]:
            used = one.used + request.server.capacity.used(pool_of(one.id))
            usage = {
                "used_accelerator_count": str(used),
                "idle_accelerator_count": str(one.accelerator_count - used),
            }
            return Response(json=_capacity(one) | {"status": {"usage": usage}})
    name = f"provisioned-capacities/{request.parameters['id']}"
    raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"{name} does not exist.")


def policies(request: Request) -> Response:
    """The usage policies; a name is looked for in theirs, in any case."""
    part = request.query.get("filter_by.policy_name", "").lower()
    found: list[Json] = [
        {"policy_id": one, "policy_name": name}
        for one, name in request.server.offers.policies
        if part in name.lower()
    ]
    return _page(request, "policies", found)


def warehouses(request: Request) -> Response:
    """The SQL warehouses. Source: https://docs.databricks.com/api/workspace/warehouses/list"""
    found: list[Json] = [
        {"id": one, "name": name, "state": "STOPPED"}
        for one, name in request.server.offers.warehouses
    ]
    return Response(json={"warehouses": found})


def destinations(request: Request) -> Response:
    """The destinations of notifications. Source:
    https://docs.databricks.com/api/workspace/notificationdestinations/list"""
    found: list[Json] = [
        {"id": one, "display_name": name, "destination_type": "WEBHOOK"}
        for one, name in request.server.offers.notification_destinations
    ]
    return _page(request, "results", found)


def base_environments(request: Request) -> Response:
    """The base environments."""
    found: list[Json] = [_environment(one) for one in request.server.offers.base_environments]
    return _page(request, "workspace_base_environments", found)


def base_environment(request: Request) -> Response:
    """One of them."""
    name = request.parameters["id"]
    if name not in request.server.offers.base_environments:
        message = f"workspace-base-environments/{name} does not exist."
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)
    return Response(json=_environment(name))


def _capacity(one: Capacity) -> JsonObject:
    spec = {
        "accelerator_type": one.accelerator_type,
        "accelerator_count": str(one.accelerator_count),
    }
    return {"name": f"provisioned-capacities/{one.id}", "spec": spec}


def _environment(name: str) -> JsonObject:
    return {
        "name": f"workspace-base-environments/{name}",
        "display_name": name,
        "base_environment_type": "GPU",
        "status": "CREATED",
    }


def _page(request: Request, name: str, found: list[Json]) -> Response:
    size = min(request.integer("page_size", 100) or 100, 1000)
    start = int(request.query.get("page_token") or 0)
    answer: JsonObject = {name: found[start : start + size]}
    if start + size < len(found):
        answer["next_page_token"] = str(start + size)
    return Response(json=answer)


ROUTES = (
    Route(
        "GET",
        "/api/2.0/ai-compute-manager/compute-options",
        compute_options,
        needs="compute-options",
    ),
    Route("GET", "/api/2.0/ai-training/provisioned-capacities", capacities, needs="capacities"),
    Route("GET", "/api/2.0/ai-training/provisioned-capacities/{id}", capacity, needs="capacities"),
    Route("GET", "/api/2.0/serverless-policies", policies, needs="policies"),
    Route("GET", "/api/2.0/sql/warehouses", warehouses),
    Route("GET", "/api/2.0/notification-destinations", destinations),
    Route("GET", "/api/environments/v1/workspace-base-environments", base_environments),
    Route("GET", "/api/environments/v1/workspace-base-environments/{id}", base_environment),
)
