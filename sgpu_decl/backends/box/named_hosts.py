"""Which boxes a record may lead to: a box that only the record of a state names, which others
write, too, is not asked. What it answers is trusted, such as the pickles of exceptions."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sgpu_decl.backends.remote.launching.launch_hosts import NOT_NAMED, LaunchHosts
from sgpu_decl.errors import BackendError

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.config.backend import BackendOptions


class NamedHosts:
    """Hosts that the user named, in a file or by a launch.

    Args:
        hosts: those that launches of this machine were sent to.
        hosts_of: the hosts that a `backend` block names.
    """

    def __init__(
        self,
        context: "BackendContext",
        hosts: LaunchHosts,
        hosts_of: "Callable[[BackendOptions], Iterable[str]]",
    ) -> None:
        self._context = context
        self._hosts = hosts
        self._hosts_of = hosts_of
        self._named: set[str] = set()

    def add(self, host: str) -> None:
        """A launch is about to be sent there. Later commands may ask it."""
        self._hosts.add(host)
        self._named.add(host)

    def require(self, host: str, owner: str) -> None:
        """Raises BackendError: only the record of a run, which `owner` declares, names it."""
        if host in self._named or not self._context.shared_state():
            return
        self._named |= self._hosts.all()
        if host not in self._named:
            self._named.update(*map(self._hosts_of, self._context.backend_blocks(owner)))
        if host not in self._named:
            raise BackendError(
                f"only the record of the run names the host `{host}`: no file of this project "
                "does, so sgpu does not log in there",
                hint="if it is a machine of yours, name it in a `backend` block of the run's file",
                code=NOT_NAMED,
            )
