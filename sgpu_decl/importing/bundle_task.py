"""A GPU task of a job in a Databricks bundle as a run.

Sources: `AiRuntimeTask`, `DeploymentSpec`, `ComputeSpec`, `GenAiComputeTask` and `Task` of the
package databricks-bundles (https://pypi.org/project/databricks-bundles/); where code comes from:
https://docs.databricks.com/aws/en/machine-learning/ai-runtime/configure-bundle-tasks, and for the
form with a folder and the block `code_source` https://github.com/databricks/cli/pull/6110 and 6428.
The files beside the command (`env_vars.json` and others) are those that `databricks air
convert-to-dabs` writes: `cmd/air/convert_to_dabs.go` of https://github.com/databricks/cli
"""

import json
import os
from pathlib import Path

import yaml

from sgpu_decl.importing.air_workload import NO_DOCKER, NO_PIN, PINNED, SHELL, TIMEOUT, retry
from sgpu_decl.importing.command_script import command_of
from sgpu_decl.importing.field_rules import (
    NO_CODE,
    accelerator,
    artifact_location,
    as_text,
    code_paths,
    experiment_folder,
    left,
    length,
    only,
    priority_class,
    says_nothing,
    to,
    version,
)
from sgpu_decl.importing.foreign_file import ForeignField, at, plain, text_at
from sgpu_decl.importing.foreign_tool import ForeignTool
from sgpu_decl.importing.translation import (
    Keys,
    Translation,
    carried,
    changed,
    lost,
    put,
)
from sgpu_decl.model.jsonable import Json
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence

KINDS = ("ai_runtime_task", "gen_ai_compute_task")
_REMOTE = ("/Workspace/", "/Volumes/", "/Users/", "dbfs:/", "s3:/", "abfss:/", "gs:/")
_WHERE = "write `code: {root: …}` with the folder that it was packed from"
_OF_JOB = "write it in the job: `notify` and `health`"


def local_path(one: ForeignField, text: str) -> Path:
    """A path of a bundle: relative to the file that says it."""
    return Path(os.path.abspath(one.node.file)).parent / text


def _command_file(one: ForeignField) -> Translation:
    """The script, and the files beside it, which the platform reads too."""
    text = one.text.strip()
    path = local_path(one, text)
    script = one.file.text_of(os.fspath(path))
    if script is None:
        where = "lies in the workspace" if text.startswith(_REMOTE) else "is not here"
        return changed(
            f"`{text}` {where}",
            put("command", ["bash", text]),
            put("launch.per", "node"),
            hint="write its content as `command`",
        )
    if path.suffix == ".py":
        program = put("command", ["python", path.name])
        return changed(
            "its folder is the code", program, put("launch.per", "node"), *_root(one, path.parent)
        )
    beside, names = _sidecars(path.parent, one)
    said = command_of(script, SHELL, *beside)
    listed = ", ".join(f"`{name}`" for name in names)
    note = f"the content of `{path.name}` stands in the run" + (f", with {listed}" if names else "")
    return changed("; ".join(filter(None, (note, said.note))), *said.puts, hint=said.hint)


def _sidecars(folder: Path, one: ForeignField) -> tuple[list[tuple[Keys, Json]], list[str]]:
    puts: list[tuple[Keys, Json]] = []
    names: list[str] = []
    for name in ("env_vars.json", "secret_env_vars.json", "hyperparameters.yaml"):
        text = one.file.text_of(os.fspath(folder / name))
        new = () if text is None else tuple(_of_sidecar(name, text))
        puts += new
        names += [name] if new else []
    return puts, names


def _of_sidecar(name: str, text: str) -> "list[tuple[Keys, Json]]":
    """The fields that a file says; none if it is not as it should be."""
    try:
        value = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        return []
    if name == "hyperparameters.yaml":
        return [put("parameters", value)] if isinstance(value, dict) else []
    entries = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    if name == "env_vars.json":
        return [
            (("env", "variables", str(one.get("name"))), str(one.get("value"))) for one in entries
        ]
    return [
        (
            ("env", "secrets", str(one.get("name"))),
            f"databricks:{one.get('secret_scope')}/{one.get('secret_key')}",
        )
        for one in entries
    ]


def _code(one: ForeignField) -> Translation:
    """The three forms: a folder, an archive that an artifact of the bundle packs, and an archive
    that is there."""
    text = one.text.strip()
    path = local_path(one, text)
    if (artifact := _artifact_of(one, path)) is not None:
        return _packed(one, artifact)
    if text.startswith(_REMOTE):
        return lost("the archive lies in the workspace", _WHERE)
    if path.is_dir():
        return carried(*_root(one, path))
    if text.endswith((".tgz", ".tar.gz")):
        return lost("no artifact of the bundle packs this archive", _WHERE)
    return lost(f"`{text}` is not here", "write `code: {root: …}`")


def _root(one: ForeignField, path: Path) -> tuple[tuple[Keys, Json], ...]:
    root = Path(os.path.relpath(path, one.file.target)).as_posix()
    return () if root == "." else (put("code.root", root),)


def _artifact_of(one: ForeignField, path: Path) -> Mapping | None:
    artifacts = at(one.file.root, "artifacts")
    for artifact in artifacts.entries.values() if isinstance(artifacts, Mapping) else ():
        files = at(artifact, "files")
        for file in files.items if isinstance(files, Sequence) else ():
            source = at(file, "source")
            if isinstance(source, Scalar) and isinstance(artifact, Mapping):
                here = local_path(_field(one, source), source.text)
                if os.path.normpath(here) == os.path.normpath(path):
                    return artifact
    return None


def _field(one: ForeignField, node: Node) -> ForeignField:
    return ForeignField(path=one.path, node=node, file=one.file, block=one.block)


def _packed(one: ForeignField, artifact: Mapping) -> Translation:
    """An artifact: the first folder of its entries is that of the code."""
    include = at(artifact, "include")
    folder = local_path(_field(one, artifact), text_at(artifact, "path") or ".")
    listed = plain(include) if isinstance(include, Sequence) else None
    paths = [os.path.normpath(str(path)) for path in listed] if isinstance(listed, list) else []
    tops = {path.partition("/")[0] for path in paths}
    if len(tops) == 1 and (folder / (top := tops.pop())).is_dir():
        folder /= top
        paths = [path.partition("/")[2] for path in paths]
    puts = list(_root(one, folder))
    if paths and all(paths):
        puts.append(put("code.exclude", only(paths)))
    note = "sgpu packs the folder itself"
    if at(artifact, "git") is None:
        return changed(note, *puts)
    return changed(f"{note}; {PINNED[0]}", *puts, hint=PINNED[1])


def _code_root(one: ForeignField) -> Translation:
    return carried(*_root(one, local_path(one, one.text.strip())))


def _experiment(one: ForeignField) -> Translation:
    folder = one.beside("ai_runtime_task.mlflow_experiment_directory")
    return carried(
        put("mlflow.experiment", f"{folder.rstrip('/')}/{one.text}" if folder else one.text)
    )


def _parameters(one: ForeignField) -> Translation:
    try:
        value = yaml.safe_load(one.text)
    except yaml.YAMLError:
        value = None
    if not isinstance(value, dict):
        return lost("it is no mapping", "write `parameters: {…}`")
    return carried(put("parameters", value))


def _no_code(one: ForeignField) -> Translation:
    if at(one.block, "ai_runtime_task.code_source") is not None:
        return carried()
    return changed("the task takes no files along", NO_CODE)


_AI, _GEN = "ai_runtime_task", "gen_ai_compute_task"
_COMPUTE = f"{_AI}.deployments.0.compute"
BUNDLE_TASK = ForeignTool(
    what="a GPU task of a bundle",
    fields={
        "task_key": says_nothing,
        "description": to("description"),
        "depends_on": says_nothing,  # the job has it
        "run_if": says_nothing,
        "environment_key": says_nothing,  # the environment is a field of the job
        "max_retries": retry,
        "min_retry_interval_millis": length("retry.backoff", 0.001),
        "retry_on_timeout": lambda one: (
            carried()
            if one.value is not True
            else lost(TIMEOUT, "give the run a longer `timeout`, and let it `resume`")
        ),
        "timeout_seconds": length("timeout", 1, TIMEOUT),
        "disable_auto_optimization": says_nothing,
        "email_notifications": left("a task has no recipients of its own", _OF_JOB),
        "webhook_notifications": left("a task has no recipients of its own", _OF_JOB),
        "notification_settings": left("sgpu sets nothing of the kind"),
        "health": left("a task has no health of its own", _OF_JOB),
        "disabled": lambda one: (
            carried()
            if one.value is not True
            else lost("a task is there, or it is not", "remove it from `tasks`")
        ),
        "environment_variables_key": left(
            "the variables stand in the job", "write them in `env: {variables: {…}}` of the run"
        ),
        f"{_AI}.experiment": _experiment,
        f"{_AI}.mlflow_experiment_directory": experiment_folder(f"{_AI}.experiment"),
        f"{_AI}.mlflow_run": as_text("mlflow.run_name"),
        f"{_AI}.mlflow_artifact_location": artifact_location,
        f"{_AI}.priority_class": priority_class,
        f"{_AI}.unity_catalog_image_path": as_text("image"),
        f"{_AI}.docker_image_url": NO_DOCKER,
        f"{_AI}.code_source_path": _code,
        f"{_AI}.code_source.root_path": _code_root,
        f"{_AI}.code_source.include_paths": code_paths,
        f"{_AI}.code_source.git.branch": NO_PIN,
        f"{_AI}.code_source.git.commit": NO_PIN,
        f"{_AI}.deployments.0.name": left("a run has one kind of node"),
        f"{_AI}.deployments.0.command_path": _command_file,
        f"{_COMPUTE}.accelerator_type": accelerator,
        f"{_COMPUTE}.accelerator_count": to("gpus"),
        f"{_COMPUTE}.provisioned_capacity_id": as_text("pool"),
        f"{_AI}.deployments.1": left("a task has one deployment", "write a run for each"),
        f"{_GEN}.dl_runtime_image": version,
        f"{_GEN}.command": lambda one: command_of(one.text, SHELL),
        f"{_GEN}.training_script_path": _command_file,
        f"{_GEN}.compute.num_gpus": to("gpus"),
        f"{_GEN}.compute.gpu_type": accelerator,
        f"{_GEN}.compute.gpu_node_pool_id": left(
            "the node pools of the older task are not those of AI Runtime", "write `pool`"
        ),
        f"{_GEN}.mlflow_experiment_name": as_text("mlflow.experiment"),
        f"{_GEN}.source": left("the code is the checkout"),
        f"{_GEN}.yaml_parameters": _parameters,
        f"{_GEN}.yaml_parameters_file_path": left(
            "the parameters lie in a file", "write them in `parameters`"
        ),
    },
    absent={
        f"{_AI}.code_source_path": _no_code,
        f"{_COMPUTE}.provisioned_capacity_id": lambda _: changed(
            "a task takes GPUs on demand", put("pool", "on_demand")
        ),
    },
)
