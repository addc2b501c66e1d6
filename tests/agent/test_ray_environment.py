"""What the driver of an existing Ray cluster finds in its environment."""

import json
from typing import Any

from sgpu_decl.agent.attempt.relocation import activated
from sgpu_decl.agent.ranks.ray_environment import existing_cluster

SPEC: dict[str, Any] = {
    "run_dir": "/tmp/run",
    "code_dir": "/tmp/run/code",
    "python": "/usr/bin/python3",
    "address": "run.prepare",
    "attempt": 3,
    "entry": {"path": "main.py"},
    "env": {"LR": 0.1},
}
HERE = {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_AUTH_TOKEN": "t-1", "HOME": "/root"}


def config(spec: dict[str, Any], inherited: dict[str, str] = HERE) -> Any:
    """What tasks get."""
    return json.loads(existing_cluster(spec, inherited)["RAY_JOB_CONFIG_JSON_ENV_VAR"])


def test_it_leads_to_the_cluster_of_the_node() -> None:
    found = existing_cluster(SPEC, HERE)
    assert found.items() >= {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_AUTH_TOKEN": "t-1"}.items()
    assert "HOME" not in found
    assert config(SPEC) == {
        "runtime_env": {"working_dir": "/tmp/run/code", "env_vars": {"LR": "0.1"}},
        "metadata": {"sgpu.driver_of": "run.prepare#3"},
    }


def test_tasks_import_what_lies_beside_the_entrypoint() -> None:
    spec = {**SPEC, "entry": {"path": "src/main.py"}, "env": {"PYTHONPATH": "lib"}}
    assert config(spec)["runtime_env"]["env_vars"] == {"PYTHONPATH": "src:lib"}


def test_tasks_do_not_get_the_paths_of_an_environment_that_only_this_node_has() -> None:
    programs = "/tmp/run/environment/tree/bin"
    env = {**activated(programs, "/tmp/run"), "LR": "0.1"}
    spec = {**SPEC, "python": f"{programs}/python", "env": env}
    assert config(spec)["runtime_env"]["env_vars"] == {"LR": "0.1"}


def test_tasks_have_the_python_that_the_backend_names() -> None:
    own = {"runtime_env": {"py_executable": "/opt/conda/bin/python"}}
    found = config(SPEC, {**HERE, "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(own)})
    assert found["runtime_env"]["py_executable"] == "/opt/conda/bin/python"
    assert found["runtime_env"]["working_dir"] == "/tmp/run/code"
