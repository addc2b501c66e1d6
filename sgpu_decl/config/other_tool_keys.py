"""The keys of other tools' files, and our fields for the same.

Sources: the YAML specifications of SkyPilot (`resources`, `num_nodes`, `setup`, `run`, `workdir`,
`envs`, `file_mounts`) and dstack (`commands`, `nodes`, `resources`, `max_duration`), the config of
`databricks air` (`experiment_name`, `compute`, `code_source` and so on), the options of `torchrun`,
the config of `accelerate`, and `#SBATCH` of Slurm; for jobs, permissions, targets, presets and the
root, the schema of Databricks bundles (`databricks bundle schema`).
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


_SCHEDULE = "write a job in a project file: `jobs: {nightly: {run: NAME, schedule: '0 0 6 * * ?'}}`"
_MAIL = "write `on_finish: {failure: [me@example.com]}`: mail when it has ended"
_NOTIFY = "write `notify: {start: […], success: […], failure: [me@example.com], slow: […]}`"
_WEBHOOK = "write `on_finish: {webhook: 'env:WEBHOOK_URL'}`"
_RUN_AS = "remove it: a run or job is its owner's, who is the user that applies it"
_TASKS = "write `run: NAME`, a run of this project, `notebook: {path: …}`, or `tasks: {NAME: …}`"
_WHO = "write `permissions: [{level: view, group: users}]`"
_PAUSED = "write `paused: true` or `paused: false`"
_RESOURCES = "write jobs under `jobs`, and what they launch under `runs`; a bundle keeps the others"
_CLUSTER = "remove it: compute is serverless, and `type` and `gpus` of a run name its GPUs"
_TASK = "write `tasks: {NAME: {task: {…}}}`"
_NOT_HERE = "remove it: sgpu sets nothing of the kind"


def _keys(*rows: tuple[str, ...]) -> Mapping[str, OtherToolKey]:
    """The table of rows of keys, a hint, and the fields that they are for."""
    table: dict[str, OtherToolKey] = {}
    for keys, hint, *fields in rows:
        table |= dict.fromkeys(keys.split(), OtherToolKey(fields=tuple(fields), hint=hint))
    return MappingProxyType(table)


OTHER_TOOL_KEYS: Final = _keys(
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
    ("environments environment_key", "write `env`, such as `env: {base: gpu-4}`", "env"),
    ("libraries", "write `env: {dependencies: […]}`", "env"),
    ("workdir working_dir cwd code_source", _ROOT),
    ("file_mounts volumes", _DATA),
    ("max_retries min_retries retries max_restarts restarts", _RETRY),
    ("min_retry_interval_millis", "write `retry: {backoff: 30s}`"),
    ("timeout_minutes timeout_seconds max_duration time_limit walltime", _TIMEOUT),
    ("docker_image image_id container docker", _IMAGE),
    ("usage_policy_name usage_policy_id budget_policy_id", _BUDGET),
    ("mlflow_run_name", "write `mlflow: {run_name: …}`"),
    ("mlflow_experiment mlflow_experiment_directory", "write `mlflow: {experiment: …}`"),
    ("idempotency_token", "remove it: sgpu makes a token for each attempt"),
    ("master_addr rdzv_endpoint rdzv_backend node_rank machine_rank", _OURS),
    ("mixed_precision distributed_type", "give it to your script, in `args`"),
    ("queue partition", "write `pool`, where the backend has pools: see `sgpu explain run.pool`"),
    ("email_notifications notifications", _MAIL),
    ("webhook_notifications webhook webhooks", _WEBHOOK),
    ("run_as", _RUN_AS),
    ("tasks", "write a run for each task under `runs` of a project file, and `after` for order"),
    ("schedule cron trigger quartz_cron_expression timezone_id pause_status", _SCHEDULE),
    ("max_concurrent_runs", "write `on_active`; how many runs of a matrix at once: `max_parallel`"),
    ("task_key", _NAME),
    ("run_if health", "write it in a job, which launches the run"),
    ("job_clusters job_cluster_key new_cluster existing_cluster_id", _CLUSTER),
    ("notebook_task spark_python_task ai_runtime_task gen_ai_compute_task", _ENTRYPOINT),
    ("depends_on dependencies_on needs", "write `after: [NAME]`", "after"),
    ("access_control_list acl", _WHO),
    ("cpus cpu_count memory mem disk", "remove it: a run has what comes with its GPUs"),
    ("requires required_version", "write it into the root file of a project, `sgpu.yml`"),
    ("cloud region zone use_spot spot_policy", "write `backend`, or `-t TARGET`: it says where"),
)
"""By the key of the other tool, at the root of a run."""

JOB_KEYS: Final = _keys(
    ("task", _TASKS),
    ("job_clusters job_cluster_key new_cluster existing_cluster_id", _CLUSTER),
    ("spark_python_task", "write `tasks: {NAME: {python: FILE}}`"),
    ("ai_runtime_task gen_ai_compute_task", "write `run: NAME`, a run of this project", "run"),
    ("sql_task dbt_task pipeline_task python_wheel_task run_job_task condition_task", _TASK),
    ("for_each_task spark_jar_task dashboard_task", _TASK),
    ("depends_on", "write `after: [NAME]` in `tasks: {NAME: …}`"),
    ("run_if", "write `if: all_done` in `tasks: {NAME: …}`"),
    ("task_key", "write `tasks: {NAME: …}`: the key of a task is its name"),
    ("quartz_cron_expression cron", "write `schedule: '0 0 6 * * ?'`"),
    ("timezone_id", "write `timezone`"),
    ("pause_status", _PAUSED),
    ("continuous", "write `trigger: {every: 6h}`, or a `schedule`"),
    ("periodic", "write `trigger: {every: 6h}`"),
    ("email_notifications notification_settings", _NOTIFY),
    ("webhook_notifications", "write `notify: {failure: [{webhook: ID}]}`", "notify"),
    ("timeout_seconds", "write `timeout`, such as `timeout: 6h`"),
    ("budget_policy_id usage_policy_id", _BUDGET),
    ("access_control_list", _WHO),
    ("notebook_task", "write `notebook: {path: …}`"),
    ("max_retries min_retries", "write `retry: {max: …}` of the run, or `notebook: {retries: …}`"),
    ("min_retry_interval_millis", "write `retry: {backoff: 30s}` of the run"),
    (
        "environments environment_key",
        "write `env` of the run, or `base` and `dependencies` of a task",
    ),
    ("gpus type entrypoint command", "write it in a run under `runs`, and `run: NAME` here"),
    ("git_source", "remove it: the files of the checkout are the code"),
    ("performance_target edit_mode format deployment", _NOT_HERE),
)
"""At the root of a job."""

TASK_KEYS: Final = _keys(
    ("task_key", "remove it: the key of the task is its name"),
    ("depends_on", "write `after: [NAME]`", "after"),
    ("run_if", "write `if: all_done`"),
    ("notebook_task", "write `notebook: PATH`", "notebook"),
    ("spark_python_task python_file script", "write `python: FILE`", "python"),
    ("ai_runtime_task gen_ai_compute_task", "write `run: NAME`, a run of this project", "run"),
    ("max_retries min_retries", "write `retries`, or `retry: {max: …}` of the run"),
    ("min_retry_interval_millis retry_on_timeout", "write `retry` of the run, or `task: {…}`"),
    ("job_cluster_key new_cluster existing_cluster_id", f"{_CLUSTER}; or write `task: {{…}}`"),
    ("libraries", "write `dependencies`, and `base`", "dependencies"),
    ("email_notifications webhook_notifications notification_settings", f"in the job, {_NOTIFY}"),
    ("health", "write it in the job: `health: {longer_than: 3h}`"),
    ("disable_auto_optimization description", "remove it, or write the whole task in `task: {…}`"),
    ("timeout_seconds", "write `timeout`, such as `timeout: 90m`"),
    ("environment_key", "write `base`, such as `base: gpu-4`, and `dependencies`"),
    ("parameters", "write `args` of `python`, or `notebook: {path: …, parameters: {…}}`"),
    ("base_parameters", "write `notebook: {path: …, parameters: {…}}`"),
    (
        "sql_task dbt_task pipeline_task python_wheel_task run_job_task condition_task",
        "write it in `task: {…}`",
        "task",
    ),
    ("for_each_task spark_jar_task dashboard_task", "write it in `task: {…}`", "task"),
    ("dbt_cloud_task dbt_platform_task power_bi_task", "write it in `task: {…}`", "task"),
    ("clean_rooms_notebook_task spark_submit_task", "write it in `task: {…}`", "task"),
)
"""Of one task among several."""

TRIGGER_KEYS: Final = _keys(
    ("periodic interval unit", "write `every: 6h`"),
    ("pause_status", "write `paused: true` beside `trigger`"),
    ("cron schedule quartz_cron_expression", "write `schedule: '0 0 6 * * ?'` beside `trigger`"),
    ("url", "write `file_arrival: /Volumes/main/ml/incoming/`"),
    ("table table_names tables", "write `table_update: [main.ml.events]`"),
)
EVENT_KEYS: Final = _keys(
    ("table_names", "write `tables`", "tables"),
    ("min_time_between_triggers_seconds", "write `min_time_between: 5m`", "min_time_between"),
    ("wait_after_last_change_seconds", "write `wait_after_last_change: 5m`",
     "wait_after_last_change"),
)  # fmt: skip
"""Of `file_arrival` and `table_update`."""
PERMISSION_KEYS: Final = _keys(
    ("group_name", "write `group`", "group"),
    ("user_name", "write `user`", "user"),
    ("service_principal_name", "write `service_principal`", "service_principal"),
    ("permission_level", "write `level`", "level"),
)
HEALTH_KEYS: Final = _keys(("rules", "write `longer_than: 3h`", "longer_than"))
NOTIFY_KEYS: Final = _keys(
    ("on_start", "write `start`", "start"),
    ("on_success", "write `success`", "success"),
    ("on_failure", "write `failure`", "failure"),
    ("on_duration_warning_threshold_exceeded",
     "write `slow`, and `health: {longer_than: 3h}` of the job", "slow"),
    ("email webhook", "write `failure: [me@example.com, {webhook: ID}]`"),
    ("no_alert_for_skipped_runs no_alert_for_canceled_runs", _NOT_HERE),
    ("on_streaming_backlog_exceeded", _NOT_HERE),
)  # fmt: skip
RECIPIENT_KEYS: Final = _keys(("id", "write `webhook: ID`", "webhook"))
MAIL_KEYS: Final = _keys(
    ("on_success", "write `success`", "success"),
    ("on_failure", "write `failure`", "failure"),
    ("on_start on_duration_warning_threshold_exceeded", "write `notify` in a job instead"),
)
"""Of `on_finish`."""
RETRY_KEYS: Final = _keys(
    (
        "count limit attempts max_attempts max_retries min_retries retries times restarts",
        "write `max`",
        "max",
    ),
    ("delay wait interval min_retry_interval_millis", "write `backoff`, such as `backoff: 30s`"),
    ("when on_events retry_on_timeout", "write `on: [infra, error]`", "on"),
)
ENVIRONMENT_KEYS: Final = _keys(
    ("packages pip pip_packages python_packages", "write `dependencies: [numpy]`"),
    ("vars env_vars environment_variables", "write `variables: {NAME: value}`"),
    ("python_version", "write `python`", "python"),
    ("requirements_file requirements_txt", "write `requirements`", "requirements"),
    ("environment_version version client", "write `base`, such as `base: gpu-4`", "base"),
    ("conda conda_env", "write `python: PATH` of its interpreter, and `snapshot: true`"),
)
MLFLOW_KEYS: Final = _keys(
    ("uri server url", "write `tracking_uri`", "tracking_uri"),
    ("experiment_name", "write `experiment`", "experiment"),
    ("name", "write `run_name`", "run_name"),
)
CODE_KEYS: Final = _keys(
    ("path dir folder workdir source", "write `root`", "root"),
    ("ignore excludes", "write `exclude`", "exclude"),
)
PRESET_KEYS: Final = _keys(
    ("trigger_pause_status", _PAUSED, "paused"),
    ("jobs_max_concurrent_runs", "write `max_concurrent_runs` in `defaults: {job: …}`"),
    ("pipelines_development source_linked_deployment artifacts_dynamic_version", _NOT_HERE),
)
PROJECT_KEYS: Final = _keys(
    ("bundle", "write `project: {name: …}`", "project"),
    ("databricks_cli_version required_version", "write `requires: 'sgpu>=0.3'`", "requires"),
    ("resources", _RESOURCES),
    ("workspace", "write `backend: {kind: databricks, host: …}` in `defaults: {run: …}`"),
    ("permissions", "write `permissions` in `defaults: {run: …, job: …}`"),
    ("sync artifacts", "write `code` of the run: see `sgpu explain run.code`"),
    ("scripts experimental python pipelines", _NOT_HERE),
    ("git", "write `branch: main` in a target; `${git.commit}` names the commit"),
    ("tags", "write `presets: {tags: …}`"),
)
"""At the root of a project file, and in its targets."""
