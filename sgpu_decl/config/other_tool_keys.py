"""The keys of other tools' files, and our fields for the same.

Sources: the YAML specifications of SkyPilot (`resources`, `num_nodes`, `setup`, `run`, `workdir`,
`envs`, `file_mounts`) and dstack (`commands`, `nodes`, `resources`, `max_duration`), the config of
`databricks air` (`experiment_name`, `compute`, `code_source` and so on), the options of `torchrun`,
the config of `accelerate`, and `#SBATCH` of Slurm.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sgpu_decl.text.shape import OtherToolKey

_GPUS = "write `gpus`: the number of GPUs on all nodes together, `gpus: 16` for 2 nodes of 8"
_TYPE = "write `type`, such as `type: A100`"
_BOTH = "write `gpus` and `type`: `type: A100` and `gpus: 8` are eight A100"
_COMMAND = "write `command`, or `entrypoint: train.py` for Python"
_ENTRYPOINT = "write `entrypoint`, such as `entrypoint: train.py`"
_VARIABLES = "write `env: {variables: {…}}`"
_PACKAGES = (
    "declare packages in `env.dependencies`, `env.requirements` or `env.lock`; put other "
    "preparation at the start of `command`"
)
_ROOT = "write `code: {root: …}`; without it, the folder of this file is the code"
_DATA = (
    "data is not copied: `code: {link: […]}` links it into the code on this machine; elsewhere, "
    "ranks read it from where it lies"
)
_OURS = "remove it: sgpu connects the ranks itself"
_RETRY = "write `retry: {max: …}`"
_TIMEOUT = "write `timeout`, such as `timeout: 90m`"
_IMAGE = "write `image`"
_NAME = "write `name`"
_BUDGET = "write `budget`"


def _table() -> dict[str, OtherToolKey]:
    table: dict[str, OtherToolKey] = {}
    for keys, hint, *fields in (
        ("num_nodes nodes nnodes num_machines ntasks world_size", _GPUS, "gpus"),
        ("num_processes nproc nproc_per_node num_gpus gpu_count num_accelerators", _GPUS, "gpus"),
        ("accelerator accelerators accelerator_type gpu_type instance_type", _TYPE, "type"),
        ("resources compute", _BOTH, "gpus", "type"),
        ("run commands cmd", _COMMAND, "command"),
        ("script program main", _ENTRYPOINT, "entrypoint"),
        ("experiment_name", "write `name`; the MLflow experiment is `mlflow.experiment`", "name"),
        ("job_name run_name task_name", _NAME, "name"),
        ("setup init", _PACKAGES),
        ("envs env_vars env_variables", _VARIABLES),
        ("environment", "write `env`; variables stand in `env.variables`"),
        ("workdir working_dir cwd code_source", _ROOT),
        ("file_mounts volumes", _DATA),
        ("max_retries retries max_restarts", _RETRY),
        ("timeout_minutes max_duration time_limit", _TIMEOUT),
        ("docker_image image_id container docker", _IMAGE),
        ("usage_policy_name usage_policy_id", _BUDGET),
        ("mlflow_run_name", "write `mlflow: {run_name: …}`"),
        ("mlflow_experiment mlflow_experiment_directory", "write `mlflow: {experiment: …}`"),
        ("idempotency_token", "remove it: sgpu makes a token for each attempt"),
        ("master_addr rdzv_endpoint rdzv_backend node_rank machine_rank", _OURS),
        ("mixed_precision distributed_type", "give it to your script, in `args`"),
    ):  # fmt: skip
        table |= dict.fromkeys(keys.split(), OtherToolKey(fields=tuple(fields), hint=hint))
    return table


OTHER_TOOL_KEYS: Final[Mapping[str, OtherToolKey]] = MappingProxyType(_table())
"""By the key of the other tool, at the root of a run."""
