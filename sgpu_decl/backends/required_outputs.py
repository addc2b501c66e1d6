"""The refusal of a launch that reads an output which is not there any more."""

from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["output_gone"]


def output_gone(ref: AttemptRef, upstream: AttemptRef) -> BackendError:
    return BackendError(
        f"`{ref}` reads the output of `{upstream}`, which is gone",
        hint=f"`--rerun {upstream.address}` makes it again; `sgpu gc` keeps as many attempts as "
        "`--keep-last` says",
        code="output_gone",
    )
