"""The local backend: attempt folders on disk, the node agent as their supervisor."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent import launching as agent
from sgpu_decl.agent import reading
from sgpu_decl.agent.redacting import Redactor
from sgpu_decl.backends.base import Launching, LogLine, Output
from sgpu_decl.backends.configured import config_of
from sgpu_decl.backends.interpreting import interpreter_of
from sgpu_decl.backends.layout import Layout
from sgpu_decl.backends.local.checking import LocalSurvey
from sgpu_decl.backends.local.devices import visible_devices
from sgpu_decl.backends.local.logs import read_lines
from sgpu_decl.backends.local.secrets import resolve_secrets
from sgpu_decl.backends.pinned import require_code
from sgpu_decl.backends.returning import output_in, read_returned
from sgpu_decl.config.run import RunConfig
from sgpu_decl.environments.progress import Progress, Quiet
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, AttemptStatus, FailureClass
from sgpu_decl.model.jsonable import Json
from sgpu_decl.staging.store import Store

if TYPE_CHECKING:
    from sgpu_decl.environments.stored.store import EnvironmentStore

__all__ = ["LocalBackend"]


class LocalBackend:
    """See `backends.base.Backend`. `project` is absolute; `store` holds the pinned code."""

    def __init__(
        self,
        *,
        project: Path,
        state_dir: Path,
        store: Store,
        environments: "Callable[[], EnvironmentStore]",
        environ: Mapping[str, str],
    ) -> None:
        self._project = project
        self._layout = Layout(state_dir)
        self._store = store
        self._environments = environments
        self._trees: dict[str, Path] = {}
        self._environ = environ

    @property
    def survey(self) -> LocalSurvey:
        return LocalSurvey()

    def folder(self, ref: AttemptRef) -> Path:
        return self._layout.attempt(ref)

    def check(self, launching: Launching) -> None:
        config = config_of(launching.ref, launching.spec)
        resolve_secrets(config.env.secrets, self._environ)
        if launching.environment_digest is None:
            self._interpreter(launching, config)
        require_code(self._store, launching)

    def equip(self, launchings: Sequence[Launching], progress: Progress) -> None:
        for environment in {it.environment_digest for it in launchings if it.environment_digest}:
            self._trees[environment] = self._environments().hydrate(environment, progress)

    def examine(self, environment: str) -> tuple[str, ...]:
        # Others are kept from it by the modes of files and folders.
        return self._environments().examine(environment) if os.geteuid() == 0 else ()

    def stage(self, launching: Launching) -> None:
        from sgpu_decl.backends.entering import forget_compiled

        if self.staged(launching.ref, launching.token):
            forget_compiled(self._layout.attempt(launching.ref))
            return
        with self._nothing_left(launching) as folder:
            self._stage(launching, config_of(launching.ref, launching.spec), folder)

    def in_line(self, launching: Launching) -> bool:
        config = config_of(launching.ref, launching.spec)
        return config.max_parallel is not None or config.type.name != "CPU"

    def launch(self, launching: Launching) -> None:
        with self._nothing_left(launching) as folder:
            if not _launched(folder):
                secrets = resolve_secrets(
                    config_of(launching.ref, launching.spec).env.secrets, self._environ
                )
                agent.launch(folder, secrets=secrets)

    def staged(self, ref: AttemptRef, token: str) -> bool:
        try:
            spec = json.loads((self._layout.attempt(ref) / "spec.json").read_bytes())
        except (OSError, ValueError):
            return False
        return bool(spec.get("token") == token)

    def read(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, AttemptStatus]:
        found = {}
        for ref in refs:
            folder = self._layout.attempt(ref)
            if folder.is_dir():
                found[ref] = _status(ref, reading.read_attempt(folder))
        return found

    def describe(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, dict[str, Json]]:
        folders = {ref: self._layout.attempt(ref) for ref in refs}
        return {ref: self._described(ref, it) for ref, it in folders.items() if it.is_dir()}

    def _described(self, ref: AttemptRef, folder: Path) -> dict[str, Json]:
        seen = reading.read_attempt(folder)
        return {
            "attempt": ref.number,
            "state": seen["state"],
            "backend": "local",
            "started_at": seen["started_at"],
            "ended_at": seen["ended_at"],
            "exit_code": seen["exit_code"],
            "ranks": seen["ranks"],
            "first_cause": seen["first_cause"],
            "links": self._links(folder),
            **({"waiting_for": seen["waiting_for"]} if "waiting_for" in seen else {}),
        }

    def cancel(self, ref: AttemptRef) -> None:
        folder = self._layout.attempt(ref)
        if folder.is_dir():
            reading.request_cancel(folder)

    def results(self, ref: AttemptRef) -> list[dict[str, Json]]:
        return read_returned(self._layout.attempt(ref) / "ranks")

    def output(self, ref: AttemptRef, progress: Progress) -> Output:  # noqa: ARG002  the protocol's
        return output_in(self.folder(ref) / "output")

    def failure(self, ref: AttemptRef, rank: int) -> bytes | None:
        restart = reading.read_attempt(self._layout.attempt(ref))["restart"] or 0
        path = self._layout.attempt(ref) / "ranks" / str(rank) / str(restart) / "error.pkl"
        try:
            return path.read_bytes()
        except OSError:
            return None

    def logs(
        self,
        ref: AttemptRef,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        restart: int | None = None,
    ) -> Iterator[LogLine | None]:
        folder = self._layout.attempt(ref)
        return read_lines(
            ref,
            folder,
            ranks=ranks,
            restart=restart,
            follow=follow,
            hide=Redactor(self._secrets(ref)[0]),
            ended=lambda: not AttemptState(reading.read_attempt(folder)["state"]).active,
        )

    def unhidden(self, ref: AttemptRef) -> tuple[str, ...]:
        return tuple(self._secrets(ref)[1])

    def _secrets(self, ref: AttemptRef) -> tuple[list[str], list[str]]:
        """Return the values of an attempt's secrets, and the references that give none here.

        Values are stored nowhere; this asks where they came from once more.
        """
        try:
            spec = json.loads((self._layout.attempt(ref) / "spec.json").read_bytes())
        except (OSError, ValueError):
            return [], []
        values: list[str] = []
        missing: list[str] = []
        for name, reference in spec["secrets"].items():
            try:
                values += resolve_secrets({name: reference}, self._environ).values()
            except BackendError:
                missing.append(reference)
        return values, missing

    def unstage(self, ref: AttemptRef) -> None:
        folder = self._layout.attempt(ref)
        if not _alive(folder):
            shutil.rmtree(folder / "code", ignore_errors=True)

    def sweep(self, ref: AttemptRef) -> None:
        folder = self._layout.attempt(ref)
        if folder.is_dir():
            reading.clear_remains(folder)

    def move(self, source: Address, destination: Address) -> None:
        old, new = self._layout.run(source), self._layout.run(destination)
        if not old.is_dir():
            return
        for number in (name for name in _names(old) if name.isdigit()):
            if _alive(old / number):
                raise BackendError(
                    f"`{AttemptRef(source, int(number))}` is active: its folder cannot be moved",
                    hint="wait for it with `sgpu wait`, or cancel it first",
                    code="move_refused",
                )
        try:
            old.rename(new)
        except OSError as error:
            raise BackendError(
                f"`{old}` cannot be renamed to `{new}`: {error.strerror}", code="move_refused"
            ) from error

    def tidy(self) -> int:
        return 0  # all that is shared lies in the stores

    def size(self, ref: AttemptRef) -> int:
        total = 0
        for root, _, files in os.walk(self._layout.attempt(ref)):
            for name in files:
                found = os.lstat(os.path.join(root, name))
                total += min(found.st_size, found.st_blocks * 512)  # cut logs have holes
        return total

    def free(self, ref: AttemptRef) -> int:
        folder = self._layout.attempt(ref)
        if _alive(folder):
            return 0
        size = self.size(ref)
        shutil.rmtree(folder, ignore_errors=True)
        return size

    @contextlib.contextmanager
    def _nothing_left(self, launching: Launching) -> Iterator[Path]:
        """The folder of an attempt that is being made: deleted where that fails."""
        folder = self._layout.attempt(launching.ref)
        try:
            yield folder
        except BackendError:
            raise
        except (OSError, SgpuError) as error:
            if _launched(folder):
                return  # another sgpu finished the same launch meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, SgpuError):
                raise
            raise BackendError(
                f"`{launching.ref}` could not be started: {error}",
                hint="see that the disk has room and the project folder is writable",
                code="launch_failed",
            ) from error

    def _stage(self, launching: Launching, config: RunConfig, folder: Path) -> None:
        """Build the attempt folder; `spec.json` comes last, so a folder with one is whole."""
        from sgpu_decl.backends.calling import write_call
        from sgpu_decl.backends.entering import write_entrypoints
        from sgpu_decl.backends.local.specifying import specify
        from sgpu_decl.backends.local.tracking import prepare_tracker

        if folder.exists():
            if _launched(folder):
                raise BackendError(
                    f"`{folder}` holds another launch of this run, which this state does not know",
                    hint="bring back the state it belongs to, or move the folder away",
                    code="folder_taken",
                )
            shutil.rmtree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(mode=0o700)
        (folder / "output").mkdir(mode=0o700)
        if launching.code_digest is not None:
            self._store.materialize(launching.code_digest, folder / "code")
        else:
            (folder / "code").mkdir(mode=0o700)
        self._link(launching, config, folder / "code")
        if launching.call is not None:
            write_call(folder, launching.call)
        tree = self._tree(launching)
        if tree is not None:  # Python remembers folders of its path that are not there
            (folder / "site").mkdir(mode=0o700)
        python = str(tree / "bin" / "python") if tree else self._interpreter(launching, config)
        tracker = prepare_tracker(
            folder,
            config=config,
            launching=launching,
            project=self._project,
            home=self._layout.state_dir.parent,
            python=python,
        )
        spec = specify(
            launching,
            config,
            layout=self._layout,
            project=self._project,
            python=python,
            tree=tree,
            devices=[device.index for device in visible_devices(self._environ)],
            tracker=tracker,
        )
        write_entrypoints(folder, spec)

    def _tree(self, launching: Launching) -> Path | None:
        """The declared environment: looked at once for all launches of an apply, and made where
        a crash left a launch without it."""
        digest = launching.environment_digest
        if digest is not None and digest not in self._trees:
            self.equip([launching], Quiet())
        return self._trees[digest] if digest is not None else None

    def _interpreter(self, launching: Launching, config: RunConfig) -> str:
        folder = (self._project / launching.owner).parent
        found = interpreter_of(config.env.python, folder)
        if found is None:
            raise BackendError(
                f"this machine has no Python `{config.env.python}`",
                hint="install it on the PATH, or name an interpreter by its path",
                code="python_missing",
            )
        return found.executable

    def _link(self, launching: Launching, config: RunConfig, code: Path) -> None:
        root = ((self._project / launching.owner).parent / (config.code.root or ".")).resolve()
        for relative in config.code.link:
            link = code / relative
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(root / relative)

    def _links(self, folder: Path) -> dict[str, Json]:
        links: dict[str, Json] = {"folder": str(folder), "output": str(folder / "output")}
        try:
            tracked = json.loads((folder / "mlflow.json").read_bytes())
        except (OSError, ValueError):
            return links
        return {**links, "mlflow": tracked}


def _launched(folder: Path) -> bool:
    return bool(reading.read_attempt(folder)["state"] != "staging")


def _alive(folder: Path) -> bool:
    """Whether something runs for an attempt, or waits to."""
    state = AttemptState(reading.read_attempt(folder)["state"])
    return state.active and state is not AttemptState.STAGING


def _status(ref: AttemptRef, seen: Mapping[str, Json]) -> AttemptStatus:
    failure = seen.get("class")
    exit_code = seen.get("exit_code")
    return AttemptStatus(
        ref=ref,
        state=AttemptState(str(seen["state"])),
        started_at=_time(seen.get("started_at")),
        ended_at=_time(seen.get("ended_at")),
        exit_code=exit_code if isinstance(exit_code, int) else None,
        failure=FailureClass(failure)
        if isinstance(failure, str) and failure in set(FailureClass)
        else None,
    )


def _time(text: Json) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
