"""The config of a launch, read from its spec."""

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchInputs

if TYPE_CHECKING:  # `sgpu status` knows backends, and reads no config
    from sgpu_decl.config.run import RunConfig

__all__ = ["NO_CONFIG", "config_of", "unknown_config"]

NO_CONFIG = "unknown_config"
"""The code of an error about an attempt whose config this sgpu cannot read."""


def config_of(ref: AttemptRef, inputs: LaunchInputs) -> "RunConfig":
    """The config that the spec of a launch is the canonical JSON of.

    Raises:
        BackendError: it is that of a newer sgpu, or something else has written the record.
    """
    from pydantic import ValidationError

    from sgpu_decl.config.run import RunConfig

    try:
        return RunConfig.model_validate({"name": ref.address.name, **json.loads(inputs.spec)})
    except ValidationError as error:
        raise unknown_config(f"`{ref}`", f"sgpu state rm {ref.address}", error) from error


def unknown_config(of: str, way_out: str, error: ValueError) -> BackendError:
    """The error of a recorded config that cannot be read.

    Args:
        of: what the state has it of.
        way_out: the command that lets go of that.
    """
    from pydantic import ValidationError

    where = ""
    with suppress(UnicodeError):  # the message has a sign that no text has
        if isinstance(error, ValidationError):
            where = ".".join(map(str, error.errors()[0]["loc"]))
    return BackendError(
        f"the state has a config of {of} that this sgpu cannot read"
        + (f": see `{where}` in it" if where else ""),
        hint="upgrade sgpu, if a newer one wrote it; if something else did, "
        f"`{way_out}` lets go of it",
        code=NO_CONFIG,
    )
