"""The hosts that launches of this machine were sent to. The user named them then, in a file, by
`--var` or in the environment, so later commands may send credentials there too. They are not sent
to a host that only a record of a shared state names."""

import json
from pathlib import Path

from sgpu_decl.atomic_files import write_cache
from sgpu_decl.errors import BackendError

NOT_NAMED = "address_not_named"


class LaunchHosts:
    """A file in the folder of the state, which no other machine writes. Whoever adds to it holds
    the lock of the state. If it cannot be written, later commands ask for the host to be named."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._added: set[str] = set()

    def add(self, host: str) -> None:
        """A launch that the user asked for is about to be sent there."""
        known = self.all()
        if host not in known:
            self._added.add(host)
            write_cache(self._file, json.dumps(sorted({*known, host})).encode())

    def all(self) -> set[str]:
        """Those of this project and target."""
        try:
            hosts = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            hosts = ()
        return self._added.union(hosts if isinstance(hosts, list) else ())


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
