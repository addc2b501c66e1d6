"""Facts before planning: what the YAML says, the digest of the code, what this machine has.

Everything here reads and nothing writes, but for the hash cache.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sgpu_decl.applying.equipping import Equipment
from sgpu_decl.applying.examining import examine, on_base
from sgpu_decl.applying.opening import Location, Opened, absolute
from sgpu_decl.applying.owning import Owners
from sgpu_decl.applying.saving import holds_plan
from sgpu_decl.backends.local.checking import check_machine
from sgpu_decl.backends.local.interpreting import has_package, interpreter_of
from sgpu_decl.config.code import Code
from sgpu_decl.config.pools import choose_pool
from sgpu_decl.config.reading import Loaded, LoadedRun, read
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors, in_order
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.known.checking import check_base
from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.desired import CodeFacts, Desired, Interpreter
from sgpu_decl.model.environment import DesiredEnvironment
from sgpu_decl.model.pool import PoolChoice
from sgpu_decl.model.state import State
from sgpu_decl.staging.hashing import HashCache
from sgpu_decl.staging.signatures import check_entrypoint
from sgpu_decl.staging.snapshot import Snapshot, changed, own_outputs, snapshot
from sgpu_decl.staging.store import Store
from sgpu_decl.text.limits import PROJECT_FILE

__all__ = ["Gathered", "gather", "git_facts", "read_bytes", "read_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a file asks for. `whole_project` is false for a run file; `config_digest` is that of the
    file; `snapshots` maps a code digest to the files behind it, for whoever pins them."""

    desired: tuple[Desired, ...] = ()
    findings: tuple[Diagnostic, ...] = ()
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    whole_project: bool = True
    config_digest: str = ""


def read_file(opened: Opened, location: Location) -> tuple[Loaded, tuple[Diagnostic, ...], str]:
    """Read and validate the file of a project.

    Returns:
        What it says, the warnings, and its text (for excerpts).

    Raises:
        NotFound: there is no file.
        InvalidInput: it is a saved plan, or holds errors; all of them are in `diagnostics`.
    """
    if opened.file is None:
        raise NotFound(
            f"there is no `sgpu.yml` and no `run.yaml` {_where(opened.root)}",
            hint="name a file, or write a first one with `sgpu init`",
        )
    if holds_plan(opened.file):
        raise InvalidInput(
            f"`{opened.shown}` is a saved plan, not a run or project file",
            hint=f"carry it out with `sgpu apply {opened.shown}`, or look at it with "
            f"`sgpu show {opened.shown}`",
        )
    raw = read_bytes(opened.file)
    loaded, findings = read(
        raw,
        opened.shown,
        target=location.target,
        variables=location.variables,
        sets=location.sets,
        environ=os.environ,
        git=lambda: git_facts(opened.root),
    )
    if loaded is None or has_errors(findings):
        raise InvalidInput(f"`{opened.shown}` is not valid", diagnostics=in_order(findings))
    return loaded, in_order(findings), raw.decode("utf-8-sig", "replace")


def _where(root: Path) -> str:
    return "here" if root == Path.cwd() else f"in `{root}`"


def gather(
    loaded: Loaded,
    *,
    opened: Opened,
    state: State,
    store: Store,
    equipment: Equipment,
    called: bool = False,
) -> Gathered:
    """Turn every run of a file into what is desired, with the digests of its code and environment.

    Cells of a matrix share one snapshot and one look at the entrypoint. The code of a run that is
    `called` is a function in memory: there is none to look at.
    """
    gathering = _Gathering(opened, state, store, equipment, called=called)
    gathering.findings.extend(_not_yet(name, place) for name, place in loaded.unsupported)
    desired = tuple(gathering.desire(run) for run in loaded.runs)
    gathering.cache.save()
    return Gathered(
        desired=desired,
        findings=in_order(gathering.findings),
        snapshots=gathering.by_digest,
        whole_project=loaded.kind == "project",
        config_digest=loaded.config_digest,
    )


class _Gathering:
    def __init__(
        self,
        opened: Opened,
        state: State,
        store: Store,
        equipment: Equipment,
        *,
        called: bool,
    ) -> None:
        self._called = called
        self._equipment = equipment
        self._opened = opened
        self._state = state
        self._store = store
        self._roots: dict[Code, Path] = {}
        self._snapshots: dict[Code, Snapshot | None] = {}
        self._facts: dict[tuple[str, str | None], CodeFacts] = {}
        self._interpreters: dict[str | None, Interpreter | None] = {}
        self._pools: dict[str | None, PoolChoice | None] = {}
        self._looked: set[tuple[object, ...]] = set()
        self._examined: set[tuple[object, ...]] = set()
        self.cache = HashCache.open()
        self.findings: list[Diagnostic] = []
        self.by_digest: dict[str, Snapshot] = {}
        assert opened.file is not None and opened.owner is not None  # noqa: S101, PT018  read_file refused already
        # What a call says of paths stands in the project's file.
        self._folder = opened.root if called else absolute(opened.file).parent
        self._owner = opened.owner
        self._owners = Owners(opened.root)

    def desire(self, run: LoadedRun) -> Desired:
        config = run.config
        code = self._code(run)
        taken = self.by_digest.get(code.digest) if code else None
        self._look(run, taken)
        interpreter = self._interpreter(config)
        environment = None
        if config.env.origins:
            environment = self._environment(run, interpreter)
        self._examine(run, taken, environment, interpreter)
        if config.env.origins or not config.entrypoint:
            interpreter = None
        return Desired(
            address=run.address,
            backend=str(config.backend.kind),
            owner=self._owner,
            spec=run.spec,
            until=str(config.until),
            on_active=str(config.on_active),
            prevent_destroy=config.lifecycle.prevent_destroy,
            ignore_changes=tuple(config.lifecycle.ignore_changes),
            code=code,
            environment=environment,
            interpreter=interpreter,
            pool=self._pool(config),
            places=run.places,
            findings=self._dispute(run.address),
        )

    def _dispute(self, address: Address) -> tuple[Diagnostic, ...]:
        resource = self._state.resources.get(address)
        if resource is None or resource.gone or resource.owner == self._owner:
            return ()
        return self._owners.dispute(address, resource.owner, self._owner)

    def _pool(self, config: RunConfig) -> PoolChoice | None:
        if str(config.backend.kind) != "databricks":
            return None
        if config.pool not in self._pools:
            self._pools[config.pool], findings = choose_pool(config.pool, os.environ)
            self.findings.extend(findings)
        return self._pools[config.pool]

    def _interpreter(self, config: RunConfig) -> Interpreter | None:
        """The Python of this machine that ranks use, or that a declared environment is made for."""
        env = config.env
        if str(config.backend.kind) != "local":
            return None
        if env.python not in self._interpreters:
            self._interpreters[env.python] = interpreter_of(env.python, self._folder)
        return self._interpreters[env.python]

    def _environment(
        self, run: LoadedRun, interpreter: Interpreter | None
    ) -> DesiredEnvironment | None:
        config = run.config
        if interpreter is None:
            return None  # said by `check_machine`
        made, findings = self._equipment.look(
            run.address,
            config.env,
            backend=str(config.backend.kind),
            owner=self._owner,
            folder=self._folder,
            places=run.places,
            interpreter=interpreter,
            limit=config.backend.environment_limit.bytes,
        )
        self.findings.extend(_placed(findings, run.places, f"env.{config.env.origins[0]}"))
        return made

    def _examine(
        self,
        run: LoadedRun,
        taken: Snapshot | None,
        environment: DesiredEnvironment | None,
        interpreter: Interpreter | None,
    ) -> None:
        """The environment against the code, once for all runs that share both."""
        config, env = run.config, run.config.env
        used = environment or interpreter
        if env.origins and environment is None:
            return  # what is wrong with it was said
        digest = environment.digest if environment else None
        given = (config.entrypoint, str(config.command), config.backend.kind, env.python)
        asked = (env.base, env.dependencies, env.requirements, "PYTHONPATH" in env.variables)
        key = (digest, taken and taken.digest, *given, *asked)
        if key in self._examined:
            return
        self._examined.add(key)
        manifest = self._equipment.manifest(digest) if digest else None
        place = _locator(run.places)
        if env.base is not None:
            packages = used.packages if used else None
            version = interpreter.version if interpreter else None
            self.findings.extend(
                check_base(
                    env,
                    lambda field: place(f"env.{field}"),
                    folder=self._folder,
                    python=manifest.python.version if manifest else version,
                    packages=packages.packages if packages else (),
                    severity=Severity.ERROR if on_base(config) else Severity.INFO,
                )
            )
        if taken is None:
            return
        found = examine(
            config,
            place,
            code=taken,
            packages=environment.packages if environment else None,
            manifest=manifest,
            importable=lambda top: interpreter is None or has_package(interpreter, top),
        )
        root = self._root(config.code)
        self.findings.extend(_from_here(root, it, self._opened.shown) for it in found)

    def _code(self, run: LoadedRun) -> CodeFacts | None:
        taken = self._snapshot(run)
        if taken is None:
            return None
        resource = self._state.resources.get(run.address)
        before = resource.last.code_digest if resource and resource.last else None
        key = (taken.digest, before)
        if key not in self._facts:
            self._facts[key] = CodeFacts(
                digest=taken.digest,
                files=len(taken.entries),
                bytes=sum(entry.size for entry in taken.entries),
                left_out=taken.left_out,
                changed=self._changed(before, taken),
            )
        return self._facts[key]

    def _changed(self, before: str | None, taken: Snapshot) -> tuple[str, ...]:
        if before is None or before == taken.digest:
            return ()
        return changed(self._store.manifest(before), taken)

    def _snapshot(self, run: LoadedRun) -> Snapshot | None:
        if self._called:
            return None
        code = run.config.code
        if code not in self._snapshots:
            taken, findings = snapshot(
                self._root(code),
                include=tuple(code.include),
                exclude=tuple(code.exclude),
                link=tuple(code.link),
                owners=(self._folder / Path(self._opened.shown).name,),
                outputs=own_outputs(),
                cache=self.cache,
            )
            self._snapshots[code] = taken
            self.findings.extend(_placed(findings, run.places, "code"))
            if taken is not None:
                self.by_digest[taken.digest] = taken
                self.findings.extend(_left_out(taken))
        return self._snapshots[code]

    def _root(self, code: Code) -> Path:
        if code not in self._roots:
            self._roots[code] = (self._folder / (code.root or ".")).resolve()
        return self._roots[code]

    def _look(self, run: LoadedRun, taken: Snapshot | None) -> None:
        """Entrypoint, arguments, secrets and machine: once for all cells that are alike."""
        config = run.config
        args = tuple(config.args) if isinstance(config.args, Mapping) else config.args is not None
        python = config.env.python
        key = (run.address.name, config.entrypoint, args, config.type.name, config.gpus, python)
        if key in self._looked:
            return
        self._looked.add(key)
        if not self._called:
            self._check_entrypoint(run, taken)
        if str(config.backend.kind) == "local":
            self.findings.extend(check_machine(config, run.places, self._folder, os.environ))

    def _check_entrypoint(self, run: LoadedRun, taken: Snapshot | None) -> None:
        config = run.config
        root = self._root(config.code)
        interpreter = self._interpreter(config)
        self.findings.extend(_check_taken(root, run, taken))
        looked = check_entrypoint(
            root,
            config.entrypoint,
            config.command,
            config.args,
            _locator(run.places),
            installed=lambda top: (
                interpreter is None
                or "PYTHONPATH" in config.env.variables
                or has_package(interpreter, top)
            ),
        )
        self.findings.extend(_from_here(root, found, self._opened.shown) for found in looked)


def _not_yet(name: str, place: Place) -> Diagnostic:
    return Diagnostic(
        code="not_yet",
        summary=f"`{name}` is valid, and this version cannot act on it yet",
        place=place,
        hint=f"take `{name}` out for now",
    )


def _left_out(taken: Snapshot) -> list[Diagnostic]:
    if not taken.left_out:
        return []
    names = ", ".join(f"`{path}`" for path in taken.left_out[:5])
    more = f" and {len(taken.left_out) - 5} more" if len(taken.left_out) > 5 else ""
    return [
        Diagnostic(
            code="secrets_left_out",
            severity=Severity.INFO,
            summary=f"not part of the code, since secrets lie in such files: {names}{more}",
            hint="ranks get secrets through `env.secrets`",
        )
    ]


def _check_taken(root: Path, run: LoadedRun, taken: Snapshot | None) -> list[Diagnostic]:
    """An entrypoint that lies in the tree and is no part of the snapshot would be missing later."""
    target = (run.config.entrypoint or "").partition(":")[0]
    if taken is None or not target.endswith(".py"):
        return []
    whole = (root / target).resolve()
    if not whole.is_file() or not whole.is_relative_to(root):
        return []
    inside = whole.relative_to(root).as_posix()
    if any(entry.path in (inside, target) for entry in taken.entries):
        return []
    return [
        Diagnostic(
            code="entrypoint_left_out",
            summary=f"the entrypoint `{target}` is left out of the code by an ignore rule",
            place=run.places.get("entrypoint"),
            hint=f"add `{inside}` to `code.include`, or mend `.gitignore` and `.sgpuignore`",
        )
    ]


def _locator(places: Mapping[str, Place]) -> Callable[[str], Place | None]:
    """A path's place, or that of the nearest path above it."""

    def locate(path: str) -> Place | None:
        while path:
            if (place := places.get(path)) is not None:
                return place
            path = path.rpartition(".")[0]
        return None

    return locate


def _placed(
    findings: Sequence[Diagnostic], places: Mapping[str, Place], path: str
) -> list[Diagnostic]:
    place = _locator(places)(path)
    return [found if found.place else replace(found, place=place) for found in findings]


def _from_here(root: Path, found: Diagnostic, shown: str) -> Diagnostic:
    """A place in a Python file is relative to the code's root; people count from where they are."""
    if found.place is None or found.place.is_option or found.place.file == shown:
        return found
    file = os.path.relpath(root / found.place.file)
    return replace(found, place=replace(found.place, file=file))


def read_bytes(file: Path) -> bytes:
    """A run or project file, or as much of one that is too large as shows that it is.

    Raises:
        NotFound: it is not there.
        SgpuError: it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            return opened.read(PROJECT_FILE.size + 1)
    except FileNotFoundError:
        raise NotFound(f"`{file}` does not exist", hint="check the path") from None
    except IsADirectoryError:
        raise SgpuError(
            f"`{file}` is a folder",
            hint=f"name a run file in it, such as `{file / 'run.yaml'}`",
            code="unreadable",
        ) from None
    except OSError as error:
        raise SgpuError(
            f"`{file}` cannot be read: {(error.strerror or str(error)).lower()}",
            hint="give a file that you may read",
            code="unreadable",
        ) from None


def git_facts(root: Path) -> Mapping[str, str]:
    """`commit`, `branch` and `dirty` of the checkout, for `${git.…}`; empty outside of one."""

    import subprocess

    def ask(*words: str) -> str | None:
        try:
            asked = subprocess.run(
                ["git", "-C", os.fspath(root), *words],
                capture_output=True,
                text=True,
                timeout=5,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return asked.stdout.strip() if asked.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return {}
    dirty = ask("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "branch": ask("rev-parse", "--abbrev-ref", "HEAD") or "",
        "dirty": "true" if dirty else "false",
    }
