"""The refusal of a launch that reads an output which is gone, or lies elsewhere."""

from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["output_gone", "upstream_elsewhere"]


def output_gone(ref: AttemptRef, upstream: AttemptRef) -> BackendError:
    return BackendError(
        f"`{ref}` reads the output of `{upstream}`, which is gone",
        hint=f"`--rerun {upstream.address}` makes it again; `sgpu gc` without `--all` keeps the "
        "newest success of each run",
        code="output_gone",
    )


def upstream_elsewhere(
    ref: AttemptRef, upstream: AttemptRef, elsewhere: str, *, waits: bool
) -> BackendError:
    """The error for an upstream whose launch folder the nodes of a run do not see.

    Args:
        elsewhere: where it was launched, such as `on another cluster`.
        waits: whether it may go on.
    """
    again = f"`--rerun {upstream.address}` launches it again, where this run will be"
    return BackendError(
        f"`{ref}` comes after `{upstream}`, which was launched {elsewhere}",
        hint=f"apply again once `{upstream}` has ended" if waits else again,
        code="upstream_elsewhere",
    )
