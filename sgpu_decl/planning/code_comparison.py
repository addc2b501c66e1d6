"""What of a run's code counts, and which earlier code differs in nothing that counts."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.counted_code import CodeTree, RunUses, counted_code, kinds_of
from sgpu_decl.code.file_digests import digest_file
from sgpu_decl.code.selection import SelectionRule, never_code
from sgpu_decl.code.snapshot import Snapshot, changed
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.launch import LaunchInputs

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_SHOWN = 5
_NO_CODE_NOW = frozenset({SelectionRule.NEVER, SelectionRule.ENVIRONMENT, SelectionRule.TOOL})


def uses_of(config: "RunConfig", tree: CodeTree) -> RunUses:
    """What a run uses of its code, by its file."""
    fields: tuple[tuple[str, object], ...] = (
        ("args", config.args),
        ("parameters", config.parameters),
        ("env.variables", config.env.variables),
    )
    return tree.uses(
        entrypoint=config.entrypoint,
        command=config.command,
        words=(item for name, value in fields for item in _texts(name, value)),
        include=tuple(config.code.include),
        everything=config.code.count == "all",  # whose class is not imported for a plan again
    )


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(f"{name}.{key}", below)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _texts(name, below)


class CodeComparison:
    """The code of one run beside that of earlier launches.

    Attributes:
        counted: what counts of the code as it is.
        same: the digests of code launched earlier that differs in nothing that counts, each with
            what its record says of that.
        changed: the files that count and differ from the code of the last launch.
        uncounted: those that differ and do not count.
    """

    def __init__(
        self, store: CodeStore, tree: CodeTree, uses: RunUses, earlier: Iterable[LaunchInputs]
    ) -> None:
        """`earlier` are the launches to compare with, the last one first."""
        self._code, self._uses = tree.code, uses
        self.counted = counted_code(tree, uses)
        self.changed: tuple[str, ...] = ()
        self.uncounted: tuple[str, ...] = ()
        same: dict[tuple[str, str | None], None] = {}
        for number, inputs in enumerate(earlier):
            if inputs.code_digest is None:
                continue
            record = (inputs.code_digest, inputs.counted)
            if inputs.code_digest == tree.code.digest:
                if inputs.counted != self.counted.record:
                    same[record] = None
                continue
            before = store.manifest(inputs.code_digest)
            left = frozenset(self._left_out_now(before))
            counting, others = self._differences(before, left, is_old=inputs.counted is None)
            if number == 0:
                self.changed, self.uncounted = counting, others
            by_other_rules = inputs.counted is None or left or tree.code.git_lacks
            if inputs.counted == self.counted.record or (
                by_other_rules and before is not None and not counting
            ):
                same[record] = None
        self.same = tuple(same)

    def findings(self) -> Iterator[Diagnostic]:
        """What a plan says of files that changed since the last launch."""
        if self.uncounted:
            shown = ", ".join(f"`{path}`" for path in self.uncounted[:_SHOWN])
            rest = len(self.uncounted) - _SHOWN
            one = len(self.uncounted) == 1
            yield Diagnostic(
                code="changes_uncounted",
                severity=Severity.INFO,
                summary=f"{len(self.uncounted)} changed {'file does' if one else 'files do'} not "
                f"count: {shown}{f' and {rest} more' if rest > 0 else ''}",
                hint="`sgpu plan --files` says why; `code: {count: all}` lets every file count",
            )
        reached = self.counted.reached
        exceptions = [path for path in self.changed if path in reached]
        for path in exceptions[:_SHOWN]:
            yield Diagnostic(
                code="change_reached",
                severity=Severity.INFO,
                summary=f"the change of `{path}` counts: {reached[path]}",
            )
        if self.changed and self.counted.unclear is not None:
            yield Diagnostic(
                code="all_code_counts",
                severity=Severity.INFO,
                summary=f"every file of the code counts: {self.counted.unclear}",
            )

    def _differences(
        self, before: Snapshot | None, left: Collection[str], *, is_old: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The files that differ: those that count, and the others; nothing for unknown code.

        Args:
            left: the files that are no code by the rules of this version.
            is_old: whether an older version launched it, which chose the files of code otherwise.
        """
        paths = tuple(path for path in changed(before, self._code) if path not in left)
        if not paths or before is None:
            return (), ()
        digests = {entry.path: entry.digest for entry in before.entries}
        now = {entry.path for entry in self._code.entries}
        if self._code.git_lacks:
            paths = tuple(
                path for path in paths if path in now or not self._is_unsure(path, digests[path])
            )
        if is_old:
            paths = tuple(
                path
                for path in paths
                if not self._is_chosen_anew(path, digests.get(path), is_here=path in now)
            )
        gone = [path for path in paths if path not in now]
        uncounted: Mapping[str, str] = self.counted.uncounted
        if gone and not self._uses.everything and kinds_of((*digests, *now)).keys() & set(gone):
            uncounted = counted_code(CodeTree(self._code, gone), self._uses).uncounted
        return (
            tuple(path for path in paths if path not in uncounted),
            tuple(path for path in paths if path in uncounted),
        )

    def _left_out_now(self, before: Snapshot | None) -> Iterator[str]:
        """The files of an earlier launch that an older version took for code and this one takes for
        what tools leave. Those that are gone are known by their names."""
        now = {entry.path for entry in self._code.entries}
        for path in changed(before, self._code):
            if path in now:
                continue
            exclusion = self._code.exclusion(path)
            if exclusion is not None:
                leaves = exclusion.rule in _NO_CODE_NOW
            else:
                name = path.rpartition("/")[2]
                leaves = not self._uses.include and never_code(name, folder=False)
            if leaves:
                yield path

    def _is_chosen_anew(self, path: str, digest: str | None, *, is_here: bool) -> bool:
        """Whether a file differs only since other files are chosen now than by older versions."""
        if is_here:
            anew = self._code.taken_anew
            return digest is None and any(path == one or path.startswith(f"{one}/") for one in anew)
        exclusion = self._code.exclusion(path)
        if exclusion is None:
            return False
        file = exclusion.pattern.file if exclusion.pattern is not None else None
        return file is not None and os.path.isabs(file) and self._is_as_before(path, digest)

    def _is_unsure(self, path: str, digest: str) -> bool:
        """Whether a file that is no code now may be left out only since git could not be asked."""
        exclusion = self._code.exclusion(path)
        ignored = exclusion is not None and exclusion.rule is SelectionRule.GITIGNORE
        return ignored and self._is_as_before(path, digest)

    def _is_as_before(self, path: str, digest: str | None) -> bool:
        try:
            return digest_file(os.fspath(self._code.root / path)) == digest
        except OSError:
            return False
