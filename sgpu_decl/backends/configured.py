"""The config of a launch, read from its spec."""

import json

from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["config_of"]


def config_of(ref: AttemptRef, spec: str) -> RunConfig:
    """The config that a spec is the canonical JSON of."""
    return RunConfig.model_validate({"name": ref.address.name, **json.loads(spec)})
