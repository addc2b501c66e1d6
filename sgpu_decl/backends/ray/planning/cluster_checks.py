"""What a cluster and its dashboard mean for a run, beside room."""

import platform
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.api.cluster_tables import NO_JOBS_HINT
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterState
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.ray_size import FIRST_RAY_WITH_TOKENS, OLDEST_RAY

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

Places = Mapping[str, Place]

_OLDEST_PYTHON = "3.10"
_DRIVER = 200_000_000  # bytes that the driver of an attempt has on the head


def cluster_findings(
    config: "RunConfig",
    places: Places,
    state: ClusterState,
    *,
    python: str | None,
    called: bool,
) -> Iterator[Diagnostic]:
    """Findings about versions, and about what Ray was installed with.

    Args:
        python: the version of the Python whose environment is sent; None where none is.
        called: the run is a function of this process.
    """
    place = places.get("backend.address") or _block(places)
    for name, found, oldest in (
        ("Ray", state.ray, OLDEST_RAY),
        ("Python", state.python, _OLDEST_PYTHON),
    ):
        if () < _numbers(found) < _numbers(oldest):
            yield Diagnostic(
                code="ray_too_old",
                summary=f"the cluster has {name} {found}, and sgpu needs {oldest} or newer",
                place=place,
                hint=f"update the cluster, or use another one: {name} {oldest} is the oldest",
            )
    if not state.has_jobs:
        yield Diagnostic(
            code="ray_without_jobs",
            summary="the Ray of the cluster has no Jobs API, which launches need",
            place=place,
            hint=NO_JOBS_HINT,
        )
    own = platform.python_version() if called else None
    sent = python or own
    if (
        options_of(config).python is None
        and sent is not None
        and _minor(sent) != _minor(state.python)
    ):
        whose = "the called function comes from" if called else "the environment is for"
        yield Diagnostic(
            code="python_differs",
            summary=f"{whose} Python {sent}, and the cluster runs Python {state.python}",
            place=places.get("env.python") or _block(places),
            hint=f"name a Python {_minor(sent)} of the nodes with `python` in `backend`, or use "
            f"Python {_minor(state.python)} here",
        )


def head_limit(state: ClusterState) -> tuple[int | None, Diagnostic | None]:
    """How many drivers find memory on the head, and the finding about more: each attempt has one
    there, also while it waits for room."""
    head = state.head
    if head is None or head.memory is None:
        return None, None
    limit = head.memory // _DRIVER
    drivers = "one driver" if limit == 1 else f"{limit:,} drivers" if limit else "no driver"
    return limit, Diagnostic(
        code="head_memory",
        severity=Severity.WARNING,
        summary=f"the head of the cluster has {size(head.memory)} of memory free, which is "
        f"enough for {drivers}: each attempt keeps one of {size(_DRIVER)} there, also while "
        "it waits",
        hint="launch fewer runs at once with `--select`, wait until other attempts have ended, or "
        "give the head more memory",
    )


def access_findings(
    config: "RunConfig", places: Places, dashboard: Dashboard
) -> Iterator[Diagnostic]:
    """Findings about who may use the cluster, and who can see what is sent. The dashboard has
    answered."""
    address, credentials = dashboard.address, dashboard.credentials
    place = places.get("backend.address") or _block(places)
    if credentials.exposed is not None and dashboard.requires_token:
        yield Diagnostic(
            code="ray_token_readable",
            severity=Severity.WARNING,
            summary=f"other users of this machine can read the token in `{credentials.exposed}`",
            place=place,
            hint=f"run `chmod 600 {credentials.exposed}`",
        )
    if address.is_loopback:
        return
    if dashboard.requires_token or credentials.has_secret_header:
        if not address.is_encrypted and not options_of(config).insecure:
            what = "the token" if dashboard.requires_token else "the headers of `RAY_JOB_HEADERS`"
            yield Diagnostic(
                code="ray_unencrypted",
                severity=Severity.WARNING,
                summary=f"`{address.url}` is not encrypted: anyone on the network path can read "
                f"{what}",
                place=place,
                hint="use `https`, or accept it with `insecure: true` in `backend`",
            )
        return
    if not address.is_encrypted and not options_of(config).insecure:
        yield Diagnostic(
            code="ray_insecure",
            summary=f"`{address.url}` has neither encryption nor a token: anyone on the network "
            "path can read and change what is sent",
            place=place,
            hint="start the cluster with `RAY_AUTH_MODE=token`, use `https`, or accept it with "
            "`insecure: true` in `backend`",
        )
        return
    yield Diagnostic(
        code="ray_open",
        severity=Severity.WARNING,
        summary=f"`{address.url}` asks for no token: everybody who reaches it can run code there",
        place=place,
        hint="start the cluster with `RAY_AUTH_MODE=token` "
        f"(Ray {FIRST_RAY_WITH_TOKENS} and newer)",
    )


def _block(places: Places) -> Place | None:
    return places.get("backend.kind") or places.get("backend")


def _minor(version: str) -> str:
    return ".".join(str(number) for number in _numbers(version))


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor version. Builds have endings of their own: `3.11.9+`, `2.49.1-anyscale`."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
