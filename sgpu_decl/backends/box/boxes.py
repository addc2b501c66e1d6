"""The boxes that this process speaks with: one login for each, opened when it is asked first."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.ssh_process import SshConnectionLost, SshProcess
from sgpu_decl.errors import BackendError
from sgpu_decl.system_errors import FULL

PATIENCE = 120.0  # seconds without an answer
_LONG = 5.0  # seconds to fail, after which a login is not tried again at once

_Answer = TypeVar("_Answer")


class BoxRefused(BackendError):
    """The box answers that it cannot do it. `errno` is that of its system, where there is one."""

    errno: int | None = None


class Box:
    """A machine that ssh reaches. Calls may come from several threads; they are sent one by one."""

    def __init__(self, place: BoxPlace, forward: tuple[int, int] | None = None) -> None:
        self.host = place.host
        self.storage = place.storage
        self._place = place
        self._forward = forward
        self._process: SshProcess | None = None
        self._away: tuple[float, BackendError] | None = None  # until when it is not tried, and why
        self._lock = threading.Lock()

    @cached_property
    def hello(self) -> Mapping[str, Any]:
        """What it says of itself, see `agent.box.program`. Raises BackendError."""
        with self._lock:
            return self._opened().hello

    @property
    def address(self) -> str:
        """Where other machines reach it. Raises BackendError."""
        return self._place.address or str(self.hello["address"])

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What plans need to know of it, asked once; `ahead` is by how many seconds its clock is,
        as far as that is certain. Raises BackendError."""
        before = time.time()
        facts = self.ask("facts")
        late, early = facts["time"] - time.time(), facts["time"] - before
        return {**facts, "ahead": max(0.0, late) + min(0.0, early)}

    @cached_property
    def has_mlflow(self) -> bool:
        """Whether its Python has MLflow. Raises BackendError."""
        return bool(self.ask("has_mlflow")["has"])

    def ask(self, do: str, **message: Any) -> dict[str, Any]:
        """The answer to a request without content."""
        return self.send(do, message)[0]

    def send(
        self,
        do: str,
        message: Mapping[str, Any],
        contents: Callable[[], Iterable[bytes]] = tuple,
        size: int = 0,
        patience: float = PATIENCE,
        *,
        once: bool = False,
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request; return the answer and its content. Where a connection is lost it is sent
        once more, over a new one, unless it may be carried out `once` alone.

        Args:
            contents: gives the content, of `size` bytes in all, for each try.
            patience: seconds without an answer, and without a byte that is taken.

        Raises:
            SshConnectionLost: no answer came: it may have been carried out.
            BackendError: the box cannot be reached, or refuses it.
        """
        with self._lock:
            try:
                answer, data = self._sent(do, message, contents, size, patience)
            except SshConnectionLost:
                if once:
                    raise
                answer, data = self._sent(do, message, contents, size, patience)
        if "error" in answer:
            raise self._refused(answer["error"])
        return answer, data

    def tunnel(self, port: int, there: int) -> "Box":
        """The same machine, over a login of its own. While that is open, a port of this machine's
        loopback address leads to one of that machine's."""
        return Box(self._place, (port, there))

    def wait(self) -> None:
        """Until the login ends. Raises SshConnectionLost: it did not end by `close`."""
        if self._process is not None:
            self._process.wait()

    def close(self) -> None:
        """End the login."""
        with self._lock:
            self._drop()

    def _sent(
        self,
        do: str,
        message: Mapping[str, Any],
        contents: Callable[[], Iterable[bytes]],
        size: int,
        patience: float,
    ) -> tuple[dict[str, Any], bytes]:
        process = self._opened()
        try:
            return process.call({"do": do, **message}, contents(), size, patience)
        except BaseException:  # half a request was sent, or half an answer read
            self._drop()
            raise

    def _opened(self) -> SshProcess:
        """The login. One that took long to fail is not tried again for as long."""
        if self._process is None:
            began = time.monotonic()
            if self._away is not None and began < self._away[0]:
                raise self._away[1]
            host, storage, python, _ = self._place
            try:
                self._process = SshProcess(host, python, storage, self._forward)
            except BackendError as error:
                ended = time.monotonic()
                if ended - began > _LONG:
                    self._away = 2 * ended - began, error
                raise
        return self._process

    def _drop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _refused(self, error: Mapping[str, Any]) -> BoxRefused:
        path = f"`{error['path']}`: " if error.get("path") else ""
        full = error.get("errno") in FULL
        refused = BoxRefused(
            f"`{self.host}` refuses it: {path}{error['text']}",
            hint=f"make room on `{self.host}`, for example with `sgpu gc`" if full else None,
            code="no_room" if full else error.get("code"),
        )
        refused.errno = error.get("errno")
        return refused


def ask_all(boxes: Sequence[Box], ask: Callable[[Box], _Answer]) -> list[_Answer]:
    """The answers of several, which are asked at once, in their order. Raises BackendError."""
    if len(boxes) < 2:
        return [ask(box) for box in boxes]
    with ThreadPoolExecutor(len(boxes)) as pool:
        return list(pool.map(ask, boxes))


class Boxes:
    """One box for each host and folder there."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[str, str], Box] = {}
        self._lock = threading.Lock()

    def at(self, place: BoxPlace) -> Box:
        """The box with that name and folder. Whoever asks for it first says by which Python."""
        with self._lock:
            return self._boxes.setdefault(place[:2], Box(place))

    def close(self) -> None:
        """End all logins."""
        for box in self._boxes.values():
            box.close()
