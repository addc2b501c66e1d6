"""The lines of a run's ranks: all nodes, all attempts of the platform, followed while it goes on.

The platform's log service is asked; where a workspace has none, or where it has nothing of an
attempt that has ended, the chunks are read that the platform keeps beside the MLflow run. Some
workspaces have the one, some the other, and some lose both.

The service gives lines by their time, and some come to it late. So each question goes back a little
behind the newest line, now and then one goes far back, and the last one asks for all lines: those
that were not shown before are shown then.

A chunk is text without times. A line ends with a newline alone, as the node agent writes it: a
carriage return of a progress bar, a form feed or U+2028 is part of it. It may go on in the next
chunk.
"""

import re
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.base import LogReader
from sgpu_decl.backends.databricks.watching.run_artifacts import Artifacts, artifacts_of
from sgpu_decl.backends.databricks.watching.termination import attempt_number, has_ended
from sgpu_decl.backends.remote.watching.node_logs import NodeLine, line_of
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_output import LogLines
from sgpu_decl.places.file_place import PlaceMissing

if TYPE_CHECKING:
    from sgpu_decl.backends.databricks.watching.run_part import RunPart
    from sgpu_decl.backends.databricks.workspace import Workspace

_BACK = 30  # seconds that are asked for once more: lines of some nodes come late
_FAR_BACK = 900  # the same, once in so many seconds:
_SOMETIMES = 60.0
_PAGE = 5_000
_SECOND = 1_000_000_000
_SELDOM = 10.0  # seconds between two looks for chunks of an attempt that ended without a log
_SPAN = 10_000_000_000  # ns whose records are compared at a time
_NO_SERVICE = frozenset({"permission_denied", "remote_broken", "remote_refused"})
_NO_API = frozenset({"ENDPOINT_NOT_FOUND", "FEATURE_DISABLED"})
_NODE = re.compile(r"node_(\d+)")
_CHUNK = re.compile(r"logs-(\d+)\.chunk\.txt")


class WorkspaceLog(LogReader):
    """The log of an attempt.

    Args:
        ranks: which ranks, or `None` for all and what nodes say themselves.
        follow: go on until the run has ended. If a run that had nodes has no log anywhere, a line
            says so then; otherwise that is an error.
    """

    def __init__(
        self,
        ref: AttemptRef,
        workspace: "Workspace",
        part: "RunPart",
        *,
        ranks: Sequence[int] | None,
        follow: bool,
    ) -> None:
        self._ref = ref
        self._workspace = workspace
        self._part = part
        self._ranks = None if ranks is None else frozenset(ranks)
        self._follow = follow
        self._readers: dict[int, _AttemptLog] = {}

    def read(self) -> tuple[Iterable[LogLines], bool]:
        run = self._part.look(self._workspace.run_cache) or {}
        # Asked before the log is read: if the run has ended, the log is complete.
        ended = not run or has_ended(run)
        over = ended or not self._follow
        return self._lines(run, over=over), over

    def _lines(self, run: Mapping[str, Any], *, over: bool) -> Iterator[LogLines]:
        for task in sorted(run.get("tasks") or (), key=attempt_number):
            number = attempt_number(task)
            if number not in self._readers:
                log_id = self._part.log_id(task)
                self._readers[number] = _AttemptLog(self._workspace, log_id, task)
            for record in self._readers[number].records(task, last=over):
                line = line_of(self._ref, record)
                if self._ranks is None or line.rank in self._ranks:
                    yield line
        deleted = not run and not self._follow  # or not visible yet, which following waits for
        if not over or not (deleted or _all_lost(run, self._readers.values())):
            return
        error = _nothing(self._ref, self._workspace.connection.host)
        if not self._follow:
            raise error
        text = f"sgpu: {error.message}; {error.hint}"
        yield LogLines(ref=self._ref, rank=None, stream="stderr", text=text)


def _all_lost(run: Mapping[str, Any], readers: Iterable["_AttemptLog"]) -> bool:
    """Whether a run that has ended had nodes, and no log of any of them is there."""
    ended = has_ended(run)
    began = any(task.get("execution_duration") for task in run.get("tasks") or ())
    return ended and began and not any(reader.has_log for reader in readers)


def _nothing(ref: AttemptRef, host: str) -> NotFound:
    return NotFound(
        f"`{host}` has no log of `{ref}`: neither its log service nor the artifacts of its MLflow "
        "run have one",
        hint=f"`sgpu show '{ref}'` says how it ended; ask an admin of the workspace whether logs "
        "of AI Runtime are kept, or use a later `env.base`",
        code="no_logs",
    )


class _AttemptLog:
    """The log of one attempt of the platform, which is a `task` of the run, and how much of it was
    read. `has_log` says whether there ever was a log. The log service knows it by `log_id`."""

    def __init__(self, workspace: "Workspace", log_id: int, task: dict[str, Any]) -> None:
        self._workspace = workspace
        self._log_id = log_id
        self._task_run_id = int(task["run_id"])
        self._number = attempt_number(task)
        self._deduplicator = Deduplicator()
        self._new: list[NodeLine] = []  # what came before an answer broke off comes with the next
        self._went_far_back = time.monotonic()
        self._from_chunks = False
        self._artifacts: Artifacts | None = None
        self._chunks_read_at = float("-inf")
        self.has_log = False

    def records(self, task: dict[str, Any], *, last: bool) -> list[NodeLine]:
        """What is new since the last call, in the order of time.

        Args:
            task: how this attempt stands.
            last: nobody asks again.
        """
        records = [] if self._from_chunks else self._service_records(last=last)
        ended = has_ended(task)
        due = time.monotonic() - self._chunks_read_at > _SELDOM
        if not records and (self._from_chunks or (ended and not self.has_log and due)):
            self._chunks_read_at = time.monotonic()
            records = self._chunk_records(whole=ended)
        self.has_log = self.has_log or bool(records)
        return records

    def _since(self, *, last: bool) -> int:
        """Where the next question begins, in seconds of the epoch; 0 for all lines."""
        if last:
            return 0
        back, now = _BACK, time.monotonic()
        if now - self._went_far_back >= _SOMETIMES:
            self._went_far_back, back = now, _FAR_BACK
        return max(0, self._deduplicator.last_ns // _SECOND - back)

    def _service_records(self, *, last: bool) -> list[NodeLine]:
        """What the log service has, as long as there is one."""
        since = self._since(last=last)
        query: dict[str, Json] = {
            "ref.attempt_number": self._number,
            "page_size": _PAGE,
            "ascending": "true",
            **({"from": since} if since else {}),
        }
        pages = self._workspace.connection.pages(
            f"reading the logs of run {self._log_id}",
            f"/api/2.0/ai-training/workflows/by-run-id/{self._log_id}/logs",
            **query,
        )
        try:
            found = (_record(item) for page in pages for item in page.get("log_records") or ())
            self._new.extend(self._deduplicator.new(found))
        except PlaceMissing as error:  # or it has not come to a log yet
            self._from_chunks = getattr(error.__cause__, "error_code", None) in _NO_API
            return []
        except BackendError as error:
            if error.code not in _NO_SERVICE:
                raise
            self._from_chunks = True
            return []
        records, self._new = self._new, []
        return records

    def _chunk_records(self, *, whole: bool) -> list[NodeLine]:
        run = self._workspace.run_cache.output(self._task_run_id).get("mlflow_run_id")
        if not run:
            return []
        if self._artifacts is None:
            self._artifacts = artifacts_of(self._workspace.connection, str(run))
        records: list[NodeLine] = []
        for node, chunks in node_chunks(self._artifacts, self._number):
            self.has_log = self.has_log or bool(chunks)
            records += node_records(self._artifacts, node, chunks, whole=whole)
        # Further lines come from where the first did: times of the service are others.
        self._from_chunks = self._from_chunks or bool(records)
        return list(self._deduplicator.new(records))


def _record(item: dict[str, Any]) -> NodeLine:
    node = int(item.get("node_index") or 0)
    return NodeLine(int(item["time_unix_nano"]), node, str(item["body"]))


class Deduplicator:
    """Tells new records from those that an overlapping question brings once more. Equal lines of
    one moment are as many as they are: they are counted. It keeps eight bytes of each record."""

    def __init__(self) -> None:
        self._known: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
        self.last_ns = 0

    def new(self, records: Iterable[NodeLine]) -> Iterator[NodeLine]:
        """Those records of one answer that were in none before."""
        awaited: dict[int, Counter[int]] = {}
        for record in records:
            span, key = record.time_ns // _SPAN, hash(record)
            known = self._known[span]
            if span not in awaited:
                awaited = {at: counts for at, counts in awaited.items() if at >= span - 1}
                awaited[span] = Counter(known)
            if awaited[span][key]:
                awaited[span][key] -= 1
                continue
            known.append(key)
            self.last_ns = max(self.last_ns, record.time_ns)
            yield record


def node_chunks(artifacts: Artifacts, attempt: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the nodes of one attempt that have a log, each with the paths of its chunks in order: a
    node that wrote nothing has an empty one."""
    nodes = _numbered(artifacts, f"logs/attempt_{attempt}", _NODE) or _numbered(
        artifacts, "logs", _NODE
    )
    for node, path in nodes:
        yield node, [chunk for _, chunk in _numbered(artifacts, path, _CHUNK)]


def node_records(
    artifacts: Artifacts, node: int, chunks: Sequence[str], *, whole: bool
) -> Iterator[NodeLine]:
    """Yield the lines of a node. Their place in the text stands for the time, so that the same line
    is the same record at every look.

    Args:
        whole: nothing more comes; else a last line without an end is left for later.
    """
    content = b"".join(artifacts.read(chunk) for chunk in chunks)
    *lines, rest = content.split(b"\n")
    if rest and whole:
        lines.append(rest)
    for number, line in enumerate(lines, start=1):
        yield NodeLine(number, node, line.decode("utf-8", "replace"))


def _numbered(artifacts: Artifacts, folder: str, names: re.Pattern[str]) -> list[tuple[int, str]]:
    matches = ((names.fullmatch(path.rpartition("/")[2]), path) for path in artifacts.list(folder))
    return sorted((int(match[1]), path) for match, path in matches if match)
