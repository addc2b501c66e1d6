"""The code behind a launch, by its digest, in the store of this machine."""

from sgpu_decl.backends.base import LaunchRequest
from sgpu_decl.errors import BackendError
from sgpu_decl.staging.code_store import CodeStore


def require_code(store: CodeStore, launching: LaunchRequest) -> None:
    """See that the code of a launch is there.

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
