"""What a workspace offers: kinds of machines, reserved pools, budget policies."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from sgpu_decl.backends.databricks.api.answer_cache import AnswerCache
from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import Rejected
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.errors import BackendError

__all__ = [
    "FOLDER",
    "Catalog",
    "ReservedPool",
    "catalog_of",
    "forget_kind",
    "has_group",
    "is_catalog_known",
    "keys_of",
    "kind_of",
    "known_kind",
    "policy_of",
    "remember_folder",
]

FOLDER = "DIRECTORY"
"""What a folder is called where it is asked what lies at a path."""

_ABSENT = frozenset({"permission_denied", "remote_broken"})  # this workspace has no such service
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
        fitting = [pool for pool in self.pools or () if pool.accelerator == accelerator]
        return tuple(item.id for item in sorted(fitting, key=lambda item: (-item.gpus, item.id)))


def is_catalog_known(connection: Connection) -> bool:
    """Whether `catalog_of` needs no connection: it was asked a short while ago.

    Raises:
        BackendError: nothing says which workspace is meant.
    """
    return AnswerCache(connection).answer("offers") is not None


def catalog_of(connection: Connection) -> Catalog:
    """What the workspace offers its user.

    Raises:
        BackendError: it does not answer.
    """
    cache = AnswerCache(connection)
    known = cache.answer("offers")
    if isinstance(known, dict):
        return _read(known)
    found = Catalog(accelerators=_accelerators(connection), pools=_pools(connection))
    cache.remember("offers", asdict(found))
    return found


def policy_of(connection: Connection, budget: str) -> str:
    """The id of the policy that a run's `budget` names, by its id or its name.

    Raises:
        BackendError: no policy has that name.
    """
    if _UUID.fullmatch(budget):
        return budget
    cache = AnswerCache(connection)
    known = cache.answer(["policy", budget])
    if isinstance(known, str):
        return known
    query: dict[str, Any] = {"filter_by.policy_name": budget, "page_size": 1000}
    answer = connection.ask(
        f"looking for the budget policy `{budget}`", "/api/2.0/serverless-policies", **query
    )
    found = {item["policy_name"]: item["policy_id"] for item in answer.get("policies") or ()}
    if budget not in found:
        near = ", ".join(f"`{name}`" for name in sorted(found)[:5])
        raise BackendError(
            f"`{connection.host}` has no budget policy `{budget}`",
            hint=f"there are {near}" if near else "give the name or the id of one of its policies",
            code="unknown_policy",
            field="budget",
        )
    cache.remember(["policy", budget], str(found[budget]))
    return str(found[budget])


def keys_of(connection: Connection, scope: str) -> frozenset[str] | None:
    """The keys of a secret scope, never their values; `None` where there is no such scope.

    Raises:
        BackendError: it cannot be seen, or the workspace does not answer.
    """
    cache = AnswerCache(connection)
    known = cache.answer(["secrets", scope])
    if isinstance(known, list):
        return frozenset(str(item) for item in known)
    try:
        answer = connection.ask(
            f"looking for the secret scope `{scope}`", "/api/2.0/secrets/list", scope=scope
        )
    except RemoteMissing:
        return None
    keys = sorted(str(item["key"]) for item in answer.get("secrets") or ())
    cache.remember(["secrets", scope], [*keys])
    return frozenset(keys)


def has_group(connection: Connection, name: str) -> bool | None:
    """Whether the workspace shows a group; `None` where it shows none to this user. One that is
    there is remembered.

    Raises:
        BackendError: the workspace does not answer.
    """
    cache = AnswerCache(connection)
    if cache.answer(["group", name]) is True:
        return True
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    answer = _asked(
        connection,
        "/api/2.0/preview/scim/v2/Groups",
        filter=f'displayName eq "{quoted}"',
        attributes="displayName",
    )
    if answer is None:
        return None
    found = any(item.get("displayName") == name for item in answer.get("Resources") or ())
    if found:
        cache.remember(["group", name], found)
    return found


def kind_of(connection: Connection, path: str) -> str | None:
    """What lies at a path of the workspace's tree: `DIRECTORY`, `FILE`, `NOTEBOOK`; `None` where
    nothing does. What is there is remembered, and what is not is looked for again.

    Raises:
        BackendError: it cannot be seen, or the workspace does not answer.
    """
    known = known_kind(connection, path)
    if known is not None:
        return known
    try:
        found = connection.ask(f"looking at `{path}`", "/api/2.0/workspace/get-status", path=path)
    except RemoteMissing:
        return None
    kind = str(found.get("object_type"))
    AnswerCache(connection).remember(["object", path], kind)
    return kind


def known_kind(connection: Connection, path: str) -> str | None:
    """What lay at a path a short while ago; `None` where nobody has looked."""
    known = AnswerCache(connection).answer(["object", path])
    return known if isinstance(known, str) else None


def remember_folder(connection: Connection, path: str) -> None:
    """A folder was made there."""
    AnswerCache(connection).remember(["object", path], FOLDER)


def forget_kind(connection: Connection, path: str) -> None:
    """What lies at a path may have changed."""
    AnswerCache(connection).forget(["object", path])


def _accelerators(connection: Connection) -> tuple[str, ...] | None:
    answer = _asked(connection, "/api/2.0/ai-compute-manager/compute-options")
    if answer is None:
        return None
    options = answer.get("compute_options") or ()
    return tuple(sorted(str(option["hardware_accelerator"]) for option in options))


def _pools(connection: Connection) -> tuple[ReservedPool, ...] | None:
    found: list[ReservedPool] = []
    token: str | None = None
    while True:
        query: dict[str, Any] = {"page_size": 100, **({"page_token": token} if token else {})}
        answer = _asked(connection, "/api/2.0/ai-training/provisioned-capacities", **query)
        if answer is None:
            return None
        found += [_pool(item) for item in answer.get("provisioned_capacities") or ()]
        token = answer.get("next_page_token")
        if not token:
            return tuple(found)


def _pool(raw: dict[str, Any]) -> ReservedPool:
    spec = raw.get("spec") or {}
    return ReservedPool(
        id=str(raw["name"]).rpartition("/")[2],
        accelerator=str(spec.get("accelerator_type")),
        gpus=int(spec.get("accelerator_count") or 0),
    )


def _asked(connection: Connection, path: str, **query: Any) -> dict[str, Any] | None:
    """The answer of a service that not every workspace has."""
    try:
        return connection.ask("asking what the workspace offers", path, **query)
    except (RemoteMissing, Rejected):
        return None
    except BackendError as error:
        if error.code not in _ABSENT:
            raise
        return None


def _read(raw: dict[str, Any]) -> Catalog:
    accelerators, pools = raw["accelerators"], raw["pools"]
    return Catalog(
        accelerators=None if accelerators is None else tuple(accelerators),
        pools=None if pools is None else tuple(ReservedPool(**pool) for pool in pools),
    )
