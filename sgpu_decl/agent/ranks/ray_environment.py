"""What the processes of a run's Ray cluster find in their environment, and what its driver finds.

The unit of such a run is the node, and it has no ranks. So neither gets the variables of a rank: a
library that finds WORLD_SIZE in a task of Ray waits for ranks that never come. Nor do they get what
an outer Ray cluster has set.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt.attempt_files import parse_object
from sgpu_decl.agent.attempt.relocation import activated
from sgpu_decl.agent.system.fast_stdlib import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_OF_RANKS = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
     "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "REPLICA_RANK", "MASTER_ADDR", "MASTER_PORT"}
)  # fmt: skip


def without_outer_ray(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the agent without those of a Ray cluster that it may run in."""
    return {name: value for name, value in inherited.items() if not name.startswith("RAY_")}


def without_rank(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of a rank."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_RANKS and not name.startswith("TORCHELASTIC_")
    }


def driver_environment(
    environment: Mapping[str, str], cluster: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a Python driver: that of a rank, changed for the cluster.

    The driver removes the variables of a rank itself, once our code there has read them: they are
    named in SGPU_REMOVED.
    """
    removed = sorted(environment.keys() - without_rank(environment).keys())
    return {**environment, **cluster, "SGPU_REMOVED": ",".join(removed)}


def command_environment(
    environment: Mapping[str, str], cluster: Mapping[str, str], python: str
) -> dict[str, str]:
    """Return the environment of a command that is the driver.

    The folder of the cluster's interpreter comes first on its PATH: a driver needs the same Ray and
    Python as the cluster, and `ray status` beside it finds both, too.
    """
    path = [os.path.dirname(python), environment.get("PATH", os.defpath)]
    return {**without_rank(environment), **cluster, "PATH": os.pathsep.join(filter(None, path))}


def existing_cluster(spec: Mapping[str, Any], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which the driver joins the cluster that this node belongs to, as they
    are set for the entrypoint of `ray job submit` (`JobSupervisor._get_driver_env_vars` in
    `ray/dashboard/modules/job/job_supervisor.py`): `ray.init()` takes the address from RAY_ADDRESS,
    and what tasks get from the config of the job.

    Tasks get the code and the run's variables, but not its secrets: Ray shows the config to
    everybody who may list jobs. `ray.init` sends the code by its digest
    (https://docs.ray.io/en/latest/ray-core/handling-dependencies.html). What it leaves out
    otherwise, such as files that `.gitignore` names, is code here if the plan says so.
    """
    code, entry = spec["code_dir"], spec["entry"]
    variables = {name: str(value) for name, value in _own_variables(spec).items()}
    beside = os.path.dirname(entry["path"] or "")
    if beside and not os.path.isabs(beside):  # the working folder of tasks is the code
        path = [beside, variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    tasks = parse_object(inherited.get(_CONFIG, "{}").encode()) or {}
    config = {
        "runtime_env": {**tasks.get("runtime_env", {}), "working_dir": code, "env_vars": variables},
        "metadata": {"sgpu.driver_of": f"{spec['address']}#{spec['attempt']}"},
    }
    return {
        **{name: value for name, value in inherited.items() if name.startswith("RAY_")},
        _CONFIG: dumps(config),
        "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",  # a `runtime_env` of the program counts, as elsewhere
        "RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "1",
        "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES": "__pycache__",
    }


def _own_variables(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the run, without those that lead to its environment on this node."""
    programs = os.path.dirname(spec["python"])
    if not programs.startswith(spec["run_dir"]):
        return dict(spec["env"])
    own = activated(programs, spec["run_dir"])
    return {name: value for name, value in spec["env"].items() if own.get(name) != value}


def python_path(spec: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of Ray's workers: they import what the driver can import of the run's
    code, on each node from its own copy."""
    entry, code = spec["entry"], spec["code_dir"]
    folders = [code]
    if entry["path"]:
        folders.append(os.path.dirname(os.path.join(code, entry["path"])))
    folders += (entry["call"] or {}).get("path") or ()
    folders += filter(None, [environment.get("PYTHONPATH")])
    return os.pathsep.join(dict.fromkeys(folders))
