"""Ids of what a workspace has by name, for `lookup` of variables."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json


class _Listing(NamedTuple):
    """The API that lists a kind, the key of its list, and the keys of the name and of the id."""

    path: str
    items: str
    name: str
    id: str


_LISTINGS: Mapping[str, _Listing] = MappingProxyType(
    {
        # https://docs.databricks.com/api/workspace/warehouses/list
        "warehouse": _Listing("/api/2.0/sql/warehouses", "warehouses", "name", "id"),
        # https://docs.databricks.com/api/workspace/serviceprincipals/list; as in bundles, the id is
        # that of the application: `bundle/config/variable/resolve_service_principal.go` of
        # https://github.com/databricks/cli
        "service_principal": _Listing(
            "/api/2.0/preview/scim/v2/ServicePrincipals",
            "Resources",
            "displayName",
            "applicationId",
        ),
        # https://docs.databricks.com/api/workspace/notificationdestinations/list
        "notification_destination": _Listing(
            "/api/2.0/notification-destinations", "results", "display_name", "id"
        ),
    }
)


def id_of(connection: Connection, kind: str, name: str) -> str:
    """The id of the object of a kind that has this name; cached as other answers are.

    Raises:
        BackendError: none has it, or several do, or the workspace does not answer.
    """
    listing, words = _LISTINGS[kind], kind.replace("_", " ")

    def ask() -> Json:
        query: dict[str, Json] = {}
        if kind == "service_principal":
            quoted = name.replace("\\", "\\\\").replace('"', '\\"')
            query["filter"] = f'displayName eq "{quoted}"'
        pages = connection.pages(f"looking for the {words} `{name}`", listing.path, **query)
        found = [item for page in pages for item in page.get(listing.items) or ()]
        ids = [str(item[listing.id]) for item in found if item.get(listing.name) == name]
        if len(ids) == 1:
            return ids[0]
        if ids:
            raise BackendError(
                f"`{connection.host}` has {len(ids)} objects of the kind {words} with the name "
                f"`{name}`: {', '.join(f'`{one}`' for one in sorted(ids)[:5])}",
                hint="give the variable the id of one of them as `default`, instead of `lookup`",
                code="ambiguous_lookup",
            )
        names = sorted({str(item.get(listing.name)) for item in found})
        near = nearest(name, names)
        listed = ", ".join(f"`{one}`" for one in names[:5])
        there = f"there are {listed}" if names else "correct the name, or ask for access to it"
        raise BackendError(
            f"`{connection.host}` shows no {words} with the name `{name}`",
            hint=f"did you mean `{near}`?" if near else there,
            code="unknown_lookup",
        )

    return str(connection.answers.get(["lookup", kind, name], ask))
