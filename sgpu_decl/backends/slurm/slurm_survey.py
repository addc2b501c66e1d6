"""What planning asks of a cluster: its partitions, its nodes and their GPUs, and its accounts."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sgpu_decl.backends.node_tracker import tracking_findings
from sgpu_decl.backends.remote.remote_survey import (
    RemoteSurvey,
    entrypoint_findings,
    storage_findings,
    unsupported_findings,
)
from sgpu_decl.backends.secret_resolution import missing_secrets
from sgpu_decl.backends.slurm.cluster_state import (
    SlurmNode,
    SlurmPartition,
    gpu_type,
)
from sgpu_decl.backends.slurm.slurm_answers import SlurmAnswers, SlurmClusterAnswers
from sgpu_decl.backends.slurm.slurm_limits import exceeded
from sgpu_decl.backends.slurm.slurm_placement import NodeFit, fit_of, options_of
from sgpu_decl.backends.slurm.submission import link_seconds, resource_options, time_limit
from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import names_hint
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.interpreters import Pythons
from sgpu_decl.errors import BackendError
from sgpu_decl.model.desired import Placement
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.gpu_offer import GpuOffer, up_to
from sgpu_decl.model.plan import PlanPlatform
from sgpu_decl.model.ray_size import NodeShape

if TYPE_CHECKING:
    from sgpu_decl.backends.slurm.options import SlurmOptions
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.run import RunConfig

Places = Mapping[str, Place]

_SHOWN = 4  # nodes in a message
_AT_ONCE, _FAR = 60, 366 * 86_400  # seconds
_UNSUPPORTED = {
    "code.link": (
        "`code.link` names data of this machine, which nodes may not see",
        "name a folder that nodes have in the run, and read it there",
    ),
}


class SlurmSurvey(RemoteSurvey):
    """See `Survey`."""

    def __init__(self, pythons: Callable[[], Pythons], answers: SlurmClusterAnswers) -> None:
        super().__init__(pythons)
        self._cluster = answers.of

    def placement(self, config: "RunConfig") -> tuple[Placement | None, Sequence[Diagnostic]]:
        fit = self._fit(config)
        if fit is None or fit.never:
            return None, ()  # `check` says why
        options = options_of(config)
        chosen = fit.placement(options)
        nodes, ranks = f"{fit.groups} node", f"{fit.ranks} rank"
        words = f"{nodes}{'s' * (fit.groups > 1)} \N{MULTIPLICATION SIGN} "
        cluster = self._cluster(options)
        words += f"{ranks}{'s' * (fit.ranks > 1)}, {_in(options, cluster)}"
        most = cluster.longest(options)
        link = most[0] if most is not None else None
        start = cluster.start(tuple(resource_options(config, chosen, link)))
        if start is not None:
            words += f"; {_start_words(start)}"
        words += self._age(options)
        note = Diagnostic(
            code="slurm_placement",
            severity=Severity.INFO,
            summary=words,
            hint="`gpus_per_node` and `partition` in `backend` change it",
        )
        return Placement(id=chosen.id, note=note, field="backend"), ()

    def nodes(self, config: "RunConfig") -> NodeShape | None:
        fit = self._fit(config)
        if fit is None or fit.never:
            return None
        gpus = 0 if config.type.kind is GPUType.CPU else fit.ranks
        cpus = fit.placement(options_of(config)).cpus
        return NodeShape(nodes=fit.groups, gpus=gpus, cpus=cpus)

    def account(self, config: "RunConfig") -> PlanPlatform:
        options = options_of(config)
        names = options.partition or ""
        with suppress(BackendError):
            chosen = self._cluster(options).chosen(options)
            names = ",".join(one.name for one in chosen)
        if options.login is not None:
            names = f"{options.login} ({names})" if names else options.login
        return PlanPlatform(backend="slurm", host=names)

    def offers(self, block: "BackendOptions") -> Sequence[GpuOffer]:
        options = cast("SlurmOptions", block)
        named = {site: name.upper() for name, site in options.gpu_names.items()}
        counts: dict[str, list[int]] = {}
        for node in self._nodes_of(options):
            for name, total in node.gpus.items():
                kind = gpu_type(name)
                label = named.get(name) or (kind.name if kind is not None else name or "GPU")
                count = counts.setdefault(label, [0, 0])
                count[0] += total
                count[1] += node.free(name)
        return [
            GpuOffer(type=kind, gpus=up_to(total), free=free, total=total,
                     where=_in(options, self._cluster(options)))
            for kind, (total, free) in counts.items()
        ]  # fmt: skip

    def site(self, config: "RunConfig") -> str:
        options = options_of(config)
        there = f" on `{options.login}`" if options.login is not None else ""
        return f"Slurm with `{options.storage}`{there}"

    def rules(self, config: "RunConfig", places: Places, folder: Path) -> Sequence[Diagnostic]:
        return tuple(self._rules(config, places, folder, called=False))

    def check(
        self, config: "RunConfig", places: Places, folder: Path, *, called: bool
    ) -> Sequence[Diagnostic]:
        options = options_of(config)
        found = [
            *self._rules(config, places, folder, called=called),
            *missing_secrets(config.secrets, places, os.environ, folder),
        ]
        if options.login is None:  # a login node elsewhere says so itself
            found += storage_findings(_storage_root(options), places)
        if config.mlflow.enabled:
            found += tracking_findings(config, places, os.environ)
        try:
            unknown = [*self._unknown_names(options, places)]
            found += unknown or [
                *self._limits(config, options, places),
                *self._room(config, options, places),
            ]
        except BackendError as error:
            fields = ("backend.login", "backend.kind", "backend")
            place = next((places[one] for one in fields if one in places), None)
            found += self.unanswered("cluster", error, "a launch there would fail", place)
        return found

    def _rules(
        self, config: "RunConfig", places: Places, folder: Path, *, called: bool
    ) -> Iterator[Diagnostic]:
        yield from unsupported_findings(config, places, _UNSUPPORTED, called=called)
        yield from entrypoint_findings(config, places, folder)
        options = options_of(config)
        if config.max_parallel is not None and not called:
            yield Diagnostic(
                code="array_limit",
                severity=Severity.INFO,
                summary="`max_parallel` counts the cells that one apply launches, and that ask "
                "Slurm for the same: they are an array",
                place=places.get("max_parallel"),
                hint="cells that differ in `gpus`, `timeout` or `backend` are counted apart",
            )
        if config.gpus % (options.gpus_per_node or 1):
            yield Diagnostic(
                code="bad_ranks_per_node",
                summary=f"`gpus_per_node: {options.gpus_per_node}` does not divide "
                f"`gpus: {config.gpus}`",
                place=places.get("backend.gpus_per_node"),
                hint="use a divisor, or leave it out",
            )

    def _unknown_names(self, options: "SlurmOptions", places: Places) -> Iterator[Diagnostic]:
        cluster = self._cluster(options)
        partitions, mine = cluster.partitions, cluster.associations
        accounts = {one.account for one in mine}
        qualities = {name for one in mine for name in one.qos}
        if not cluster.chosen(options) and options.partition is None:
            yield Diagnostic(
                code="unknown_slurm_name",
                summary="the cluster has no default partition",
                place=places.get("backend.kind") or places.get("backend"),
                hint=f"name one with `partition`: {names_hint('', partitions)}",
            )
        known = {"partition": partitions, "account": accounts, "qos": qualities}
        for field, names in known.items():
            written = getattr(options, field)
            for name in written.split(",") if written is not None and names else ():
                if name not in names:
                    yield Diagnostic(
                        code="unknown_slurm_name",
                        summary=f"Slurm has no {field} `{name}` for you",
                        place=places.get(f"backend.{field}"),
                        hint=names_hint(name, names),
                    )
        yield from self._closed_to(options, places)

    def _closed_to(self, options: "SlurmOptions", places: Places) -> Iterator[Diagnostic]:
        """The account or QOS that no partition of the run takes."""
        cluster = self._cluster(options)
        partitions, chosen = cluster.partitions, cluster.chosen(options)
        for field in ("account", "qos"):
            name = getattr(options, field)
            if name is None or not chosen or any(_takes(one, field, name) for one in chosen):
                continue
            where = _in(options, cluster)
            allowed = sorted({one for item in chosen for one in item.allowed.get(field, ())})
            others = [one.name for one in partitions.values() if _takes(one, field, name)]
            hint = f"it takes {', '.join(f'`{one}`' for one in allowed)}; " if allowed else ""
            yield Diagnostic(
                code="slurm_not_allowed",
                summary=f"{where} does not take the {field} `{name}`",
                place=places.get(f"backend.{field}"),
                hint=f"{hint}partitions that take `{name}`: {', '.join(others) or 'none'}",
            )

    def _limits(
        self, config: "RunConfig", options: "SlurmOptions", places: Places
    ) -> Iterator[Diagnostic]:
        cluster, seconds = self._cluster(options), time_limit(config)
        chosen, most = cluster.chosen(options), cluster.longest(options)
        names = ", ".join(f"`{one.name}`" for one in chosen)
        place = places.get("backend.partition") or places.get("backend")
        if chosen and not any(one.works for one in chosen):
            yield Diagnostic(
                code="partition_down",
                severity=Severity.WARNING,
                summary=f"the partition {names} is down: the run has to wait",
                place=place,
                hint="`sinfo --summarize` shows the others",
            )
        if options.chain > 1:
            yield from _chain(config, places, most)
        elif seconds is not None and most is not None and seconds > most[0]:
            yield Diagnostic(
                code="over_time_limit",
                summary=f"the run needs {duration(seconds)} with its grace and its start, and "
                f"{most[1]} gives {duration(most[0])} at most",
                place=places.get("timeout"),
                hint="write a shorter `timeout`, name another partition, or let the run go on "
                "after each end: `chain` in `backend`, with `resume: auto`"
                + ("; or name another `qos`" if cluster.limits_of(options, chosen[0]) else ""),
            )
        usual = {one.usual or one.longest for one in chosen} - {None}
        if seconds is None and usual:
            yield Diagnostic(
                code="partition_time",
                severity=Severity.INFO,
                summary=f"Slurm ends the run after {duration(min(filter(None, usual)))}, as "
                f"{names} says: it has no `timeout`",
                place=place,
                hint="write a `timeout`",
            )

    def _over_limits(
        self, options: "SlurmOptions", places: Places, fit: NodeFit
    ) -> Iterator[Diagnostic]:
        """What a run asks for that none of its partitions may ever give it."""
        chosen = self._cluster(options).chosen(options)
        resources = fit.placement(options).resources
        over: list[str] = []
        for partition in chosen:
            limits = self._cluster(options).limits_of(options, partition)
            found = list(exceeded(resources, limits))
            if partition.nodes is not None and fit.groups > partition.nodes:
                found.append(
                    f"needs {fit.groups} nodes, and the partition `{partition.name}` allows a job "
                    f"{partition.nodes}"
                )
            if not found:
                return
            over += found
        if over:
            yield Diagnostic(
                code="over_slurm_limit",
                summary=f"{'; '.join(dict.fromkeys(over))}: it would wait for ever",
                place=places.get("gpus"),
                hint="ask for less, or name another `qos`, `account` or `partition`",
            )

    def _age(self, options: "SlurmOptions") -> str:
        """How old the answers are that a message is about."""
        age = self._cluster(options).age
        return f" (Slurm said so {duration(age)} ago)" if age >= 1 else ""

    def _room(
        self, config: "RunConfig", options: "SlurmOptions", places: Places
    ) -> Iterator[Diagnostic]:
        if config.gpus % (options.gpus_per_node or 1):
            return
        fit = fit_of(config, options, self._nodes_of(options))
        if not fit.never:
            yield from self._over_limits(options, places, fit)
        if not (fit.never or fit.later):
            return
        what = "CPUs" if config.type.kind is GPUType.CPU else config.type.name
        needs = f"needs {fit.groups} node{'s' * (fit.groups > 1)} with {fit.ranks} {what}"
        rooms = sorted(fit.choice.nodes, key=lambda room: -(room.total if fit.never else room.now))
        has = [f"{room.node.name} has {room.total if fit.never else room.now}" for room in rooms]
        more = [f"{len(has) - _SHOWN} more have less"] if len(has) > _SHOWN else []
        listed = ", ".join([*has[:_SHOWN], *more])
        if not fit.never:
            yield Diagnostic(
                code="not_now",
                severity=Severity.WARNING,
                summary=f"{needs}, and has to wait for room; free now: {listed or 'none'}"
                f"{self._age(options)}",
                place=places.get("gpus"),
                hint="it starts as soon as there is room",
            )
            return
        where = _in(options, self._cluster(options))
        offers = ", ".join(f"{one.total} {one.type}" for one in self.offers(options)) or "no GPUs"
        yield Diagnostic(
            code="never_fits",
            summary=f"{needs}; {listed or f'{where} has {offers}'}",
            place=places.get("gpus" if listed else "type") or places.get("gpus"),
            hint="ask for less, or name another `partition`; `gpu_names` in `backend` tells odd "
            "names of types",
        )

    def _nodes_of(self, options: "SlurmOptions") -> Sequence[SlurmNode]:
        """The nodes of the partitions of a run."""
        names = {one.name for one in self._cluster(options).chosen(options)}
        return [node for node in self._cluster(options).nodes if names & node.partitions]

    def _fit(self, config: "RunConfig") -> NodeFit | None:
        options = options_of(config)
        if config.gpus % (options.gpus_per_node or 1):
            return None
        with suppress(BackendError):
            return fit_of(config, options, self._nodes_of(options))
        return None


def _takes(partition: SlurmPartition, field: str, name: str) -> bool:
    """Whether a partition takes jobs of an account or a QOS. `DenyAccounts` counts only where
    `AllowAccounts` says nothing (https://slurm.schedmd.com/slurm.conf.html#OPT_DenyAccounts)."""
    if field in partition.allowed:
        return name in partition.allowed[field]
    return name not in partition.denied.get(field, ())


def _storage_root(options: "SlurmOptions") -> str:
    """The folder that has to be there before the first launch: `storage`, or the home in which a
    launch makes the one that nobody has named."""
    folder = os.path.expanduser(options.storage)
    named = "storage" in options.model_fields_set or os.path.lexists(folder)
    return folder if named else os.path.expanduser("~")


def _start_words(start: int) -> str:
    if start <= time.time() + _AT_ONCE:
        return "Slurm would start it at once"
    if start > time.time() + _FAR:  # behind jobs without a time limit
        return "Slurm cannot tell when it would start it"
    return f"Slurm would start it at {datetime.fromtimestamp(start, UTC):%Y-%m-%d %H:%M} UTC"


def _chain(
    config: "RunConfig", places: Places, most: tuple[int, str] | None
) -> Iterator[Diagnostic]:
    """What is to be said of a run whose job goes on past its time limit, where somebody's
    limit gives it so many seconds each time."""
    chain = options_of(config).chain
    place = places.get("backend.chain")
    if config.resume is None:
        yield Diagnostic(
            code="chain_without_resume",
            summary=f"with `chain: {chain}` ranks start again from nothing each time",
            place=place,
            hint="add `resume: auto` to the run: ranks find what they saved in "
            "`SGPU_PREVIOUS_OUTPUT_DIR`",
        )
    if most is None or config.timeout is None:
        return
    each = link_seconds(config, most[0])
    whole = ceil(config.timeout.seconds / each) if each else None
    if whole is None or whole > chain:
        yield Diagnostic(
            code="over_time_limit",
            summary=f"{chain} links of {duration(each)} are shorter than `timeout`: {most[1]} "
            f"gives {duration(most[0])}, of which its grace and its start are taken",
            place=place,
            hint=f"write `chain: {whole}`" if whole else "name another partition",
        )


def _in(options: "SlurmOptions", cluster: SlurmAnswers) -> str:
    names = ", ".join(f"`{one.name}`" for one in cluster.chosen(options))
    there = f" of `{options.login}`" if options.login is not None else ""
    return f"Slurm's partition {names}{there}"
