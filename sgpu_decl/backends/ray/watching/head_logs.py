"""The logs of nodes in files of the head, where the cluster has no storage."""

from collections.abc import Iterator

from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.remote.watching.node_logs import NodeLogs


class HeadLogs(NodeLogs):
    """`ATTEMPT/NODE/CHUNK.log` below `folder` of the head; see `cluster/log_copies.py`."""

    def __init__(self, files: HeadPlace, folder: str) -> None:
        self._files = files
        self._folder = folder
        # Chunk, bytes of it that were read, and the beginning of a line that goes on in the next.
        self._at: dict[tuple[int, int], tuple[int, int, bytes]] = {}

    def new_lines(self, *, last: bool) -> Iterator[tuple[int, bytes]]:
        """See `NodeLogs`; all lines are whole. What cannot be read now comes later. Raises
        BackendError if nobody asks later."""
        chunks: dict[tuple[int, int], list[int]] = {}
        for path in self._files.names(self._folder, "*/*/*.log"):
            attempt, node, name = path.split("/")[-3:]
            number = int(name.removesuffix(".log"))
            chunks.setdefault((int(attempt), int(node)), []).append(number)
        for place, numbers in sorted(chunks.items()):
            first, offset, begun = self._at.get(place, (0, 0, b""))
            for number in range(first, max(numbers) + 1):
                path = f"{self._folder}/{place[0]}/{place[1]}/{number}.log"
                content = self._files.find(path)
                if content is None and last:
                    raise self._files.unreadable(path)
                if content is None and number < max(numbers):  # it is complete
                    break
                new = (content or b"")[offset:]
                end = new.rfind(b"\n")
                lines, begun = (begun + new[:end], b"") if end >= 0 else (b"", begun)
                offset += end + 1
                if number < max(numbers):
                    begun += new[end + 1 :]
                    self._at[place] = (number + 1, 0, begun)
                else:
                    self._at[place] = (number, offset, begun)
                if end >= 0:
                    yield place[1], lines
                offset = 0
