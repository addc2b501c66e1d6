"""Rules for the config of a run on a Ray cluster that need no cluster."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.cluster.bundle_counts import divisors
from sgpu_decl.backends.ray.planning.group_shape import has_equal_groups, options_of
from sgpu_decl.backends.remote.remote_survey import (
    entrypoint_findings,
    storage_findings,
    unsupported_findings,
)
from sgpu_decl.backends.secret_resolution import missing_secrets
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

Places = Mapping[str, Place]

_UNSUPPORTED = {
    "max_parallel": (
        "runs on a Ray cluster wait for room only: nothing there counts `max_parallel`",
        "leave it out here: `max_parallel: null` in the target",
    ),
    "code.link": (
        "`code.link` names data of this machine, which the nodes do not see",
        "copy it to a folder that all nodes have, and read it there",
    ),
}


def config_findings(
    config: "RunConfig", places: Places, folder: Path, *, called: bool
) -> Iterator[Diagnostic]:
    """Findings about fields that do not work there.

    Args:
        folder: what paths in the config start from.
        called: the run is a function of this process.
    """
    yield from (_of_driver if config.drives_existing else _ranks_per_node)(config, places)
    yield from unsupported_findings(config, places, _UNSUPPORTED, called=called)
    yield from entrypoint_findings(config, places, folder)


def machine_findings(config: "RunConfig", places: Places, folder: Path) -> Iterator[Diagnostic]:
    """Findings about what the run needs of this machine; `folder` as in `config_findings`."""
    yield from missing_secrets(config.secrets, places, os.environ, folder)
    storage = options_of(config).storage
    if storage is not None:
        yield from storage_findings(storage, places)


def _of_driver(config: "RunConfig", places: Places) -> Iterator[Diagnostic]:
    """Options of rank groups: the driver is none."""
    options, own = options_of(config), config.ray
    on_head = own is not None and not (own.num_cpus or own.num_gpus or own.resources)
    group, head = "there are no rank groups", "the driver runs on the head node"
    remove = "remove it: there is one driver"
    move = "write `num_cpus` and `resources` in `ray`: they are those of the driver"
    away = "write `num_cpus: 1` in `ray`, so that it may run on another node; tasks name labels"
    for field, used, why, hint in (
        ("ranks_per_node", (options.ranks_per_node or 1) > 1, group, remove),
        ("resources_per_rank", options.resources_per_rank, group, move),
        ("labels", options.labels and on_head, head, f"{away} themselves"),
    ):
        if used:
            yield Diagnostic(
                code="backend_of_driver",
                summary=f"`{field}` does not go with `ray.cluster: existing`: {why}",
                place=places.get(f"backend.{field}") or places.get("backend"),
                hint=hint,
            )


def _ranks_per_node(config: "RunConfig", places: Places) -> Iterator[Diagnostic]:
    ranks = options_of(config).ranks_per_node
    if has_equal_groups(config):
        return
    fitting = ", ".join(f"`{number}`" for number in reversed(divisors(config.ranks)[:8]))
    yield Diagnostic(
        code="bad_ranks_per_node",
        summary=f"`ranks_per_node: {ranks}` does not divide `gpus: {config.gpus}`",
        place=places.get("backend.ranks_per_node"),
        hint=f"use one of {fitting}, or leave it out",
    )
