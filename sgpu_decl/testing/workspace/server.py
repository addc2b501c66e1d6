"""The workspace emulator as an HTTP server."""

import fcntl
import os
import secrets
import shutil
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from sgpu_decl.errors import Locked, SgpuError
from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace import apis, control
from sgpu_decl.testing.workspace.executing.capacity import GpuCapacity
from sgpu_decl.testing.workspace.executing.settings import ExecutionSettings
from sgpu_decl.testing.workspace.faults import Faults
from sgpu_decl.testing.workspace.oauth import FederationPolicy
from sgpu_decl.testing.workspace.offers import Offers
from sgpu_decl.testing.workspace.request_log import Recording
from sgpu_decl.testing.workspace.routes import Router
from sgpu_decl.testing.workspace.staleness import Staleness
from sgpu_decl.testing.workspace.task_rules import Terms
from sgpu_decl.testing.workspace.tenant import Tenants, User
from sgpu_decl.testing.workspace.wire import HttpConnection

__all__ = ["ORG_ID", "Listener", "WorkspaceServer"]

ORG_ID = "900800700600"


class WorkspaceServer:
    """A workspace that answers over HTTP, with what it holds below `root`.

    What is submitted runs with the rights of whoever started the server. So it obeys the tokens of
    `users`, those that it was told to `admit` and those that it made; service principals are
    `clients`, ids with their secrets, and ids with the `federation` that they trust. A server that
    is started again on the same root has what the former one had, and obeys the same tokens. It
    behaves as `profile` says, and as expected where that says nothing (`model/assumptions.yaml`).
    `org_id` is the id of the workspace.
    """

    def __init__(
        self,
        root: Path,
        port: int = 0,
        host: str = "127.0.0.1",
        users: Mapping[str, User] | None = None,
        clients: Mapping[str, str] | None = None,
        federation: Mapping[str, FederationPolicy] | None = None,
        offers: Offers | None = None,
        execution: ExecutionSettings | None = None,
        profile: Profile | None = None,
        org_id: str = ORG_ID,
    ) -> None:
        self.root = root
        self.org_id = org_id
        self.profile = profile or Profile()
        self.offers = offers or Offers(accelerators=self.profile.texts("accelerators"))
        self.users = dict(users or {})
        self.clients = dict(clients or {})
        self.federation = dict(federation or {})
        self.hosts = frozenset({host, "127.0.0.1", "localhost", "[::1]"})
        self.faults = Faults()
        self.recording = Recording()
        self.closing = threading.Event()
        self.capacity = GpuCapacity()
        self.incoming = root / "incoming"
        self.services = apis.services(self, execution or ExecutionSettings())
        self.tenants = Tenants(root / "tenants", self.users)
        self.staleness = Staleness(root / "stale")
        routes = [*control.ROUTES, *apis.ROUTES]
        self.router = Router([*routes, *(one for room in self.services for one in room.routes)])
        self._address = (host, port)
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None
        self._lock: int | None = None

    @property
    def terms(self) -> Terms:
        """What the rules for jobs and runs depend on."""
        return Terms(profile=self.profile, offers=self.offers)

    @property
    def url(self) -> str:
        """Where clients find it; known once it is started."""
        if self._listener is None:
            raise RuntimeError("the workspace server is not started")
        host, port = self._listener.server_address[:2]
        return f"http://{host!s}:{port}"

    def token(self) -> str:
        """A token for whoever runs the server: the same one on the same root."""
        file = self.root / "token"
        if not file.is_file():
            part = self.incoming / "token"
            part.touch(mode=0o600)
            part.write_text(f"dapi{secrets.token_hex(16)}")
            part.replace(file)
        return self.admit(file.read_text())

    def new_token(self) -> str:
        """A token of a user of its own."""
        return self.admit(f"dapi{secrets.token_hex(16)}")

    def admit(self, token: str) -> str:
        """Obey a token from now on; returns it."""
        self.tenants.of_token(token)
        return token

    def start(self) -> Self:
        """Listen, in threads of its own. Raises SgpuError where the port or the root is taken."""
        self._claim()
        try:
            self._listener = Listener(self._address, self)
        except OSError as error:
            host, port = self._address
            raise SgpuError(
                f"cannot listen on `{host}:{port}`: {(error.strerror or str(error)).lower()}",
                hint="take another port; 0 stands for a free one",
                code="port_taken",
            ) from None
        for service in self.services:
            service.start(self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.05},
            name="workspace-server", daemon=True,
        )  # fmt: skip
        self._thread.start()
        return self

    def close(self) -> None:
        """Answer nobody any more, and let go of everything. What was written stays."""
        self.closing.set()
        if self._listener is not None and self._thread is not None:
            self._listener.shutdown()
            self._thread.join()
            self._listener.sever()
            self._listener.server_close()
        for service in self.services:
            service.close()
        self.staleness.clear()
        self.tenants.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim(self) -> None:
        """One server on a root at a time; what a former one left half-done is cleared away."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "stop it, or take another root"
            raise Locked(f"another server has the workspace in `{self.root}`", hint=hint) from None
        for passing in (self.incoming, self.root / "stale"):
            shutil.rmtree(passing, ignore_errors=True)
            passing.mkdir()

    def report(self, text: str) -> None:
        """Tell about a defect of the emulator itself."""
        print(f"workspace emulator: {text}", file=sys.stderr, flush=True)  # noqa: T201

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Listener(ThreadingHTTPServer):
    """The listening socket, and the connections that came by it."""

    daemon_threads = False  # closing waits for answers that are being written
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], workspace: WorkspaceServer) -> None:
        self.workspace = workspace
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, HttpConnection)

    def process_request(self, request: object, client_address: object) -> None:
        """A connection comes."""
        if isinstance(request, socket.socket):
            with self._lock:
                self._connections.add(request)
            super().process_request(request, client_address)

    def shutdown_request(self, request: object) -> None:
        """A connection goes."""
        if isinstance(request, socket.socket):
            with self._lock:
                self._connections.discard(request)
            super().shutdown_request(request)

    def sever(self) -> None:
        """End what clients keep open."""
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A connection that breaks is the client's affair; anything else is a defect."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            self.workspace.report(f"{client_address}: {error!r}")
