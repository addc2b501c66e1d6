"""The `backend` block of this machine: it has what all have."""

from sgpu_decl.config.backend import BackendOptions


class LocalOptions(BackendOptions):
    """Ranks run on this machine."""
