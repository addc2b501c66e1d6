"""The lock of a journal: an entry that counts for some time after its holder's last one."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.storing.state_store import LOST

LEASE_SECONDS = 60.0
_TRY_AGAIN = 1.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LockLease:
    """How long a lock counts after its holder's last entry, in seconds."""

    seconds: float = LEASE_SECONDS

    @property
    def renewal(self) -> float:
        """The time without an entry after which the holder appends one."""
        return self.seconds / 3

    @property
    def margin(self) -> float:
        """The time before its end from which on the holder launches nothing."""
        return self.seconds / 6


def silence(last_entry: datetime | None, now: datetime) -> float:
    """The seconds since the last entry. Both times are those of the store."""
    return 0.0 if last_entry is None else max(0.0, (now - last_entry).total_seconds())


@contextmanager
def kept_renewed(renew: Callable[[], float]) -> Iterator[None]:
    """Call `renew` from a thread for as long as the block lasts. It returns the seconds until it
    wants to be called again. It is called no more once it raises that the lock or entries are lost;
    after any other error it is called again."""
    over = threading.Event()

    def work() -> None:
        pause = 0.0
        while not over.wait(pause):
            try:
                pause = renew()
            except SgpuError as error:
                if error.code in LOST:
                    return  # the next change of the holder finds out
                pause = _TRY_AGAIN
            except Exception:  # noqa: BLE001  a holder that lives must not lose its lock by it
                pause = _TRY_AGAIN

    thread = threading.Thread(target=work, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
