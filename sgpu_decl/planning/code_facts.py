"""The code of runs: its files, its digest, and checks that the entrypoint exists and takes the
arguments. Runs that select the same files share one snapshot."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.command_programs import ExecutedCode
from sgpu_decl.code.counted_code import CodeTree, CountedCode, RunUses
from sgpu_decl.code.file_digests import HashCache
from sgpu_decl.code.repository import repository_top
from sgpu_decl.code.selection import Exclusion, SelectionRule, exclusion_of
from sgpu_decl.code.signatures import EntrypointChecks
from sgpu_decl.code.snapshot import Snapshot, own_outputs, snapshot
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.desired import CodeFacts
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.planning.code_comparison import CodeComparison, uses_of
from sgpu_decl.planning.finding_places import from_here, placed
from sgpu_decl.planning.needed_files import (
    files_of_arguments,
    files_of_source,
    folders_of_source,
    words_of,
)

if TYPE_CHECKING:
    from sgpu_decl.code.modules import ModuleFolder
    from sgpu_decl.code.sources import Source
    from sgpu_decl.config.loaded import LoadedRun
    from sgpu_decl.config.run_blocks import Code

_OF_THE_SYSTEM = frozenset(
    Path(f"/{name}")
    for name in ("bin", "boot", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "proc",
                 "run", "sbin", "srv", "sys", "tmp", "usr", "usr/local", "var", "var/tmp",
                 "Users", "Volumes", "Library", "System", "private/tmp", "private/var")
)  # fmt: skip


class CodeReader:
    """Reads the code of a project, and collects findings about it.

    Attributes:
        by_digest: the files behind each digest.
        copies: the folder of copied modules, once `imported_modules` was called.
        values_left_out: the files of values that only this command keeps out of the code.
        counted: what counts of the code behind a digest, for each way in which runs use it; the
            first such run has the name.
    """

    def __init__(
        self,
        project: Path,
        folder: Path,
        shown: str,
        store: CodeStore,
        progress: Progress | None = None,
        *,
        owners: Sequence[Path] = (),
        values: Sequence[Path] = (),
    ) -> None:
        """`shown` is the run or project file, `folder` what its paths start from, and `owners` all
        files of the project, which are no code. Neither are `values`, the files of `--var-file`.
        `progress` is told how much of the code has been read."""
        self._progress = progress
        self._project = project
        self._folder = folder
        self._shown = shown
        self._owners = owners
        self._values = values
        self._store = store
        self._roots: dict[Code, Path] = {}
        self._snapshots: dict[Code, Snapshot | None] = {}
        self._refused: set[Code] = set()
        self._searched: dict[tuple[object, ...], list[Diagnostic]] = {}
        self._executed: dict[Path, ExecutedCode] = {}
        self._checks: dict[Path, EntrypointChecks] = {}
        self._lacking: dict[str, dict[str, bool]] = {}
        self._left_out: dict[tuple[str, str], tuple[Diagnostic, ...]] = {}
        self._facts: dict[object, CodeFacts] = {}
        self._trees: dict[str, CodeTree] = {}
        self._cache = HashCache.open()
        self.findings: list[Diagnostic] = []
        self.by_digest: dict[str, Snapshot] = {}
        self.copies: ModuleFolder | None = None
        self.values_left_out: set[Path] = set()
        self.counted: dict[str, dict[str, tuple[str, CountedCode]]] = {}

    def code_of(self, run: "LoadedRun") -> Snapshot | None:
        """The code of a run as it is now; `None` if something is wrong with it."""
        block = run.config.code
        code = self._snapshots.get(block)
        if code is None and block not in self._snapshots and not self._is_refused(run):
            outside = _outside(self._project, self.root(block))
            self.findings.extend(placed(outside, run.places, "code.root"))
            code, findings = snapshot(
                self.root(block),
                include=tuple(block.include),
                exclude=tuple(block.exclude),
                link=tuple(block.link),
                owners=(*self._owners, *self._values),
                outputs=own_outputs(),
                cache=self._cache,
                progress=self._progress,
            )
            self._snapshots[block] = code
            self.findings.extend(placed(findings, run.places, "code"))
            if code is not None:
                self.by_digest[code.digest] = code
                self.findings.extend(_left_out(code))
                self._note_values(block)
        return code

    def _is_refused(self, run: "LoadedRun") -> bool:
        """Whether the root of a run's code cannot be meant; it is named once and not read."""
        block = run.config.code
        if block in self._snapshots:
            return block in self._refused
        finding = _too_wide(self._project, self.root(block), named=block.root is not None)
        if finding is None:
            return False
        self._snapshots[block] = None
        self._refused.add(block)
        self.findings.extend(placed([finding], run.places, "code.root"))
        return True

    def _note_values(self, block: "Code") -> None:
        """Warn of files of values that are code for commands that do not name them."""
        root = self.root(block)
        for file in self._values:
            if file in self.values_left_out or not file.is_relative_to(root):
                continue
            path = file.relative_to(root).as_posix()
            rules = {"include": block.include, "exclude": block.exclude, "link": block.link}
            if exclusion_of(root, path, owners=self._owners, **rules) is None:
                self.values_left_out.add(file)
                self.findings.append(_values_among_code(root, path))

    def imported_modules(self, path: Sequence[str]) -> Snapshot:
        """Copies of the modules that this process has imported from the folders of `path`, as code.
        They exist as long as `copies` does."""
        from sgpu_decl.code.modules import ModuleFolder, own_modules, snapshot_of

        self.copies = ModuleFolder()
        code = snapshot_of(own_modules(path), self.copies.folder)
        self.by_digest[code.digest] = code
        return code

    def root(self, block: "Code") -> Path:
        """The folder that the paths of a `code` block start from."""
        root = self._roots.get(block)
        if root is None:
            root = self._roots[block] = (self._folder / (block.root or ".")).resolve()
        return root

    def facts(
        self, run: "LoadedRun", code: Snapshot, earlier: Sequence[LaunchInputs], *, called: bool
    ) -> CodeFacts:
        """The facts that planning compares.

        Args:
            earlier: the launches of the run to compare with, the last one first.
            called: whether the code is what a called function needs: all of it counts.
        """
        if code.digest not in self._trees:
            self._trees[code.digest] = CodeTree(code)
        tree = self._trees[code.digest]
        uses = RunUses(everything=True) if called else uses_of(run.config, tree)
        records = tuple((inputs.code_digest, inputs.counted) for inputs in earlier)
        key = (code.digest, uses, records)
        if key not in self._facts:
            compared = CodeComparison(self._store, tree, uses, earlier)
            self.findings.extend(compared.findings())
            self._note_counted(code, run, compared.counted)
            self._facts[key] = CodeFacts(
                digest=code.digest,
                files=len(code.entries),
                bytes=sum(entry.size for entry in code.entries),
                left_out=code.left_out,
                changed=compared.changed,
                counted=compared.counted.record,
                same=compared.same,
            )
        return self._facts[key]

    def _note_counted(self, code: Snapshot, run: "LoadedRun", counted: CountedCode) -> None:
        known = self.counted.setdefault(code.digest, {})
        known.setdefault(counted.record, (run.address.name, counted))

    def check_entrypoint(
        self, run: "LoadedRun", code: Snapshot | None, installed: Callable[[str], bool]
    ) -> None:
        """Check a run's entrypoint and arguments.

        Args:
            installed: says whether ranks may find a top-level package outside of the code.
        """
        if run.config.entrypoint is None and run.config.args is None:
            return
        if self._is_refused(run):
            return
        root = self.root(run.config.code)
        if code is not None:
            left_out = self._entrypoint_left_out(root, run.config.entrypoint or "", code)
            self.findings.extend(placed(left_out, run.places, "entrypoint"))
        if root not in self._checks:
            self._checks[root] = EntrypointChecks(root)
        self.findings.extend(entrypoint_findings(run, self._checks[root], self._shown, installed))

    def _entrypoint_left_out(
        self, root: Path, entrypoint: str, code: Snapshot
    ) -> tuple[Diagnostic, ...]:
        key = (code.digest, entrypoint)
        if key not in self._left_out:
            self._left_out[key] = _entrypoint_left_out(root, entrypoint, code)
        return self._left_out[key]

    def check_files(self, run: "LoadedRun", code: Snapshot) -> None:
        """Warn of files that a run reads and that are not part of its code. Runs that share their
        source are searched once."""
        config = run.config
        words = words_of(config.command)
        lacking = self._lacking.setdefault(code.digest, {})

        def lacks(path: str) -> bool:
            if path not in lacking:
                file = os.path.join(code.root, path)
                lacking[path] = os.path.isfile(file) and not code.takes(os.path.normpath(path))
            return lacking[path]

        findings = list(
            files_of_arguments(config, words, partial(place_of, run.places), code, lacks)
        )
        started = (config.entrypoint,) if config.entrypoint is not None else _scripts_among(words)
        key = (code.digest, started, config.backend.kind)
        if key not in self._searched:
            executed = self.executed(code, started)
            self._searched[key] = [
                *files_of_source(executed, config, code),
                *folders_of_source(executed, code),
            ]
        findings += self._searched[key]
        if findings:
            root = self.root(config.code)
            self.findings += [from_here(root, finding, self._shown) for finding in findings]

    def executed(self, code: Snapshot, started: Iterable[str]) -> "tuple[Source, ...]":
        """The files of the code that entrypoints, scripts and modules execute."""
        if code.root not in self._executed:
            self._executed[code.root] = ExecutedCode(code.root)
        return self._executed[code.root].of(started)

    def save(self) -> None:
        """Write the digests of files to the cache."""
        self._cache.save()


def _scripts_among(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word.endswith(".py"))


def _too_wide(project: Path, root: Path, *, named: bool) -> Diagnostic | None:
    """The finding about a root that holds more than anybody's code: a whole disk, a folder of the
    system, or a home folder that is not the project itself.

    Args:
        named: whether `code.root` names it.
    """
    home = Path(os.path.realpath(Path.home()))
    if root == Path(root.anchor):
        what = "the whole file system"
    elif not named or project == root:
        return None
    elif root in _OF_THE_SYSTEM:
        what = "a folder of the system"
    elif root != home and home.is_relative_to(root):
        what = "a folder of home folders"
    elif root == home:
        what = "the home folder"
    elif os.path.ismount(root) and repository_top(root) != root:
        what = "a whole disk"
    else:
        return None
    return Diagnostic(
        code="code_root_too_wide",
        summary=f"the root of the code is `{root}`, {what}: all files there would be copied for "
        "each attempt",
        hint="set `code.root` to the folder of your code"
        if named
        else "move the file into the folder of your code, or name that as `code.root`",
    )


def _outside(project: Path, root: Path) -> list[Diagnostic]:
    top = repository_top(project) or project
    if root.is_relative_to(project) or root.is_relative_to(top):
        return []
    return [
        Diagnostic(
            code="code_root_outside",
            severity=Severity.WARNING,
            summary=f"`code.root` is `{root}`, outside of the project `{project}`: all files there "
            "are copied for each attempt",
            hint="name a folder of the project, or the folder that holds both with `--project`",
        )
    ]


def entrypoint_findings(
    run: "LoadedRun", checks: EntrypointChecks, shown: str, installed: Callable[[str], bool]
) -> list[Diagnostic]:
    """What is wrong with a run's entrypoint and arguments, by the source."""
    config = run.config
    findings = checks.findings(
        config.entrypoint,
        config.command,
        config.args,
        partial(place_of, run.places),
        installed=lambda top: "PYTHONPATH" in config.env.variables or installed(top),
    )
    return [from_here(checks.root, finding, shown) for finding in findings]


def _values_among_code(root: Path, path: str) -> Diagnostic:
    option = f"--var-file {os.path.relpath(root / path)}"
    return Diagnostic(
        code="values_among_code",
        severity=Severity.WARNING,
        summary=f"`{path}` holds values of variables, and is code for each command without "
        f"`{option}`",
        place=Place(option, 1, 1),
        hint=f"add the line `/{path}` to `{os.path.relpath(root / '.sgpuignore')}`: then it is "
        "code for none",
    )


def _left_out(code: Snapshot) -> list[Diagnostic]:
    if not code.left_out:
        return []
    names = ", ".join(f"`{path}`" for path in code.left_out[:5])
    more = f" and {len(code.left_out) - 5} more" if len(code.left_out) > 5 else ""
    return [
        Diagnostic(
            code="secrets_left_out",
            severity=Severity.INFO,
            summary=f"not part of the code, since such files hold secrets: {names}{more}",
            hint="ranks get secrets through `env.secrets`",
        )
    ]


def _entrypoint_left_out(root: Path, entrypoint: str, code: Snapshot) -> tuple[Diagnostic, ...]:
    """Find an entrypoint that lies in the code root and is not part of the code. Ranks would not
    find it."""
    target = entrypoint.partition(":")[0]
    if not target.endswith(".py"):
        return ()
    whole = (root / target).resolve()
    if not whole.is_file() or not whole.is_relative_to(root):
        return ()
    inside = whole.relative_to(root).as_posix()
    if any(entry.path in (inside, target) for entry in code.entries):
        return ()
    exclusion = code.exclusion(inside)
    if exclusion is None:
        return ()
    return (
        Diagnostic(
            code="entrypoint_left_out",
            summary=f"the entrypoint `{target}` is not part of the code: {exclusion}",
            hint=_way_in(inside, exclusion),
        ),
    )


def _way_in(path: str, exclusion: Exclusion) -> str:
    """What to change so that an excluded path becomes code."""
    match exclusion.rule:
        case SelectionRule.GITIGNORE | SelectionRule.SGPUIGNORE:
            return f"add `{path}` to `code.include`, or change that line"
        case SelectionRule.EXCLUDE:
            return f"change `code.exclude`, or add `{path}` to `code.include`"
        case SelectionRule.LINK:
            return "take its folder out of `code.link`, which is for data"
        case _:
            return "move the entrypoint, or give it another name"
