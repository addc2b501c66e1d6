"""Whether a launch goes to the cluster that it was planned for, and may send there what it has."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.launching.node_program import planned_placement
from sgpu_decl.backends.ray.planning.cluster_checks import access_findings
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.errors import BackendError, StalePlan

if TYPE_CHECKING:
    from sgpu_decl.backends.launch_request import LaunchRequest
    from sgpu_decl.backends.ray.api.dashboard import Dashboard
    from sgpu_decl.config.run import RunConfig

__all__ = ["require_planned_cluster", "require_private"]


def require_planned_cluster(
    launching: "LaunchRequest", dashboard: "Dashboard", head: Callable[[], str | None]
) -> None:
    """Refuse a launch on another cluster than that of its plan: its ranks were placed on the nodes
    of that one, whose versions and access were checked. `RAY_ADDRESS` may lead elsewhere since a
    plan was saved. So may the same address: it may be that of a forwarded port, or of another
    machine.

    Args:
        dashboard: that of the cluster which the settings lead to now.
        head: gives the id of its head.

    Raises:
        StalePlan: it is another one.
        BackendError: the plan does not say which one it was, or the cluster does not answer.
    """
    placement, address = planned_placement(launching), dashboard.address
    if placement.address is None:
        error = BackendError(
            f"the Ray cluster did not answer when `{launching.ref}` was planned, so its ranks have "
            "no place there",
            hint="apply again: that plans again; make a saved plan anew",
            code="unavailable",
        )
        error.retryable = True
        raise error
    if placement.address != address.url:
        variable = address.source or "RAY_ADDRESS"
        raise StalePlan(
            f"`{launching.ref}` was planned for the Ray cluster at `{placement.address}`, and the "
            f"settings here lead to `{address.url}`",
            hint=f"plan again; or set `{variable}` to `{placement.address}` and apply this plan",
            code="other_cluster",
        )
    if head() != placement.head:
        raise StalePlan(
            f"`{launching.ref}` was planned for another Ray cluster than the one that answers at "
            f"`{address.url}` now, or its head was started again since the plan",
            hint="plan again",
            code="other_cluster",
        )


def require_private(config: "RunConfig", dashboard: "Dashboard") -> None:
    """Refuse to send code and secrets where anyone on the network path can read them. The
    dashboard has answered.

    Raises:
        BackendError: `ray_insecure`, see `access_findings`.
    """
    for finding in access_findings(config, {}, dashboard):
        if finding.severity is Severity.ERROR:
            raise BackendError(finding.summary, hint=finding.hint, code="ray_insecure")
