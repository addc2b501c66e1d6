"""The password of a PostgreSQL server of the platform: a token of the workspace, which lives an
hour and is looked at when somebody logs in (evidence: A19)."""

from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.api.connection import Connection, TimeLimits
from sgpu_decl.errors import BackendError

__all__ = ["database_token"]

_LIMITS = TimeLimits(silence=20.0, retries=1)


def database_token() -> str:
    """A token of the login that the SDK finds.

    Raises:
        BackendError: there is none, or the login is by a token that is no OAuth token.
    """
    connection = Connection(Account(None, None, block="state"), _LIMITS)
    config = connection.client.config
    try:
        return config.oauth_token().access_token
    except ValueError as error:
        raise BackendError(
            f"the login to `{connection.host}` is of the kind `{config.auth_type}`, which has no "
            "OAuth token",
            hint="log in with `databricks auth login`, or as a service principal "
            "(DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET)",
        ) from error
