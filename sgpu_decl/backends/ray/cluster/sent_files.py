"""The files of a launch where the cluster has no storage: from the head's folder to the nodes, and
back.

Files go through Ray's object store in pieces, each to all nodes that lack the file, at the same
time. What a node has by content is not sent again. The outputs of other runs that ranks read go to
one node of each machine, as one folder of what all nodes of such a run left.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from functools import partial

from ray.exceptions import RayError

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.monitor_files import MONITOR
from sgpu_decl.agent.node.earlier_output import (
    absent_nodes,
    gone_output,
    last_output,
    newest_output,
)
from sgpu_decl.agent.node.node_report import REPORT
from sgpu_decl.agent.system import byte_size
from sgpu_decl.backends.ray.cluster.actor_answers import (
    ANSWER,
    NO_ROOM,
    answer,
    answers,
    large_answer,
    ready,
    stored,
    value,
)  # fmt: skip
from sgpu_decl.backends.ray.cluster.content_check import damaged_content
from sgpu_decl.backends.ray.cluster.content_limit import NEEDED, use
from sgpu_decl.backends.ray.cluster.head_folder import index_folder, index_tree
from sgpu_decl.backends.ray.cluster.head_names import INDEX
from sgpu_decl.backends.ray.cluster.log_copies import LogChunks
from sgpu_decl.backends.ray.cluster.node_files import FILLS, WAITS
from sgpu_decl.content.code_tree import archive_name
from sgpu_decl.content.output_pieces import Piece, contents, merged_output
from sgpu_decl.content.packs import BadPack, Index, index_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from typing import Any, BinaryIO

    from sgpu_decl.backends.ray.cluster.log_copies import LogCopy

_PIECE = 32 << 20  # bytes
_WINDOW = 2  # pieces that are under way
_RENEWAL = NEEDED / 3  # seconds between two notes that content is used
_BATCH = 500  # files that are taken at once
_READS = 16  # of all logs, before the driver looks at something else
_MUCH = 1 << 20  # bytes of a log that were new: there is more by now
_LOOK = 5.0  # seconds between two looks at what a monitor saw


class SentFiles:
    """The files of one launch.

    Args:
        launch: `launch` and `back`, folders of the head, and `sent`: `objects`, the folder of the
            head that has them; `code` and `environment`, digests in hex of what the run has of
            them; `files`, those of the launch folder that nodes need; `resume`, whether they need
            the output of earlier attempts; `gc_lock`, with what the `name` of a lock of gc begins,
            and for how many `seconds` it counts. `upstreams`: see `await_upstreams`.
        copy: gets the lines of the nodes, too.
    """

    def __init__(self, launch: Mapping[str, Any], copy: LogCopy) -> None:
        self._launch, self._back = str(launch["launch"]), str(launch["back"])
        self._above, name = os.path.split(self._launch)
        self._name = f"runs/{name}/{os.path.basename(self._back)}"  # of `back` on nodes
        self._sent = launch["sent"]
        self._read = [one for one in launch["upstreams"] if one["output"] is not None]
        self._copy = copy
        self._actors: Sequence[Any] = ()
        self._attempt = 0
        self._logs: list[LogChunks] = []
        self._reads: dict[int, Any] = {}
        self._collected: set[int] = set()
        self._seen: Any = None  # what the monitor saw, on its way here
        self._look_due = 0.0

    def gc_goes_on(self) -> bool:
        """Whether a gc may delete content of this launch. It deletes nothing that the marker of a
        launch folder names, but it may have begun before there was one."""
        return any(map(self._is_locked, _paths(self._object("agent"))))

    def missing_content(self) -> str | None:
        """Why the launch cannot be sent, if content is missing."""
        try:
            missing = [path for path in self._objects().values() if not use(path)]
        except FileNotFoundError as error:
            missing = [str(error.filename)]
        except BadPack:  # the index
            return self.delete_damaged()
        if missing:
            self._forget_environment(missing)
            return f"`{missing[0]}` was deleted from the head node: apply again"
        return None

    def delete_damaged(self) -> str | None:
        """Delete content from the head that is damaged, so that the next apply sends it again; say
        so if there is some."""
        sent = self._sent
        try:
            damaged = damaged_content(sent["objects"], sent["code"], sent["environment"])
        except OSError as error:
            return f"whether content of the head node is damaged cannot be told: {error}"
        if not damaged:
            return None
        for path in damaged:
            with contextlib.suppress(OSError):
                os.unlink(path)
                index_folder(os.path.dirname(path))
        self._forget_environment(damaged)
        return f"`{damaged[0]}` on the head node was damaged and is deleted now: apply again"

    @contextlib.contextmanager
    def kept_content(self) -> Iterator[None]:
        """Note now and then that the content is used, however long the launch waits for nodes: what
        was not used for a while may be deleted."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(_RENEWAL):
                with contextlib.suppress(OSError):
                    for path in self._objects().values():
                        use(path)

        threading.Thread(target=keep, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _forget_environment(self, missing: Sequence[str]) -> None:
        """Delete the index of an environment if some of its files are `missing`. An apply takes one
        that has its index for whole, and sends nothing of it."""
        folder = self._object("packs")
        if not any(os.path.dirname(path) == folder for path in missing):
            return
        index = self._object(self._index(self._sent["environment"]))
        with contextlib.suppress(OSError):  # the folder is gone, or the disk takes nothing
            os.unlink(index)
            index_folder(folder)

    def send(self, actors: Sequence[Any], logs: str) -> Iterator[None]:
        """Send what nodes lack, and say how much that was; yields before each piece, and while they
        are slow. Their lines go to the folder `logs`. Raises RayError, OSError, SilentNode,
        UpstreamFailed."""
        self._actors = actors
        earlier = attempt_files.numbers_in(self._back)
        self._attempt = max(earlier, default=-1) + 1
        sources = {**self._files(), **self._reports(earlier), **self._earlier_output()}
        names = list(sources)
        numbered = dict(enumerate(actors))
        missing = yield from answers(
            {node: actor.missing.remote(names, self._name) for node, actor in numbered.items()}
        )
        lacking = {node: frozenset(names) for node, names in missing.items()}
        receivers = {
            name: {node: numbered[node] for node in numbered if name in lacking[node]}
            for name in names
        }
        total = yield from _transfer(
            (name, piece, receivers[name])
            for name, path in sources.items()
            if receivers[name]
            for piece in _pieces([Piece(path, os.path.getsize(path), None)])
        )
        if self._read:
            total += yield from self._send_outputs(numbered)
        attempt_files.say(f"sent {byte_size.size(total)} to {_nodes(len(actors))}")
        yield from answers({node: actor.follow.remote(earlier) for node, actor in numbered.items()})
        os.makedirs(os.path.join(self._back, str(self._attempt)))
        for folder in (self._back, self._launch):
            index_folder(folder)  # if all nodes are lost, nothing else says that this attempt began
        self._logs = [LogChunks(os.path.join(logs, str(node))) for node in range(len(actors))]
        self._reads, self._collected, self._seen = {}, set(), None

    def _send_outputs(self, waiting: Mapping[int, Any]) -> Generator[None, None, int]:
        """Send the outputs of other runs to one node of each machine; wait for machines where a
        node of an attempt before still fills the folder. Returns the bytes that were sent."""
        folders = [upstream["output"] for upstream in self._read]
        total = 0
        while waiting:
            states = yield from answers(
                {node: actor.take_inputs.remote(folders) for node, actor in waiting.items()}
            )
            fill = {node: actor for node, actor in waiting.items() if states[node] == FILLS}
            if fill:
                total += yield from _transfer(
                    (path, piece, fill)
                    for path, sources in self._outputs()
                    for piece in _pieces(sources)
                )
                yield from answers(
                    {node: actor.finish_inputs.remote() for node, actor in fill.items()}
                )
            waiting = {node: actor for node, actor in waiting.items() if states[node] == WAITS}
            if waiting:
                yield
                time.sleep(ANSWER)
        return total

    def _outputs(self) -> Iterator[tuple[str, list[Piece]]]:
        """The files of outputs of other runs, by their paths on nodes. Raises UpstreamFailed."""
        for upstream in self._read:
            if absent_nodes(upstream["back"], upstream["nodes"]):  # deleted while this one waited
                raise gone_output(upstream["name"])
            for name, sources in merged_output(last_output(upstream["back"])).items():
                if os.path.basename(name) != INDEX:
                    yield os.path.join(upstream["output"], name), sources

    def take_lines(self) -> bool:
        """Take the lines that nodes have written meanwhile; return whether there were any. Those of
        a node whose files are collected come with them: asked for here, too, they would come in
        another order."""
        found = False
        for _ in range(_READS):
            for node, actor in enumerate(self._actors):
                if node not in self._reads and node not in self._collected:
                    self._reads[node] = actor.new_lines.remote(last=False)
            nodes = {read: node for node, read in self._reads.items()}
            came, _ = ready(list(nodes), count=len(nodes), timeout=ANSWER)
            longest = 0
            for read in came:
                del self._reads[nodes[read]]
                try:
                    lines = value(read)
                except NO_ROOM:
                    again = self._actors[nodes[read]].new_lines.remote(last=False, again=True)
                    self._reads[nodes[read]] = again
                    continue
                except RayError:
                    continue  # the node is lost, which is seen elsewhere
                self._write(nodes[read], lines)
                longest = max(longest, len(lines))
            found = found or longest > 0
            if longest < _MUCH:
                break
        return found

    def take_monitor(self) -> None:
        """Bring what the monitor of node 0 saw last to the head, now and then: see
        `agent.node.monitor_copy`, which writes it on the node. That it fails harms nobody."""
        name = f"{self._name}/{self._attempt}/{MONITOR}"
        if self._seen is None and time.monotonic() >= self._look_due:
            self._look_due = time.monotonic() + _LOOK
            self._seen = self._actors[0].read_whole.remote([name])
        elif self._seen is not None and ready([self._seen], timeout=0)[0]:
            seen, self._seen = self._seen, None
            with contextlib.suppress(RayError, *NO_ROOM, OSError):
                (content,) = value(seen)
                with self._new_file(name) as file:
                    file.write(content)

    def collect(self, node: int) -> Iterator[None]:
        """Take what a node left, once its node program has ended; yields after each piece, and
        while the node is slow. Raises RayError, OSError, SilentNode."""
        actor = self._actors[node]
        self._collected.add(node)
        read = self._reads.pop(node, None)
        if read is not None:
            ask = partial(actor.new_lines.remote, last=False, again=True)
            self._write(node, (yield from large_answer(node, ask, read)))
        while lines := (yield from self._last_lines(node)):
            self._write(node, lines)
        mine = f"{self._name}/{self._attempt}/node_{node}/"
        brought = yield from large_answer(node, actor.brought.remote)
        files = [item for item in brought if item[0].startswith(mine)]
        files.sort(key=lambda item: (item[0] == mine + REPORT, item[0]))  # last: see `node_report`
        for names, size in _batches(files):
            yield from self._fetch(node, names, size)
        yield from answer(node, actor.discard.remote())
        attempt = os.path.join(self._back, str(self._attempt))
        if files:
            index_tree(os.path.join(attempt, f"node_{node}"))
        for folder in (attempt, self._back, self._launch):
            index_folder(folder)

    def _last_lines(self, node: int) -> Generator[None, None, bytes]:
        """Lines that are new, with the rest of the last one at the end."""
        ask = partial(self._actors[node].new_lines.remote, last=True)
        lines: bytes = yield from large_answer(node, partial(ask, again=True), ask())
        return lines

    def _fetch(self, node: int, names: list[str], size: int) -> Iterator[None]:
        """Take files of `size` bytes in all: several small ones at once, a large one in pieces."""
        actor = self._actors[node]
        if size <= _PIECE:
            contents = yield from large_answer(node, partial(actor.read_whole.remote, names))
            for name, content in zip(names, contents, strict=True):
                with self._new_file(name) as file:
                    file.write(content)
            yield
            return
        for name in names:
            with self._new_file(name) as file:
                for at in range(0, size, _PIECE):
                    read = partial(actor.read.remote, name, at, _PIECE)
                    file.write((yield from large_answer(node, read)))
                    yield

    @contextlib.contextmanager
    def _new_file(self, name: str) -> Iterator[BinaryIO]:
        """A file that is there once it is whole."""
        path = os.path.join(self._above, name.removeprefix("runs/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        unfinished = f"{path}.tmp"
        try:
            with open(unfinished, "wb") as file:
                yield file
            os.rename(unfinished, path)
        finally:
            with contextlib.suppress(OSError):  # it has its name, or a full disk has room again
                os.unlink(unfinished)

    def _write(self, node: int, lines: bytes) -> None:
        if lines:
            self._logs[node].write(lines)
            self._copy.write(lines)

    def _files(self) -> dict[str, str]:
        """The files that nodes need, by the names that they have there."""
        names = self._sent["files"]
        return {
            **self._objects(),
            **{f"launch/{name}": os.path.join(self._launch, name) for name in names},
        }

    def _objects(self) -> dict[str, str]:
        """The code and the environment, which launches share, by their names on nodes."""
        names: list[str] = []
        if self._sent["code"]:
            names.append(f"code/{archive_name(self._sent['code'])}")
        if self._sent["environment"]:
            names += self._packs(self._sent["environment"])
        return {f"objects/{name}": self._object(name) for name in names}

    def _is_locked(self, path: str) -> bool:
        """Whether a file is the lock of a gc that goes on."""
        lock = self._sent["gc_lock"]
        try:
            age = time.time() - os.path.getmtime(path)
        except FileNotFoundError:
            return False
        return os.path.basename(path).startswith(lock["name"]) and age < lock["seconds"]

    def _packs(self, environment: str) -> list[str]:
        with open(self._object(self._index(environment)), "rb") as file:
            index = Index.unchecked(file.read(), f"sha256:{environment}")
        return [f"packs/{name}" for name in index.files]

    def _index(self, environment: str) -> str:
        return f"packs/{index_name(environment)}"

    def _object(self, name: str) -> str:
        return os.path.join(self._sent["objects"], name)

    def _reports(self, attempts: Sequence[int]) -> dict[str, str]:
        names = [f"{attempt}/node_0/{REPORT}" for attempt in attempts]
        paths = {f"{self._name}/{name}": os.path.join(self._back, name) for name in names}
        return {name: path for name, path in paths.items() if os.path.exists(path)}

    def _earlier_output(self) -> dict[str, str]:
        paths = [
            os.path.join(place, name)
            for node in (newest_output(self._back) if self._sent["resume"] else ())
            for place, _, names in os.walk(node)
            for name in names
            if not name.startswith(INDEX)
        ]
        return {f"runs/{os.path.relpath(path, self._above)}": path for path in paths}


def _batches(files: Sequence[tuple[str, int]]) -> Iterator[tuple[list[str], int]]:
    """Files that are taken at once, in their order, and their bytes: few enough and small ones, or
    one that is larger than a piece."""
    names: list[str] = []
    size = 0
    for name, length in files:
        if names and (size + length > _PIECE or len(names) >= _BATCH):
            yield names, size
            names, size = [], 0
        names.append(name)
        size += length
    if names:
        yield names, size


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _paths(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def _transfer(
    files: Iterable[tuple[str, tuple[int, int, bytes], Mapping[int, Any]]],
) -> Generator[None, None, int]:
    """Send pieces of files, each with the name of the file on nodes and with its receivers; return
    the bytes. Yields before each piece, and while nodes are slow. Raises RayError, SilentNode."""
    under_way: list[dict[int, Any]] = []
    total = 0
    for name, (offset, size, data), receivers in files:
        yield
        piece = yield from stored(data)
        total += len(data) * len(receivers)
        under_way.append(
            {
                node: actor.receive.remote(name, offset, size, piece)
                for node, actor in receivers.items()
            }
        )
        if len(under_way) >= _WINDOW:
            yield from answers(under_way.pop(0))
    for rest in under_way:
        yield from answers(rest)
    return total


def _pieces(sources: Sequence[Piece]) -> Iterator[tuple[int, int, bytes]]:
    """The offset of each piece of a file, the size of the file, and the piece."""
    size = sum(piece.size for piece in sources)
    if not size:
        yield 0, 0, b""
    offset = 0
    for data in contents(sources, most=_PIECE):
        yield offset, size, data
        offset += len(data)
