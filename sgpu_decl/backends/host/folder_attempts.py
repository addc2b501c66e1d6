"""Attempts, read from their folders: where these lie, or from copies of them."""

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent.attempt import attempt_status
from sgpu_decl.agent.attempt.attempt_files import SPEC, read_json
from sgpu_decl.agent.attempt.previous_output import holds_files
from sgpu_decl.agent.notices.notice_process import read_notices
from sgpu_decl.agent.system.safe_files import regular_opener
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Attempts, LogReader
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView, notices_in, view_in
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.tracking.tracker_files import tracking_links

if TYPE_CHECKING:
    from typing import Any

    from sgpu_decl.backends.activity_reader import ActivityReader
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.model.attempt_details import CodeCopy, FirstCause
    from sgpu_decl.model.rank_output import Output, RankStack
    from sgpu_decl.model.run_usage import RunUsage
    from sgpu_decl.model.step_progress import Progress

_FRAME = r'(?m)^ *File "([^"\n]+)", line \d+'


class FolderAttempts(Attempts):
    """A backend says where the folders are (`_place`). `environ` is the environment of this
    process, where secrets are, and `project` the folder that the files of runs are named from."""

    def __init__(self, layout: AttemptLayout, environ: Mapping[str, str], project: Path) -> None:
        self._layout = layout
        self._project = project
        self._environ = environ

    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        views = {}
        for record in records:
            folder = self._place(record)
            if folder is not None and attempt_status.attempt_exists(folder):
                status = attempt_status.read_attempt(folder)
                views[record.ref] = view_in(record, status)
        return views

    def inspect(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        views = self.look(records)
        folders = {record.ref: self._folder(record) for record in records if record.ref in views}
        lost = [folders[ref] for ref, view in views.items() if view.state is AttemptState.LOST]
        orphans = attempt_status.remaining_processes(lost) if lost else {}
        return {
            ref: replace(
                view,
                first_cause=with_files(view.first_cause, folders[ref]),
                links=links_of(folders[ref]),
                notices=notices_in(read_notices(os.fspath(folders[ref]))),
                processes_left=tuple(orphans.get(os.fspath(folders[ref]), ())),
            )
            for ref, view in views.items()
        }

    def stacks(self, record: LaunchRecord, ranks: Sequence[int] | None) -> "Sequence[RankStack]":
        from sgpu_decl.agent.system.secrets import Redactor
        from sgpu_decl.model.rank_output import RankStack

        hide = Redactor(self._secrets(record)[0])
        return [
            RankStack(
                rank=one["rank"],
                pid=one["pid"],
                text=one["stack"] and hide(one["stack"]),
                reason=one["reason"],
            )
            for one in self._stacks(record, ranks)
        ]

    def _stacks(
        self, record: LaunchRecord, ranks: Sequence[int] | None
    ) -> "Sequence[Mapping[str, Any]]":
        """What `agent.ranks.rank_stacks` says of an attempt."""
        from sgpu_decl.agent.ranks.rank_stacks import rank_stacks

        return rank_stacks(os.fspath(self._folder(record)), ranks)

    def results(self, record: LaunchRecord) -> list[dict[str, Json]]:
        from sgpu_decl.backends.rank_values import read_results

        return read_results(self._folder(record) / "ranks")

    def output(
        self,
        record: LaunchRecord,
        progress: "Progress",  # noqa: ARG002  the protocol's
    ) -> "Output":
        from sgpu_decl.backends.rank_values import output_files

        return output_files(self._folder(record) / "output")

    def node_files(self, record: LaunchRecord, name: str) -> Mapping[int, Path]:
        path = self._folder(record) / name
        return {0: path} if path.is_file() else {}

    def left_output(self, record: LaunchRecord, config: "RunConfig") -> bool:  # noqa: ARG002  the protocol's
        return self.output_place(record) is not None

    def output_place(self, record: LaunchRecord) -> str | None:
        folder = self._layout.found(record)
        return os.fspath(folder.parent) if holds_files(os.fspath(folder / "output")) else None

    def error(self, record: LaunchRecord, rank: int) -> bytes | None:
        folder = self._folder(record)
        restart = attempt_status.read_attempt(folder)["restart"]
        path = folder / "ranks" / str(rank) / str(restart) / "error.pkl"
        try:
            with open(path, "rb", opener=regular_opener) as file:
                return file.read()
        except OSError:
            return None

    def logs(
        self,
        record: LaunchRecord,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        restart: int | None = None,
    ) -> LogReader:
        from sgpu_decl.backends.host.folder_logs import FolderLog

        folder = self._folder(record)
        return FolderLog(
            record.ref,
            folder,
            ranks=ranks,
            restart=restart,
            hide=self._shown_text(record, folder),
            epoch_ns=self._epoch_ns(record, folder),
            later_ns=lambda rank: self._later_ns(record, rank),
            ended=lambda: not self._goes_on(record, folder, follow=follow),
        )

    def _epoch_ns(self, record: LaunchRecord, folder: Path) -> int | None:  # noqa: ARG002
        """When the monotonic clock of an attempt was 0; None if nobody knows."""
        return attempt_status.monotonic_epoch_ns(folder)

    def _later_ns(self, record: LaunchRecord, rank: int) -> int:  # noqa: ARG002
        """How much later than that of the first node the monotonic clock of a rank was 0."""
        return 0

    def _goes_on(self, record: LaunchRecord, folder: Path, *, follow: bool) -> bool:  # noqa: ARG002
        """Whether a log that is followed may get more lines than are in the folder now."""
        return follow and attempt_status.attempt_exists(folder) and _active(folder)

    def past_usage(self, record: LaunchRecord) -> "RunUsage | None":
        view = self.look([record]).get(record.ref)
        return view.usage if view is not None and not view.state.active else None

    def activity(self, record: LaunchRecord) -> "ActivityReader":
        from sgpu_decl.backends.host.folder_activity import FolderActivity

        folder = self._folder(record)
        hide = cache(lambda: self._shown_text(record, folder))  # asked for once a rank has written
        return FolderActivity(folder, lambda text: hide()(text))

    def _shown_text(self, record: LaunchRecord, folder: Path) -> Callable[[str], str]:
        """What makes a text of a rank into one that people are shown: without the values of
        secrets, and with the user's own paths."""
        from sgpu_decl.agent.ranks.command_error import user_paths
        from sgpu_decl.agent.system.secrets import Redactor

        hide = Redactor(self._secrets(record)[0])
        spec = read_spec(folder)
        name = user_paths(spec) if spec is not None else str
        return lambda text: hide(name(text))

    def unresolved_secrets(self, record: LaunchRecord) -> tuple[str, ...]:
        return tuple(self._secrets(record)[1])

    def _secrets(self, record: LaunchRecord) -> tuple[list[str], list[str]]:
        """Return the values of an attempt's secrets, and the references that give none here.

        Values are stored nowhere; this asks where they came from once more.
        """
        from sgpu_decl.backends.secret_resolution import resolve_secrets

        place = self._place(record)
        spec = read_spec(place) if place is not None else None
        if spec is None:
            return [], []
        folder = record.folder(self._project_of(record))
        values: list[str] = []
        missing: list[str] = []
        for name, reference in spec["secrets"].items():
            try:
                values += resolve_secrets({name: reference}, self._environ, folder).values()
            except BackendError:
                missing.append(reference)
        return values, missing

    def _folder(self, record: LaunchRecord) -> Path:
        """Where an attempt is read; that of an attempt which is elsewhere is not there."""
        return self._place(record) or self._layout.found(record)

    @abstractmethod
    def _place(self, record: LaunchRecord) -> Path | None:
        """The folder of an attempt; None if it is elsewhere."""

    def _project_of(self, record: LaunchRecord) -> Path:  # noqa: ARG002  a default
        """The checkout that an attempt was launched from."""
        return self._project


def links_of(folder: Path) -> dict[str, Json]:
    links: dict[str, Json] = {"folder": str(folder), "output": str(folder / "output")}
    tracked = tracking_links(folder)
    return {**links, "mlflow": tracked} if tracked else links


def _active(folder: Path) -> bool:
    return AttemptState(attempt_status.read_attempt(folder)["state"]).active


def read_spec(folder: Path) -> "dict[str, Any] | None":
    """The `spec.json` of an attempt, for who looks at it: `code_root`, `code_dir` and `secrets` are
    there. None where it is missing, or something else has written it."""
    spec = read_json(os.fspath(folder), SPEC)
    if spec is None or not isinstance(spec.get("code_dir"), str):
        return None
    spec = {"code_root": None, "secrets": {}, **spec}
    root, secrets = spec["code_root"], spec["secrets"]
    names = [*secrets, *secrets.values()] if isinstance(secrets, dict) else [None]
    fits = isinstance(root, str | None) and all(isinstance(name, str) for name in names)
    return spec if fits else None


def with_files(cause: "FirstCause | None", folder: Path) -> "FirstCause | None":
    """Return a first cause with the files of the attempt folder that it is about: stacks with whole
    paths, and the copy of the code, if the traceback names files of the run's code."""
    if cause is None:
        return None
    stacks = tuple(replace(stack, file=str(folder / stack.file)) for stack in cause.stacks)
    return replace(cause, stacks=stacks, code=_code(folder, cause.traceback or ""))


def _code(folder: Path, trace: str) -> "CodeCopy | None":
    files = set(re.findall(_FRAME, trace))
    if not files:
        return None
    spec = read_spec(folder)
    if spec is None:
        return None
    root, copy = spec["code_root"], Path(spec["code_dir"])
    ours = sorted(name for name in files if root and name.startswith(f"{root}/"))
    if not ours or not copy.is_dir():
        return None
    changed = [name for name in ours if _differ(name, copy / os.path.relpath(name, root))]
    from sgpu_decl.model.attempt_details import CodeCopy

    return CodeCopy(copy=str(copy), changed=tuple(changed))


def _differ(file: str, copy: Path) -> bool:
    try:
        launched = copy.read_bytes()
    except OSError:
        return False  # the run removed its copy
    try:
        with open(file, "rb", opener=regular_opener) as now:
            return now.read() != launched
    except OSError:
        return True
