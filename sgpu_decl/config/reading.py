"""A file to its validated runs: the whole way, with everything that is wrong at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from sgpu_decl.config.declaring import Declared, Surroundings, read_run
from sgpu_decl.config.job import Job
from sgpu_decl.config.project import Mode
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.shaping import project_shape, run_shape
from sgpu_decl.config.sharing import DeclaredJob, read_project
from sgpu_decl.config.targeting import with_target
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors, in_order
from sgpu_decl.diagnostics.masking import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.jsonable import canonical, digest
from sgpu_decl.model.target import BASE
from sgpu_decl.text import limits, nodes
from sgpu_decl.text.loading import load
from sgpu_decl.text.merging import set_value
from sgpu_decl.text.variables import read_variables

__all__ = [
    "Loaded",
    "LoadedJob",
    "LoadedRun",
    "digest_of",
    "loaded_run",
    "overlaid",
    "read",
    "told",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """One run, or one cell of a matrix.

    Attributes:
        config: without the matrix; `args` holds the cell's values.
        places: where the user wrote each field, by its dotted path.
        spec: canonical JSON of the config without defaults, its name and the matrix.
    """

    address: Address
    config: RunConfig
    places: Mapping[str, Place] = field(compare=False)
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """One job of a project.

    Attributes:
        places: where the user wrote each field, by its dotted path.
        place: where the job is named.
        spec: canonical JSON of the config without defaults.
    """

    address: Address
    config: Job
    places: Mapping[str, Place] = field(compare=False)
    place: Place = field(compare=False)
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that one file says.

    Attributes:
        runs: in the order of the file, the cells of a matrix in theirs.
        jobs: those of a project, in the order of the file.
        mode: what the target is for.
        config_digest: of all addresses and specs: the same while nothing that matters changed.
        source: the file's text, for excerpts.
        unsupported: blocks of a project that are valid and that nothing acts on yet.
    """

    kind: Literal["run", "project"]
    file: str
    project_name: str | None
    target: str | None
    runs: tuple[LoadedRun, ...]
    config_digest: str
    source: str
    jobs: tuple[LoadedJob, ...] = ()
    mode: Mode = Mode.PRODUCTION
    unsupported: tuple[tuple[str, Place], ...] = ()


def read(
    text: str | bytes,
    file: str,
    *,
    target: str | None,
    variables: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    """Read a run or project file.

    Args:
        file: how the user named it, for places.
        target: the target whose overrides apply.
        variables: `--var` options, in order.
        sets: `--set` options, in order; they come after the target's overrides.
        environ: what `${env.NAME}` refers to.
        git: asked at most once for `commit`, `branch` and `dirty`.

    Returns:
        What was read, `None` where anything is wrong, and every finding in order. Findings never
        repeat text that looks like a token.
    """
    document, found = load(text, file, limits=limits.limits_for(text, file))
    loaded: Loaded | None = None
    if document is not None:
        loaded, more = _of_document(
            document, target, tuple(variables), tuple(sets), environ, cache(git)
        )
        found += more
    ordered = told(found)
    return (None if has_errors(ordered) else loaded), ordered


def _of_document(
    document: nodes.Document,
    target: str | None,
    options: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    file, root = document.file, document.root
    kind: Literal["run", "project"] = "project" if limits.is_project(root, file) else "run"
    if kind == "run":  # it may have been read under the limits of a project
        if document.size > limits.RUN_FILE.size:
            return None, (limits.too_large(file, limits.RUN_FILE),)
        if document.nodes > limits.RUN_FILE.nodes:
            return None, (limits.too_many(file, limits.RUN_FILE),)
    root, around, found = overlaid(document, kind, target, options, sets, environ, git)
    name: str | None = None
    unsupported: tuple[tuple[str, Place], ...] = ()
    jobs: tuple[LoadedJob, ...] = ()
    mode = Mode.PRODUCTION
    if kind == "run":
        declared, wrong = read_run(root, None, Place(file, root.line, root.column), around)
    else:
        project, wrong = read_project(root, around)
        declared, name, unsupported = project.runs, project.name, project.unsupported
        jobs, mode = tuple(map(_loaded_job, project.jobs)), project.mode
    runs = tuple(loaded_run(one) for one in declared)
    return (
        Loaded(
            kind=kind, file=file, project_name=name, target=target, runs=runs,
            config_digest=digest_of(runs, jobs, mode), source=document.source, jobs=jobs,
            mode=mode, unsupported=unsupported,
        ),
        (*found, *wrong),
    )  # fmt: skip


def overlaid(
    document: nodes.Document,
    kind: Literal["run", "project"],
    target: str | None,
    options: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[nodes.Mapping, Surroundings, tuple[Diagnostic, ...]]:
    """Lay the target and the options over a file, and read its variables.

    Returns:
        The root without targets and variables, what its references may refer to, and what is wrong.
    """
    shape = run_shape() if kind == "run" else project_shape()
    root, found = with_target(document.root, target, shape)
    for path, value in sets:
        root, wrong = set_value(root, path, value, shape)
        found += wrong
    root, block = nodes.without(root, "variables")
    values, wrong = read_variables(block, options)
    around = Surroundings(
        variables=values, target=target or BASE, project=None, environ=environ, git=git,
        references="${" in document.source or bool(options) or any("${" in v for _, v in sets),
    )  # fmt: skip
    return root, around, (*found, *wrong)


def loaded_run(one: Declared) -> LoadedRun:
    address = Address.run(one.config.name, one.key)
    return LoadedRun(address=address, config=one.config, places=one.places, spec=one.spec)


def _loaded_job(one: DeclaredJob) -> LoadedJob:
    return LoadedJob(
        address=Address(Kind.JOB, one.name),
        config=one.config,
        places=one.places,
        place=one.place,
        spec=canonical(one.config.model_dump(mode="json", exclude_defaults=True)),
    )


def digest_of(
    runs: Iterable[LoadedRun], jobs: Iterable[LoadedJob] = (), mode: Mode = Mode.PRODUCTION
) -> str:
    lines = [f"{run.address} {run.spec}" for run in runs]
    lines += [f"{job.address} {job.spec}" for job in jobs]
    if mode is not Mode.PRODUCTION:
        lines.append(f"mode {mode}")
    return digest("\n".join(lines))


def told(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings in order, without any text that looks like a token."""
    return in_order(_masked(one) for one in found)


def _masked(found: Diagnostic) -> Diagnostic:
    summary, hint = mask(found.summary), found.hint and mask(found.hint)
    if summary == found.summary and hint == found.hint:
        return found
    return replace(found, summary=summary, hint=hint)
