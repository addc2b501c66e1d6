"""What the MLflow run of an attempt says of it: names, parameters, tags.

Our names start with `sgpu.`, so that they differ from those of the user's code: MLflow refuses a
second, different value for a parameter.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from sgpu_decl.diagnostics.masks import masked
from sgpu_decl.model.address import cell_values
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json, Spec, canonical
from sgpu_decl.tracking.store_location import (
    absolute_location,
    absolute_uri,
    artifact_folder,
    default_uri,
)
from sgpu_decl.tracking.tracking_request import TrackingRequest

KEY_LIMIT = 250  # MAX_ENTITY_KEY_LENGTH of mlflow.utils.validation
VALUE_LIMIT = 6000  # MAX_PARAM_VAL_LENGTH there; tags may be longer, and need not be
_UNFIT = re.compile(r"[^\w./: -]", re.ASCII)


def tracking_request(
    *,
    ref: AttemptRef,
    spec: Spec,
    home: Path,
    base: Path,
    token: str,
    experiment: str | None,
    names_experiment: bool,
    run_name: str | None,
    tracking_uri: str | None,
    artifact_location: str | None = None,
    system_metrics: bool,
    facts: Mapping[str, str],
    git: Mapping[str, str] = MappingProxyType({}),
    tags: Mapping[str, str],
) -> TrackingRequest:
    """Return the request to the tracker of one attempt.

    Args:
        ref: the attempt; its text, `train#8`, names the MLflow run unless `run_name` does.
        spec: that of the run; each of its leaves becomes a parameter `sgpu.<path>`.
        home: the project's `.sgpu` folder, which holds the default store.
        base: the folder that a relative `tracking_uri` counts from.
        token: the token of the launch.
        experiment: the experiment's name; None means the run's name.
        names_experiment: whether the ranks' environment has `MLFLOW_EXPERIMENT_NAME` already.
        artifact_location: where a new experiment keeps its artifacts, if the user says so.
        facts: further tags of ours without their prefix: `lineage`, `code_digest`, ...
        git: which commit the code is from: `commit`, `branch`, `dirty`.
        tags: the user's own tags. Tokens in them, and in the spec, are masked: many read a server.
    """
    uri = absolute_uri(tracking_uri, base=base, home=home)
    artifacts = str(artifact_folder(home)) if uri == default_uri(home) else None
    if artifact_location is not None:
        artifacts = absolute_location(artifact_location, base=base)
    return TrackingRequest(
        token=token,
        experiment=experiment or ref.address.name,
        names_experiment=names_experiment,
        run_name=(run_name or str(ref))[:KEY_LIMIT],
        tracking_uri=uri,
        artifacts=artifacts,
        home=str(home.absolute()),
        system_metrics=system_metrics,
        params=parameters(spec.fields, ref.address.key),
        tags=run_tags(ref=ref, token=token, facts=facts, git=git, tags=tags),
    )


def run_tags(
    *,
    ref: AttemptRef,
    token: str,
    facts: Mapping[str, str],
    git: Mapping[str, str],
    tags: Mapping[str, str],
) -> dict[str, str]:
    """Return the tags of the MLflow run of an attempt: those of the commit that MLflow's pages show
    (`mlflow.source.git.*`), the user's own, and ours, whose names begin with `sgpu.`."""
    ours = {"address": str(ref.address), "attempt": str(ref.number), "token": token, **facts}
    ours |= {f"git.{name}": value for name, value in git.items()}
    commit_tags = {
        f"mlflow.source.git.{name}": git[name] for name in ("commit", "branch") if name in git
    }
    return (
        _fit(commit_tags)
        | _fit({name: masked(value, name) for name, value in tags.items()})
        | _fit({f"sgpu.{name}": value for name, value in ours.items()})
    )


def parameters(spec: Json, cell: str = "") -> dict[str, str]:
    """Return the leaves of a spec as MLflow parameters, sorted: `sgpu.args.lr` to `0.001`. Then
    come the values of the `cell` of a matrix with that key, by axis: `sgpu.matrix.lr`.

    Names and values are cut to what MLflow takes; a character that it refuses in a name becomes
    `_`. Where that makes two names equal, the first keeps it.
    """
    axes = _leaves(cell_values(cell), "matrix") if cell else ()
    leaves = (*_leaves(spec, ""), *axes)
    return _fit({f"sgpu.{path}": text for path, text in leaves})


def _leaves(value: Json, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from _leaves(value[key], f"{path}.{key}" if path else key)
    elif isinstance(value, str):
        yield path, masked(value, path)
    else:
        yield path, canonical(masked(value, path))


def _fit(fields: Mapping[str, str]) -> dict[str, str]:
    fitted: dict[str, str] = {}
    for name, value in fields.items():
        key = _UNFIT.sub("_", name).strip("/ ")[:KEY_LIMIT]
        if key and ".." not in key and "//" not in key:
            fitted.setdefault(key, value[:VALUE_LIMIT])
    return fitted
