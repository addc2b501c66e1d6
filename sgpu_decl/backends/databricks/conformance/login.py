"""The login to a workspace, who that is, and the clocks."""

import time
from collections.abc import Iterator

from sgpu_decl.backends.databricks.api.connection import PATIENCE, Connection
from sgpu_decl.model.doctor_finding import Finding, ok, warn

_LONGEST = 20.0  # seconds


def login_findings(connection: Connection) -> Iterator[Finding]:
    """Log in, and say how long it took.

    Raises:
        SgpuError: nobody is logged in.
    """
    began = time.monotonic()
    connection.await_answer(patience=_LONGEST)
    took = time.monotonic() - began
    slow = took > PATIENCE
    advice = f"plans give up after {PATIENCE:g} s: use a token or an OAuth secret"
    answered = f"`{connection.host}` answered after {took:.1f} s"
    yield ok("login", answered, unless=advice if slow else None)
    yield ok("identity", f"logged in as `{connection.user}`")
    ahead = connection.ahead
    if not ahead:
        yield ok("clock", "the clocks of the workspace and of this machine agree")
        return
    side = "ahead of" if ahead > 0 else "behind"
    yield warn(
        "clock",
        f"the workspace's clock is {abs(ahead):g} s {side} this machine's",
        "set this machine's clock, as with `timedatectl set-ntp true`",
    )
