"""The `backend` block of this machine."""

from pydantic import Field

from sgpu_decl.config.backend import BackendOptions


class LocalOptions(BackendOptions):
    """Ranks run on this machine."""

    share_gpus: bool = Field(
        default=False,
        description="This machine: ranks also get GPUs that other programs use. Otherwise a run "
        "waits until they are free.",
    )
