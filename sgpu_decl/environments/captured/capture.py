"""Captures the environment of an interpreter: its manifest, and where each file lies now."""

import contextlib
import gc
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.content.manifest import BadManifest, File, FileKind, Manifest, check_path
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors, in_order
from sgpu_decl.environments.captured.distributions import listed_files, packages
from sgpu_decl.environments.captured.file_readers import Destination, read
from sgpu_decl.environments.captured.file_walk import WalkEntry, WalkResult, walk
from sgpu_decl.environments.captured.file_worker import FileStat, Form, Problem, ReadJob, Reply
from sgpu_decl.environments.captured.interpreter_facts import (
    InterpreterFacts,
    UnusableInterpreter,
    ask,
)
from sgpu_decl.environments.captured.outcome_cache import CaptureOutcome, fingerprint
from sgpu_decl.environments.captured.site_layout import Layout, lay_out
from sgpu_decl.environments.captured.stat_cache import StatCache, default_cache
from sgpu_decl.model.step_progress import Progress

TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One environment as it is now.

    Attributes:
        digest: that of the manifest.
        base: the interpreter outside of any virtual environment.
        sources: tree paths to absolute paths, without bytecode.
        written: tree paths to contents, for the few files that exist nowhere on the disk.
    """

    manifest: Manifest
    digest: str
    interpreter: str
    base: str
    magic: bytes
    sources: Mapping[str, str]
    new_contents: Mapping[str, bytes]


def capture(
    interpreter: str,
    *,
    program: str | None = None,
    progress: Progress,
    cache: Path | None = None,
    into: Destination | None = None,
) -> tuple[Captured | None, tuple[Diagnostic, ...]]:
    """Capture the environment of an interpreter without changing it.

    Args:
        interpreter: its path; the interpreter of this process is not started again.
        program: the program that is run in its place, see `ask`.
        cache: a folder for the digests of unchanged files; that of the user if left out.
        into: where files that are read are copied to in the same pass.

    Returns:
        The environment, or `None` where something is wrong, and the findings.

    Raises:
        SgpuError: the store is full or cannot be written, or a process that reads was killed.
    """
    facts = ask(interpreter, program)
    if isinstance(facts, UnusableInterpreter):
        return None, (facts.diagnostic,)
    with _without_collector():
        for _ in range(TRIES):
            memory = StatCache(cache or default_cache(), facts.executable, facts.magic)
            attempt = _Attempt(facts, memory, progress, into)
            result = attempt.run()
            if not attempt.is_stale:
                break
        else:
            attempt.findings.append(_moving(facts.executable))
    findings = in_order(attempt.findings)
    return (None if has_errors(findings) else result), findings


_FOLDER = "d"  # the kind of cache entry for the names in a folder


class _BytecodeFile(NamedTuple):
    """A pyc file and its source. `facts` are those of its folder: interpreters replace such files
    and never write them in place."""

    tree: str
    path: str
    facts: FileStat
    source: WalkEntry


def _bytecode_files(
    interpreter: InterpreterFacts, walk: WalkResult, cache: StatCache
) -> list[_BytecodeFile]:
    """List the pyc files of the interpreter's own version beside captured sources."""
    ending = f".{interpreter.cache_tag}.pyc"
    sources = {look.tree: look for look in walk.entries if look.tree.endswith(".py")}
    files = []
    for tree, folder, _, _, facts in walk.caches:
        names_there = cache.recall(_FOLDER, folder, facts)
        if names_there is None:
            try:
                names = sorted(name for name in os.listdir(folder) if name.endswith(ending))
            except OSError:  # the missing bytecode is compiled again
                cache.doubt()
                continue
            cache.remember(_FOLDER, folder, facts, "\0".join(names), len(names))
        else:
            names = names_there[0].split("\0") if names_there[1] else []
        beside = tree.removesuffix("__pycache__/")
        for name in names:
            source = sources.get(f"{beside}{name[: -len(ending)]}.py")
            if source is not None:
                files.append(_BytecodeFile(tree + name, folder + name, facts, source))
    return files


class _Attempt:
    """One attempt to capture. `is_stale`: packages were installed or removed meanwhile."""

    def __init__(
        self,
        interpreter: InterpreterFacts,
        memory: StatCache,
        progress: Progress,
        into: Destination | None,
    ) -> None:
        self._interpreter = interpreter
        self._memory = memory
        self._progress = progress
        self._into = into
        self._contents: dict[tuple[str, str], tuple[str, int]] = {}  # digest and size
        self.findings: list[Diagnostic] = []
        self.is_stale = False

    def run(self) -> Captured | None:
        layout = lay_out(self._interpreter)
        before = _times(layout)
        walked = walk(layout)
        if has_errors(walked.findings):
            self.findings += [*layout.findings, *walked.findings]
            return None
        walked.entries += listed_files(layout)
        walked.entries.sort()
        self.findings += [*layout.findings, *walked.findings]
        key = fingerprint(self._interpreter, layout, walked)
        outcome = self._memory.outcome(key)
        is_known = outcome is not None
        if outcome is None:
            outcome = self._outcome(layout, walked)
        self.findings += outcome.findings
        self.is_stale = self.is_stale or _times(layout) != before
        if not (is_known or self.is_stale or has_errors(self.findings)):
            self._memory.keep_outcome(key, outcome)
        return Captured(
            manifest=outcome.manifest,
            digest=outcome.digest,
            interpreter=self._interpreter.executable,
            base=self._interpreter.base,
            magic=self._interpreter.magic,
            sources=_sources(walked),
            new_contents=layout.new_contents,
        )

    def _outcome(self, layout: Layout, walked: WalkResult) -> CaptureOutcome:
        pyc = {
            item.source.tree: item
            for item in _bytecode_files(self._interpreter, walked, self._memory)
        }
        self._read(walked, pyc)
        paths = {look.path for look in walked.entries} | {item.path for item in pyc.values()}
        self._memory.keep_files(paths | {cache.path for cache in walked.caches})
        return self._put_together(layout, walked, pyc)

    def _read(self, walked: WalkResult, pyc: Mapping[str, _BytecodeFile]) -> None:
        """Read the files whose digests are not in the cache."""
        jobs: dict[ReadJob, int] = {}
        bytecode_jobs: dict[str, _BytecodeFile] = {}
        recall, contents, magic = self._memory.recall, self._contents, self._interpreter.magic
        for tree, path, kind, how, facts in walked.entries:
            content = recall(how, path, facts)
            if content is None:
                jobs[ReadJob(path, how, 0o555 if kind == FileKind.EXECUTABLE else 0o444)] = facts[0]
            else:
                contents[how, path] = content
            bytecode = pyc.get(tree)
            if bytecode is not None:
                content = recall(Form.BYTECODE, bytecode.path, bytecode.facts, facts)
                if content is None:
                    bytecode_jobs[bytecode.path] = bytecode
                    jobs[ReadJob(bytecode.path, Form.BYTECODE, 0o444, "", path, magic)] = facts[0]
                else:
                    contents[Form.BYTECODE, bytecode.path] = content
        phase, total = "copying" if self._into else "reading", sum(jobs.values())
        for job, reply in read(
            list(jobs.items()), self._into, lambda done: self._progress.advance(phase, done, total)
        ):
            if not reply.problem:
                file = bytecode_jobs.get(job.path) if job.how == Form.BYTECODE else None
                self._learn(job, reply, file)
            elif job.how == Form.BYTECODE:
                self._memory.doubt()
            else:
                self._say(job.path, reply)

    def _learn(self, job: ReadJob, reply: Reply, bytecode: _BytecodeFile | None) -> None:
        self._contents[job.how, job.path] = (reply.digest, reply.size)
        facts, source = (bytecode.facts, bytecode.source.facts) if bytecode else (reply.facts, None)
        self._memory.remember(job.how, job.path, facts, reply.digest, reply.size, source)

    def _put_together(
        self, layout: Layout, walked: WalkResult, pyc: Mapping[str, _BytecodeFile]
    ) -> CaptureOutcome:
        files: dict[str, File] = {}
        bytecode = []
        contents = self._contents
        for tree, path, kind, how, _ in walked.entries:
            content = contents.get((how, path))
            if content is None or tree in files:
                continue
            files[tree] = File(tree, kind, content[1], content[0])
            pyc_file = pyc.get(tree)
            content = contents.get((Form.BYTECODE, pyc_file.path)) if pyc_file else None
            if pyc_file and content and content[0]:
                bytecode.append(File(pyc_file.tree, FileKind.FILE, content[1], content[0]))
        for tree, data in layout.new_contents.items():
            files[tree] = File(tree, FileKind.FILE, len(data), hashlib.sha256(data).hexdigest())
        dangling = _link(walked, files)
        installed, broken = packages(layout.sites, files, _sources(walked), self._memory)
        self._memory.keep_names()
        manifest = Manifest(
            self._interpreter.python,
            tuple(layout.sites),
            installed,
            tuple(sorted(files.values())),
            tuple(sorted(bytecode)),
        )
        findings = (*dangling, *broken, *_collisions(files))
        return CaptureOutcome(manifest, manifest.digest, findings)

    def _say(self, path: str, reply: Reply) -> None:
        if reply.problem == Problem.GONE:
            self.is_stale = True  # packages are being installed: try again
            return
        if reply.problem == Problem.MOVING:
            code = "environment_moving"
            summary = f"`{path}` of the environment changes while it is read"
            hint = "wait until nothing writes to it, or move it out of the folder of packages"
        else:
            code = "environment_unreadable"
            summary = f"`{path}` of the environment cannot be read: {os.strerror(reply.errno)}"
            hint = "mend its permissions, or uninstall the package that brought it"
        self.findings.append(Diagnostic(code=code, summary=summary, hint=hint))


def _sources(walked: WalkResult) -> dict[str, str]:
    """Where each file lies. Of equal tree paths the first counts."""
    return {entry.tree: entry.path for entry in reversed(walked.entries)}


def _link(walked: WalkResult, files: dict[str, File]) -> list[Diagnostic]:
    """Add the links. Returns warnings for links whose targets are left out."""
    dangling: list[Diagnostic] = []
    if not walked.links:
        return dangling
    paths = {*files, *(tree for tree, _ in walked.links)}
    for path in tuple(paths):
        while path := path.rpartition("/")[0]:
            paths.add(path)
    for tree, target in walked.links:
        if target not in paths:
            dangling.append(
                Diagnostic(
                    code="link_dangling",
                    severity=Severity.WARNING,
                    summary=f"`{tree}` is left out: it links to `{target}`, which is left out",
                )
            )
            continue
        relative = os.path.relpath(target, os.path.dirname(tree))
        files.setdefault(tree, File(tree, FileKind.LINK, 0, relative))
    return dangling


def _times(layout: Layout) -> list[int]:
    """The modification times of the package folders, which installers change."""
    return [
        os.stat(root.path).st_mtime_ns if os.path.isdir(root.path) else 0
        for root in layout.roots
        if not root.project
    ]


def _moving(executable: str) -> Diagnostic:
    return Diagnostic(
        code="environment_moving",
        summary=f"packages of `{executable}` come and go while they are read",
        hint="wait until nothing is being installed, and try again",
    )


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Switch the garbage collector off: nothing here makes cycles, and searching a million tuples
    for them would double the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _collisions(paths: Collection[str]) -> tuple[Diagnostic, ...]:
    """The errors for paths that a manifest would refuse.

    Args:
        paths: of files and links, each once.
    """
    folders = set()
    findings = []
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
        try:
            check_path(path)
        except BadManifest:
            findings.append(
                Diagnostic(
                    code="name_unusable",
                    summary=f"the environment has a file named {path!r}, which is not safe on "
                    "other machines",
                    hint="rename or delete it",
                )
            )
    spellings: dict[str, str] = {}
    for path in sorted({*paths, *folders}):
        other = spellings.setdefault(path.casefold(), path)
        if other != path:
            findings.append(
                Diagnostic(
                    code="names_collide",
                    summary=f"`{other}` and `{path}` differ in case alone: some file systems "
                    "take them for the same",
                    hint="uninstall one of the packages that brought them, or rename one",
                )
            )
    findings += [
        Diagnostic(
            code="names_collide",
            summary=f"`{path}` is a file of one package and a folder of another",
            hint="uninstall one of them",
        )
        for path in sorted(folders.intersection(paths))
    ]
    return tuple(findings)
