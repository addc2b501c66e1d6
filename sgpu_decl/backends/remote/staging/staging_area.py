"""A staging folder, and the files that it is among: what all launches of this process share."""

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.model.jsonable import Json
from sgpu_decl.places.file_place import FilePlace

if TYPE_CHECKING:
    from sgpu_decl.code.code_store import CodeStore
    from sgpu_decl.model.step_progress import Progress


class StagingArea:
    """Launch folders and shared objects in one staging folder. A process has one for each.

    Args:
        layout: where things lie.
        files: those of the staging folder.
        command_files: those that `layout.commands` is among, where these are others.
        key: what the backend finds the staging folder again by, in another process too.
        has_unseen_launch: whether a launch may need objects that none of these folders names.
        delete_copies: deletes copies elsewhere of objects that are gone; returns their bytes.
        send_changes: makes an archive of code there from an older one; false where it cannot.
    """

    def __init__(
        self,
        layout: RemoteLayout,
        files: FilePlace,
        command_files: FilePlace | None = None,
        *,
        key: Mapping[str, Json],
        has_unseen_launch: Callable[[Collection[str]], bool] = lambda _: False,
        delete_copies: Callable[[], int] = lambda: 0,
        send_changes: "Callable[[CodeStore, str, Progress], bool]" = lambda *_: False,
    ) -> None:
        self.key = key
        self.has_unseen_launch = has_unseen_launch
        self.delete_copies = delete_copies
        self.send_changes = send_changes
        self.layout = layout
        self.files = files
        self.command_files = command_files or files
        self._done: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def clear_cache(self) -> None:
        """Forget what was found or made there: it may be gone."""
        with self._lock:
            self._done.clear()

    def run_once(self, what: str, do: Callable[[], None]) -> None:
        """Call `do` once for all launches of this process; other callers wait for it. If it fails,
        the next caller tries again."""
        with self._lock:
            running = self._done.get(what)
            mine = running is None
            future = self._done.setdefault(what, Future())
        if not mine:
            future.result()
            return
        try:
            do()
        except BaseException as error:
            with self._lock:
                self._done.pop(what, None)
            future.set_exception(error)
            raise
        future.set_result(None)

    def make_folder_once(self, folder: str) -> None:
        """Make a folder of the staging folder. Raises BackendError."""
        self.run_once(folder, lambda: self.files.make_folder(folder))
