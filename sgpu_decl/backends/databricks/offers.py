"""What a workspace offers: kinds of machines, reserved pools, budget policies."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from sgpu_decl.backends.databricks.complaints import Rejected, Unknown
from sgpu_decl.backends.databricks.connecting import Connection
from sgpu_decl.backends.databricks.remembering import Memory
from sgpu_decl.errors import BackendError

__all__ = ["Offers", "Pool", "keys_of", "offers_known", "offers_of", "policy_of"]

_ABSENT = frozenset({"permission_denied", "remote_broken"})  # this workspace has no such service
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """GPUs that are reserved for the workspace."""

    id: str
    accelerator: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """`accelerators` are kinds of nodes, `None` where the workspace does not say."""

    accelerators: tuple[str, ...] | None
    pools: tuple[Pool, ...]

    def pools_for(self, accelerator: str) -> tuple[str, ...]:
        """The ids of the pools with nodes of a kind, the largest first."""
        fitting = [it for it in self.pools if it.accelerator == accelerator]
        return tuple(it.id for it in sorted(fitting, key=lambda it: (-it.gpus, it.id)))


def offers_known(connection: Connection) -> bool:
    """Whether `offers_of` needs no connection: it was asked a short while ago.

    Raises:
        BackendError: nothing says which workspace is meant.
    """
    return Memory(connection).answer("offers") is not None


def offers_of(connection: Connection) -> Offers:
    """What the workspace offers its user.

    Raises:
        BackendError: it does not answer.
    """
    memory = Memory(connection)
    known = memory.answer("offers")
    if isinstance(known, dict):
        return _read(known)
    found = Offers(accelerators=_accelerators(connection), pools=_pools(connection))
    memory.remember("offers", asdict(found))
    return found


def policy_of(connection: Connection, budget: str) -> str:
    """The id of the policy that a run's `budget` names, by its id or its name.

    Raises:
        BackendError: no policy has that name.
    """
    if _UUID.fullmatch(budget):
        return budget
    memory = Memory(connection)
    known = memory.answer(["policy", budget])
    if isinstance(known, str):
        return known
    query: dict[str, Any] = {"filter_by.policy_name": budget, "page_size": 1000}
    answer = connection.ask(
        f"looking for the budget policy `{budget}`", "/api/2.0/serverless-policies", **query
    )
    found = {it["policy_name"]: it["policy_id"] for it in answer.get("policies") or ()}
    if budget not in found:
        near = ", ".join(f"`{name}`" for name in sorted(found)[:5])
        raise BackendError(
            f"`{connection.host}` has no budget policy `{budget}`",
            hint=f"there are {near}" if near else "give the name or the id of one of its policies",
            code="unknown_policy",
        )
    memory.remember(["policy", budget], str(found[budget]))
    return str(found[budget])


def keys_of(connection: Connection, scope: str) -> frozenset[str] | None:
    """The keys of a secret scope, never their values; `None` where there is no such scope.

    Raises:
        BackendError: it cannot be seen, or the workspace does not answer.
    """
    memory = Memory(connection)
    known = memory.answer(["secrets", scope])
    if isinstance(known, list):
        return frozenset(str(it) for it in known)
    try:
        answer = connection.ask(
            f"looking for the secret scope `{scope}`", "/api/2.0/secrets/list", scope=scope
        )
    except Unknown:
        return None
    keys = sorted(str(it["key"]) for it in answer.get("secrets") or ())
    memory.remember(["secrets", scope], [*keys])
    return frozenset(keys)


def _accelerators(connection: Connection) -> tuple[str, ...] | None:
    answer = _asked(connection, "/api/2.0/ai-compute-manager/compute-options")
    if answer is None:
        return None
    options = answer.get("compute_options") or ()
    return tuple(sorted(str(it["hardware_accelerator"]) for it in options))


def _pools(connection: Connection) -> tuple[Pool, ...]:
    found: list[Pool] = []
    token: str | None = None
    while True:
        query: dict[str, Any] = {"page_size": 100, **({"page_token": token} if token else {})}
        answer = _asked(connection, "/api/2.0/ai-training/provisioned-capacities", **query)
        if answer is None:
            return ()
        found += [_pool(it) for it in answer.get("provisioned_capacities") or ()]
        token = answer.get("next_page_token")
        if not token:
            return tuple(found)


def _pool(raw: dict[str, Any]) -> Pool:
    spec = raw.get("spec") or {}
    return Pool(
        id=str(raw["name"]).rpartition("/")[2],
        accelerator=str(spec.get("accelerator_type")),
        gpus=int(spec.get("accelerator_count") or 0),
    )


def _asked(connection: Connection, path: str, **query: Any) -> dict[str, Any] | None:
    """The answer of a service that not every workspace has."""
    try:
        return connection.ask("asking what the workspace offers", path, **query)
    except (Unknown, Rejected):
        return None
    except BackendError as error:
        if error.code not in _ABSENT:
            raise
        return None


def _read(raw: dict[str, Any]) -> Offers:
    accelerators = raw["accelerators"]
    return Offers(
        accelerators=None if accelerators is None else tuple(accelerators),
        pools=tuple(Pool(**it) for it in raw["pools"]),
    )
