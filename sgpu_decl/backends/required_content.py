"""The refusal of a launch whose code is not here, or that reads an output which is gone or lies
elsewhere."""

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.staging.code_store import CodeStore

__all__ = ["output_gone", "require_code", "upstream_elsewhere"]


def require_code(store: CodeStore, launching: LaunchRequest) -> None:
    """See that the code of a launch is in the store of this machine.

    Raises:
        BackendError: it is not.
    """
    digest = launching.inputs.code_digest
    if digest is not None and store.manifest(digest) is None:
        raise BackendError(
            f"the code of `{launching.ref}` ({digest[:19]}) is not in the store",
            hint="plan again on this machine",
            code="code_missing",
        )


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
