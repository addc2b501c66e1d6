"""`training_config.yaml` of a launch folder: what ran, for people. `air get` looks for it beside
the command, and shows it.

The fields are those of a workload of `air`, as far as a run has them; sgpu's own fields are below
`sgpu`. Secrets are references there too. Nothing reads the file to run it.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sgpu_decl.backends.databricks.launching.submit import environment_of, retries_of
from sgpu_decl.backends.databricks.planning.machines import machines_of
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.jsonable import Json

if TYPE_CHECKING:
    from sgpu_decl.backends.launch_request import LaunchRequest

TRAINING_CONFIG = "training_config.yaml"


def render_training_config(launching: "LaunchRequest") -> str:
    """Return the text of the file.

    Raises:
        BackendError: tasks cannot choose the base environment.
    """
    config, inputs = launching.config, launching.inputs
    spec = inputs.spec.fields
    machines = machines_of(config)
    fields: dict[str, Json] = {
        "experiment_name": config.mlflow.experiment or config.name,
        "mlflow_run_name": config.mlflow.run_name or str(launching.ref),
        "compute": {
            "num_accelerators": config.gpus,
            "accelerator_type": machines.accelerator if machines is not None else None,
        },
        "environment": _environment(config),
        "command": spec.get("command"),
        "env_variables": dict(config.env.variables),
        "secrets": {
            name: reference.partition(":")[2] for name, reference in config.env.secrets.items()
        },
        "parameters": spec.get("parameters"),
        "max_retries": retries_of(config),
        "timeout_minutes": math.ceil(config.timeout.seconds / 60) if config.timeout else None,
        "sgpu": _filled(
            {
                "run": str(launching.ref),
                "entrypoint": config.entrypoint,
                "args": spec.get("args"),
                "code": inputs.code_digest,
                "environment": inputs.environment_digest,
                "git": dict(launching.git),
            }
        ),
    }
    return _yaml(_filled(fields))


def _environment(config: RunConfig) -> Json:
    if config.image is not None:
        return {"image": config.image}
    spec = environment_of(config)
    return {"version" if key == "environment_version" else key: item for key, item in spec.items()}


def _filled(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Without what says nothing."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def _yaml(fields: Mapping[str, Json]) -> str:
    import yaml

    class ConfigDumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    ConfigDumper.add_representer(str, text)
    return yaml.dump(dict(fields), Dumper=ConfigDumper, allow_unicode=True, sort_keys=False)
