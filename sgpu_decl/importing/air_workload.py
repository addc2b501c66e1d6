"""A workload of `databricks air`, and of the older Python package `databricks-air`.

Sources of the fields and their defaults: `cmd/air/runconfig.go`, `compute.go` and `runsubmit.go` of
https://github.com/databricks/cli; for the older form `databricks_air/cli/sdk/config.py` of
https://pypi.org/project/databricks-air/1.2.1; and
https://docs.databricks.com/aws/en/machine-learning/ai-runtime/connecting/cli/yaml-config
"""

from dataclasses import replace
from pathlib import Path

from sgpu_decl.errors import InvalidInput
from sgpu_decl.importing.command_script import Shell, command_of
from sgpu_decl.importing.field_rules import (
    NO_CODE,
    accelerator,
    artifact_location,
    as_text,
    base_of,
    code_paths,
    code_root,
    experiment_folder,
    grant,
    left,
    length,
    member_of,
    name_of,
    on_platform,
    platform,
    priority_class,
    requirement,
    says_nothing,
    scope_and_key,
    to,
    version,
)
from sgpu_decl.importing.foreign_file import (
    ForeignField,
    ForeignFile,
    at,
    plain,
    read_root,
    text_at,
)
from sgpu_decl.importing.foreign_tool import ForeignTool, Rule
from sgpu_decl.importing.translation import Translation, carried, changed, lost, put
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, without

SHELL = Shell(variables={"CODE_SOURCE_PATH": "$PWD"})
"""`bash -euo pipefail`, once on each node, as in sgpu, which starts it in the folder of the code.
Other variables have the same names: `NUM_NODES`, `NODE_RANK`, `MASTER_ADDR`, `MASTER_PORT`,
`WORLD_SIZE`, `LOCAL_WORLD_SIZE`, `HYPERPARAMETERS_PATH`."""

PINNED = (
    "sgpu takes the files of the checkout, and records their commit",
    "check the revision out before you apply; `branch: main` of a target refuses other branches",
)
NO_PIN = left(*PINNED)
TIMEOUT = "the time of an attempt; one that has used it up is not started again"
RETRY = "ranks start again on their nodes, and on new nodes if these are lost"
_POOL = "the pools of the older package are not those of AI Runtime"
_POOL_HINT = "`databricks air pools list` lists pools: write the id of one in `pool`"
NO_DOCKER = left(
    "AI Runtime takes images of Unity Catalog",
    "`databricks air images push` puts it there; write `image: CATALOG.SCHEMA.NAME:TAG`",
)
_OLD = (
    "_bases_", "compute.node_pool_id", "compute.pool_name", "compute.provisioned_capacity_id",
    "environment.docker_image", "environment.custom_image_tag", "priority", "job_type",
)  # fmt: skip


def read_air(file: ForeignFile) -> tuple[ForeignTool, ForeignFile]:
    """The table for a workload, in its older or newer form, and the file with its bases.

    Raises:
        InvalidInput: sgpu has no run for it.
    """
    root = _with_bases(file.root, file, ())
    file = replace(file, root=root)
    if at(root, "containers") is not None:
        raise file.refused(
            "has `containers`, an image and a command for each rank, which no run has",
            "write a run for each container under `runs` of a project file",
        )
    if at(root, "udp") is not None or (text_at(root, "job_type") or "").lower() == "udp":
        raise file.refused(
            "is batch inference (`job_type: udp`), whose command `air` writes itself",
            "keep it, or write a run whose `command` starts the model",
        )
    old = any(at(root, path) is not None for path in _OLD)
    old = old or isinstance(at(root, "environment.dependencies"), Scalar)
    return (OLDER if old else NEWER), file


def _with_bases(root: Mapping, file: ForeignFile, above: tuple[Path, ...]) -> Mapping:
    """A workload over those of its `_bases_`, which come first."""
    own, bases = without(root, "_bases_")
    if not isinstance(bases, Sequence):
        return root
    merged: Node = replace(own, entries={}, keys={})
    for item in bases.items:
        path = (file.folder / (item.text if isinstance(item, Scalar) else "")).resolve()
        if path in above or len(above) > 20:
            raise InvalidInput(
                f"`{file.shown}` has itself among its `_bases_`", hint="remove it there"
            )
        below = replace(file, folder=path.parent, root=read_root(path))
        merged = _over(merged, _with_bases(below.root, below, (*above, path)))
    merged = _over(merged, own)
    assert isinstance(merged, Mapping)  # noqa: S101  both are
    keys = {"_bases_": root.keys["_bases_"], **merged.keys}
    return replace(merged, entries={"_bases_": bases, **merged.entries}, keys=keys)


def _over(below: Node | None, above: Node) -> Node:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    entries = {key: _over(below.entries.get(key), one) for key, one in above.entries.items()}
    return replace(above, entries={**below.entries, **entries}, keys={**below.keys, **above.keys})


def retry(one: ForeignField) -> Translation:
    """Jobs start a task again after any failure."""
    if one.number == 0:
        return carried(put("retry.max", 0))
    return changed(RETRY, put("retry.max", one.value), put("retry.on", ["infra", "error"]))


def _remote(one: ForeignField) -> Translation:
    return lost(*PINNED) if one.value not in (False, "") else carried()


def _dependencies(one: ForeignField) -> Translation:
    """A list; in the older form, the path of a file with a version and a list, too."""
    if not isinstance(one.node, Scalar):
        return carried()  # an empty list
    if one.text.endswith(".txt"):
        return carried(put("env.requirements", one.file.relative(one.text)))
    path = one.file.folder / one.text
    if "$" in one.text or not path.is_file() or not one.file.may_name(path):
        return lost(f"`{one.text}` is not here", "write `env: {dependencies: […]}`")
    root = read_root(path)
    listed = at(root, "dependencies")
    puts = [put("env.base", base_of(text_at(root, "version") or "4") or "gpu-4")]
    if isinstance(listed, Sequence):
        puts.append(put("env.dependencies", plain(listed)))
    return changed("what the file says stands in the run", *puts)


def _default_base(number: str, where: str) -> Rule:
    def rule(one: ForeignField) -> Translation:
        if isinstance(at(one.block, "environment.dependencies"), Scalar):
            return carried()  # the file has a version
        if at(one.block, "environment.unity_catalog_image") is not None:
            return carried()  # the image has the packages
        return changed(f"the default of {where}", put("env.base", f"gpu-{number}"))

    return rule


def _no_pool(one: ForeignField) -> Translation:
    if any(at(one.block, f"compute.{name}") is not None for name in ("node_pool_id", "pool_name")):
        return carried()
    return changed("`air` takes GPUs on demand", put("pool", "on_demand"))


_FIELDS = {
    "experiment_name": name_of,
    "compute.num_accelerators": to("gpus"),
    "compute.accelerator_type": accelerator,
    "compute.priority_class": priority_class,
    "environment.version": version,
    "environment.dependencies": _dependencies,
    "environment.dependencies.#": requirement,
    "command": lambda one: command_of(one.text, SHELL),
    "env_variables.*": member_of("env.variables"),
    "secrets.*": scope_and_key,
    "code_source.type": says_nothing,
    "code_source.snapshot.root_path": code_root,
    "code_source.snapshot.include_paths": code_paths,
    "code_source.snapshot.remote_volume": lambda one: changed(
        "all files of the run are staged there",
        put("backend.kind", platform()),
        put("backend.staging", one.text.rstrip("/")),
    ),
    "code_source.snapshot.git.branch": NO_PIN,
    "code_source.snapshot.git.commit": NO_PIN,
    "code_source.snapshot.git.remote": _remote,
    "max_retries": retry,
    "timeout_minutes": length("timeout", 60, TIMEOUT),
    "idempotency_token": left("each attempt has a token of its own"),
    "parameters": to("parameters"),
    "mlflow_run_name": as_text("mlflow.run_name"),
    "mlflow_experiment_directory": experiment_folder("experiment_name"),
    "mlflow_artifact_location": artifact_location,
    "permissions.#": grant,
    "usage_policy_name": as_text("budget"),
    "usage_policy_id": as_text("budget"),
}
_ABSENT = {
    "backend": on_platform,
    "max_retries": lambda _: changed(
        f"`air` retries 3 times; {RETRY}", put("retry.max", 3), put("retry.on", ["infra", "error"])
    ),
    "code_source": lambda _: changed("`air` takes no files along", NO_CODE),
}
NEWER = ForeignTool(
    what="a workload of `databricks air`",
    fields=_FIELDS
    | {
        "compute.pool_id": as_text("pool"),
        "environment.unity_catalog_image": as_text("image"),
        "code_source.root_path": code_root,
        "code_source.include_paths": code_paths,
        "code_source.remote_volume": _FIELDS["code_source.snapshot.remote_volume"],
        "code_source.git.branch": NO_PIN,
        "code_source.git.commit": NO_PIN,
        "code_source.git.remote": _remote,
    },
    absent=_ABSENT
    | {"environment.version": _default_base("6", "`databricks air`"), "compute.pool_id": _no_pool},
)
OLDER = ForeignTool(
    what="a workload of the package `databricks-air`",
    fields=_FIELDS
    | {
        "_bases_": lambda _: changed("what the bases say stands in the run"),
        "compute.provisioned_capacity_id": as_text("pool"),
        "compute.node_pool_id": left(_POOL, _POOL_HINT),
        "compute.pool_name": left(_POOL, _POOL_HINT),
        "environment.docker_image": NO_DOCKER,
        "environment.custom_image_tag": NO_DOCKER,
        "priority": left(_POOL, "write `priority: best_effort` or `normal` beside a `pool`"),
        "job_type": says_nothing,
    },
    absent=_ABSENT
    | {
        "environment.version": _default_base("4", "`databricks-air`"),
        "compute.provisioned_capacity_id": _no_pool,
    },
)
