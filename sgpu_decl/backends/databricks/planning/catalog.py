"""What a workspace has: kinds of nodes, reserved pools, budget policies, secrets, groups, folders.
Answers are cached, see `answer_cache`."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import Rejected
from sgpu_decl.backends.databricks.api.workspace_files import WorkspacePlace
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.places.file_place import PlaceMissing

FOLDER = "DIRECTORY"
"""The kind of a folder, see `kind_of`."""

_OFFERS = "offers"
_DOING = "asking what the workspace offers"
_ABSENT = frozenset({"permission_denied", "remote_broken", Rejected.code, PlaceMissing.code})
"""The codes of errors that mean that a workspace does not have a service."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedPool:
    """GPUs that are reserved for the workspace."""

    id: str
    accelerator: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """`accelerators` are kinds of nodes; each is `None` where the workspace does not say."""

    accelerators: tuple[str, ...] | None
    pools: tuple[ReservedPool, ...] | None

    def pools_for(self, accelerator: str) -> tuple[str, ...]:
        """The ids of the pools with nodes of a kind, the largest first."""
        fitting = [item for item in self.pools or () if item.accelerator == accelerator]
        return tuple(item.id for item in sorted(fitting, key=lambda item: (-item.gpus, item.id)))


def is_catalog_cached(connection: Connection) -> bool:
    """Whether `catalog_of` needs no connection.

    Raises:
        BackendError: nothing says which workspace is meant.
    """
    return connection.answers.cached(_OFFERS) is not None


def catalog_of(connection: Connection) -> Catalog:
    """What the workspace offers its user.

    Raises:
        BackendError: it does not answer.
    """

    def ask() -> Json:
        catalog = Catalog(accelerators=_accelerators(connection), pools=_pools(connection))
        return asdict(catalog)

    answer = cast("dict[str, Any]", connection.answers.get(_OFFERS, ask))
    accelerators, pools = answer["accelerators"], answer["pools"]
    return Catalog(
        accelerators=None if accelerators is None else tuple(accelerators),
        pools=None if pools is None else tuple(ReservedPool(**item) for item in pools),
    )


def policy_of(connection: Connection, budget: str) -> str:
    """The id of the policy that a run's `budget` names, by its id or its name.

    Raises:
        BackendError: no policy has that name.
    """

    def ask() -> Json:
        query: dict[str, Json] = {"filter_by.policy_name": budget, "page_size": 1000}
        answer = connection.ask(
            f"looking for the budget policy `{budget}`",
            "/api/2.0/serverless-policies",
            **query,
        )
        ids = {item["policy_name"]: item["policy_id"] for item in answer.get("policies") or ()}
        if budget in ids:
            return str(ids[budget])
        near = ", ".join(f"`{name}`" for name in sorted(ids)[:5])
        raise BackendError(
            f"`{connection.host}` has no budget policy `{budget}`",
            hint=f"there are {near}" if near else "give the name or the id of one of its policies",
            code="unknown_policy",
            field="budget",
        )

    if _UUID.fullmatch(budget):
        return budget
    return str(connection.answers.get(["policy", budget], ask))


def keys_of(connection: Connection, scope: str) -> frozenset[str] | None:
    """The keys of a secret scope, never their values; `None` where there is no such scope.

    Raises:
        BackendError: it cannot be seen, or the workspace does not answer.
    """

    def ask() -> Json:
        doing = f"looking for the secret scope `{scope}`"
        answer = connection.find(doing, "/api/2.0/secrets/list", scope=scope)
        if answer is None:
            return None
        return sorted(str(item["key"]) for item in answer.get("secrets") or ())

    keys = connection.answers.get(["secrets", scope], ask)
    return None if keys is None else frozenset(cast("list[str]", keys))


@dataclass(frozen=True, slots=True)
class Principals:
    """One kind of those who may have rights: where the SCIM API lists them, and by which attribute
    the YAML names them. Source: https://docs.databricks.com/api/workspace/serviceprincipals/list"""

    noun: str
    resource: str
    attribute: str


GROUPS = Principals("group", "Groups", "displayName")
USERS = Principals("user", "Users", "userName")
SERVICE_PRINCIPALS = Principals("service principal", "ServicePrincipals", "applicationId")


def has_principal(connection: Connection, kind: Principals, name: str) -> bool | None:
    """Whether the workspace shows a group, user or service principal; `None` where it shows none to
    this user. One that is there is cached.

    Raises:
        BackendError: the workspace does not answer.
    """
    question: Json = [kind.noun, name]
    if connection.answers.cached(question) is True:
        return True
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    pages = _optional_pages(
        connection,
        f"/api/2.0/preview/scim/v2/{kind.resource}",
        filter=f'{kind.attribute} eq "{quoted}"',
        attributes=kind.attribute,
    )
    if pages is None:
        return None
    found = [item for page in pages for item in page.get("Resources") or ()]
    exists = any(item.get(kind.attribute) == name for item in found)
    if exists:
        connection.answers.remember(question, answer=True)
    return exists


def kind_of(connection: Connection, path: str) -> str | None:
    """What lies at a path of the workspace's tree: `DIRECTORY`, `FILE`, `NOTEBOOK`; `None` where
    nothing does, which is not cached.

    Raises:
        BackendError: it cannot be seen, or the workspace does not answer.
    """

    def ask() -> Json:
        status = connection.find(f"looking at `{path}`", "/api/2.0/workspace/get-status", path=path)
        return None if status is None else str(status.get("object_type"))

    return cast("str | None", connection.answers.get(["object", path], ask))


def forget_kind(connection: Connection, path: str) -> None:
    """What lies at a path may have changed."""
    connection.answers.forget(["object", path])


def make_folder(connection: Connection, path: str) -> None:
    """Make a folder, unless the cache says that it is there. Raises BackendError."""
    if connection.answers.cached(["object", path]) != FOLDER:
        WorkspacePlace(connection).make_folder(path)
        connection.answers.remember(["object", path], FOLDER)


def _accelerators(connection: Connection) -> tuple[str, ...] | None:
    pages = _optional_pages(connection, "/api/2.0/ai-compute-manager/compute-options")
    if pages is None:
        return None
    options = [option for page in pages for option in page.get("compute_options") or ()]
    return tuple(sorted(str(option["hardware_accelerator"]) for option in options))


def _pools(connection: Connection) -> tuple[ReservedPool, ...] | None:
    path = "/api/2.0/ai-training/provisioned-capacities"
    pages = _optional_pages(connection, path, page_size=100)
    if pages is None:
        return None
    return tuple(_pool(item) for page in pages for item in page.get("provisioned_capacities") or ())


def _pool(raw: Mapping[str, Any]) -> ReservedPool:
    spec = raw.get("spec") or {}
    return ReservedPool(
        id=str(raw["name"]).rpartition("/")[2],
        accelerator=str(spec.get("accelerator_type")),
        gpus=int(spec.get("accelerator_count") or 0),
    )


def _optional_pages(
    connection: Connection, path: str, **query: Json
) -> list[dict[str, Any]] | None:
    """All pages of the answer of a service that not every workspace has."""
    try:
        return list(connection.pages(_DOING, path, **query))
    except BackendError as error:
        if error.code not in _ABSENT:
            raise
        return None
