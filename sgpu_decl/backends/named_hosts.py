"""The refusal to send credentials to a host that only a record of a shared state names."""

from sgpu_decl.errors import BackendError

__all__ = ["NOT_NAMED", "not_named"]

NOT_NAMED = "address_not_named"


def not_named(url: str, *, record: str, hint: str) -> BackendError:
    """The error about a host.

    Args:
        record: what the record is of, for the message: "run".
        hint: where its user can name it.
    """
    return BackendError(
        f"only the record of the {record} names {url}: no file of this project, no variable and no "
        "profile does, so your credentials are not sent there",
        hint=hint,
        code=NOT_NAMED,
    )
