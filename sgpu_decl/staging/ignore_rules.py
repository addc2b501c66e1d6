"""The user's ignore rules for the code of a run: git's patterns, each with its place."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


class Pattern(NamedTuple):
    """One line of an ignore file; `file` is relative to the root of the code. A pattern of the YAML
    has no file."""

    text: str
    file: str | None = None
    line: int | None = None


def patterns_of(lines: Sequence[str], file: str | None = None) -> tuple[Pattern, ...]:
    """The patterns of an ignore file, or of a field of the YAML."""
    return tuple(
        Pattern(line, file, number if file is not None else None)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    )


class IgnoreRules:
    """The rules for one tree: `.gitignore` and `.sgpuignore` of every folder, and the `include` and
    `exclude` patterns of the run.

    `above` are the ignore files of the folders between the repository's top and the root, outermost
    first: each with the root's path as seen from there.
    """

    def __init__(
        self,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        above: Sequence[tuple[str, Sequence[Pattern]]] = (),
    ) -> None:
        self._reach = tuple(_literal_start(pattern) for pattern in include)
        self._above = [(path, spec) for path, rules in above if (spec := _Spec.of(rules))]
        # The user runs code in an ignored folder: it counts.
        if self._decision_above("", folder=True):
            self._above = []
        self._include = _Spec.of(patterns_of(include))
        self._exclude = _Spec.of(patterns_of(exclude))
        self._by_folder: dict[str, _Spec | None] = {}
        self._patterns: dict[str, tuple[Pattern, ...]] = {}

    def enter(self, folder: str, patterns: Sequence[Pattern]) -> None:
        """Add the rules of an ignore file of a folder; `folder` is relative, `""` the root. A
        second file of the same folder adds to the first and wins over it."""
        patterns = (*self._patterns.get(folder, ()), *patterns)
        self._patterns[folder] = patterns
        self._by_folder[folder] = _Spec.of(patterns)

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether a relative path is left out."""
        return self.pattern(path, folder=folder) is not None

    def pattern(self, path: str, *, folder: bool) -> Pattern | None:
        """The pattern that leaves a relative path out. A deeper rule wins over a higher one;
        `include` wins over all, `exclude` over ignore files."""
        if self.includes(path, folder=folder):
            return None
        probe = f"{path}/" if folder else path
        if self._exclude is not None and (excluded := self._exclude.decision(probe, None)):
            return excluded
        verdict = self._decision_above(path, folder=folder)
        if not self._by_folder:
            return verdict
        parts = path.split("/")
        for depth in range(len(parts)):
            spec = self._by_folder.get("/".join(parts[:depth]))
            if spec is not None:
                verdict = spec.decision("/".join(parts[depth:]) + ("/" if folder else ""), verdict)
        return verdict

    def includes(self, path: str, *, folder: bool) -> bool:
        """Whether `include` itself names a path."""
        probe = f"{path}/" if folder else path
        return self._include is not None and self._include.decision(probe, None) is not None

    def reaches_into(self, folder: str) -> bool:
        """Whether `include` may name something in an ignored folder, which must be walked then."""
        inside = f"{folder}/"
        return any(inside.startswith(start) or start.startswith(inside) for start in self._reach)

    def _decision_above(self, path: str, *, folder: bool) -> Pattern | None:
        verdict: Pattern | None = None
        for root, spec in self._above:
            probe = f"{root}/{path}".strip("/") + ("/" if folder else "")
            verdict = spec.decision(probe, verdict)
        return verdict


class _Spec:
    """Compiled patterns; the last one that matches decides."""

    def __init__(self, spec: "GitIgnoreSpec", patterns: Sequence[Pattern]) -> None:
        self._spec = spec
        self._patterns = patterns

    @classmethod
    def of(cls, patterns: Sequence[Pattern]) -> "_Spec | None":
        """Lines that are no patterns are ignored, as git does."""
        if not patterns:
            return None  # most trees have no rules: pathspec is not loaded
        from pathspec import GitIgnoreSpec

        try:
            spec = GitIgnoreSpec.from_lines([pattern.text for pattern in patterns])
        except (ValueError, re.error):
            patterns = [pattern for pattern in patterns if bad_pattern(pattern.text) is None]
            spec = GitIgnoreSpec.from_lines([pattern.text for pattern in patterns])
        if all(pattern.include is None for pattern in spec.patterns):
            return None
        return cls(spec, patterns)

    def decision(self, probe: str, before: Pattern | None) -> Pattern | None:
        """The pattern that leaves a path out, `None` where one takes it back; `before` where no
        pattern matches."""
        match = self._spec.check_file(probe)
        if match.include is None or match.index is None:
            return before
        return self._patterns[match.index] if match.include else None


def bad_pattern(pattern: str) -> str | None:
    """The error in a pattern; `None` if it can be used."""
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines([pattern])
    except (ValueError, re.error) as error:
        return str(error)
    return None if any(item.include is not None for item in spec.patterns) else "it matches nothing"


def _literal_start(pattern: str) -> str:
    """The common start of all paths that a pattern matches; empty if it matches at any depth."""
    plain = pattern.removeprefix("/")
    if "/" not in pattern.rstrip("/") or pattern.startswith("**"):
        return ""
    match = re.match(r"[^*?\[\\]*", plain)
    return match.group() if match else ""
