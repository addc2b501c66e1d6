"""What this machine remembers of a launch, in the attempt's folder: a cache. The truth is in the
workspace."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.model.jsonable import Json

__all__ = ["FILE", "Handle", "read_handle", "write_handle"]

FILE = "databricks.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """One launch: the workspace and its folder there, which run it became, and how that ended.

    `staged` says that all it takes is in the folder; `body` is what the platform is told to run,
    `uses` which shared objects it needs (`remote_layout.Uses`); `ended` is the `status` object of
    an attempt that will not change any more; `submitted` is in seconds of the epoch, by the
    workspace's clock. `record` is what its MLflow runs are to say (`mlflow_record`), and
    `described` maps the id of each that was told to the reason why it does not say it, if any.
    """

    token: str
    lineage: str
    account: Account
    staging: str | None
    host: str
    folder: str
    staged: bool = False
    body: dict[str, Json] = field(default_factory=dict)
    uses: dict[str, Json] = field(default_factory=dict)
    run_id: int | None = None
    submitted: float = 0.0
    ended: dict[str, Json] = field(default_factory=dict)
    record: dict[str, Json] = field(default_factory=dict)
    described: dict[str, str] = field(default_factory=dict)

    def with_run(self, run_id: int, submitted: float) -> "Handle":
        """The same, launched."""
        return replace(self, staged=True, run_id=run_id, submitted=submitted)


def read_handle(folder: Path) -> Handle | None:
    """The handle in an attempt's folder; `None` where there is none that can be read."""
    try:
        raw: dict[str, Any] = json.loads((folder / FILE).read_bytes())
        if raw.pop("v") != _FORMAT:
            return None
        account = Account(**raw.pop("account"))
        return Handle(account=account, **raw)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_handle(folder: Path, handle: Handle) -> None:
    """Remember a launch; it is on the disk when this returns."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({"v": _FORMAT, **asdict(handle)}, sort_keys=True)
    write_atomic(folder / FILE, text.encode())
