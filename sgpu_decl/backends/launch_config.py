"""The config of a launch, read from its spec."""

import json
from typing import TYPE_CHECKING

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchInputs

if TYPE_CHECKING:  # `sgpu status` knows backends, and reads no config
    from sgpu_decl.config.run import RunConfig


def config_of(ref: AttemptRef, inputs: LaunchInputs) -> "RunConfig":
    """The config that the spec of a launch is the canonical JSON of."""
    from sgpu_decl.config.run import RunConfig

    return RunConfig.model_validate({"name": ref.address.name, **json.loads(inputs.spec)})
