"""The rules that decide which paths of a tree are ignored, level by level as git judges them."""

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.code.git_patterns import Pattern, PatternList, patterns_of
from sgpu_decl.code.repository import Repository, repository_top
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.regular_files import leads_out, read_regular

RULES = (".gitignore", ".sgpuignore")

_ALL = re.compile(r"!?(.*/)?\*\*?/?")


@dataclass(frozen=True, slots=True)
class _Layer:
    """One ignore file. `base` is the path from its folder to the root of the code, for a file above
    the root; `of_git` is false for a `.sgpuignore`."""

    patterns: PatternList
    base: str = ""
    of_git: bool = True

    def match(self, path: str, *, folder: bool, tracked: bool) -> Pattern | None:
        whole = f"{self.base}/{path}" if self.base else path
        return self.patterns.match(whole, folder=folder, without=tracked and self.of_git)


class IgnoreRules:
    """The rules for one tree: `.gitignore` and `.sgpuignore` of every folder, what git ignores in
    the whole repository, and the `include` and `exclude` patterns of the run. A path is judged by
    its own name alone: whoever walks the tree does not enter a folder that is ignored.

    Args:
        root: the folder of the code; absolute.
        whole_repository: whether more than the ignore files in folders counts: the index, whose
            files git never ignores, and what git is configured to ignore.

    Attributes:
        taken_anew: files and folders that older versions left out: what git tracks and ignores, and
            folders that a pattern takes back after `*`.
    """

    def __init__(
        self,
        root: Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        whole_repository: bool = True,
        progress: Progress | None = None,
    ) -> None:
        self._progress = progress
        self._root = Path(os.path.realpath(root))
        self._reach = tuple(_literal_start(pattern) for pattern in include)
        self._include = PatternList(patterns_of(include))
        self._exclude = PatternList(patterns_of(exclude))
        self._whole = whole_repository
        self._layers: dict[str, tuple[_Layer, ...]] = {}
        self._repositories: dict[str, Repository] = {}
        self._tracked: dict[str, Mapping[str, bool]] = {}
        self._above: tuple[_Layer, ...] = ()
        self.taken_anew: set[str] = set()
        top = repository_top(self._root)
        if top is not None:
            self._repositories[""] = Repository(top, progress)
        if top is not None and top != self._root:
            self._above = tuple(self._layers_above(top))

    def enter(self, folder: str, names: Collection[str]) -> None:
        """Add the rules of a folder that holds `names`; `folder` is relative, `""` the root.

        Raises:
            OSError: an ignore file cannot be read, or is a link that leads out of the project.
                `filename` is its path, relative to the root.
        """
        whole = self._root / folder
        if ".git" in names and folder:
            self._repositories[folder] = Repository(whole, self._progress)
        repository = self._repository(folder)
        case = self._whole and repository is not None and repository[1].ignore_case
        top = repository[1].top if repository else self._root
        layers = []
        for name in reversed(RULES):
            if name in names:
                shown = f"{folder}/{name}".lstrip("/")
                text = _text_of(whole / name, self._top_of_all(top), shown)
                patterns = PatternList(patterns_of(text, shown), ignore_case=case)
                layers.append(_Layer(patterns, of_git=name == RULES[0]))
        if self._whole and repository is not None and repository[1].top == whole:
            layers += _of_repository(repository[1], "")
        if layers:
            self._layers[folder] = tuple(layers)

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether a relative path is left out."""
        return self.pattern(path, folder=folder) is not None

    def pattern(self, path: str, *, folder: bool, git: bool = True) -> Pattern | None:
        """The pattern that leaves an entry out. A deeper ignore file wins over a higher one;
        `include` wins over all, `exclude` over ignore files.

        Args:
            git: whether git's own rules count.
        """
        if self.includes(path, folder=folder):
            return None
        excluded = self._exclude.match(path, folder=folder)
        if excluded is not None and not excluded.negative:
            return excluded
        tracked = not git
        for layer, inside in self._deciding(path):
            found = layer.match(inside, folder=folder, tracked=tracked)
            if found is not None and not found.negative and layer.of_git:
                if not self._is_tracked(path, folder=folder):
                    return found
                self.taken_anew.add(path)
                tracked = True
                found = layer.match(inside, folder=folder, tracked=True)
            if found is not None:
                if found.negative and folder:
                    self._note_taken_back(layer, inside, found, path)
                return None if found.negative else found
        return None

    def includes(self, path: str, *, folder: bool) -> bool:
        """Whether `include` names a path, or a folder above it."""
        deciding = None
        while path and deciding is None:
            deciding = self._include.match(path, folder=folder)
            path, folder = path.rpartition("/")[0], True
        return deciding is not None and not deciding.negative

    def names(self, path: str) -> bool:
        """Whether `include` means this very file: more of its name is written than `*`."""
        deciding = self._include.match(path, folder=False)
        return (
            deciding is not None
            and not deciding.negative
            and deciding.text.rpartition("/")[2].strip("*") != ""
        )

    def reaches_into(self, folder: str) -> bool:
        """Whether `include` may name something in an ignored folder, or git tracks something there:
        it must be walked then."""
        inside = f"{folder}/"
        if any(inside.startswith(start) or start.startswith(inside) for start in self._reach):
            return True
        return self.tracks(folder)

    def tracks(self, path: str) -> bool:
        """Whether git tracks a path, or something below it."""
        tracked = self._index_of(path)
        return tracked is None or path in tracked

    def is_submodule(self, path: str) -> bool:
        """Whether a folder is that of a submodule."""
        tracked = self._index_of(path)
        return tracked is not None and tracked.get(path, False)

    @property
    def lacking(self) -> Mapping[str, str]:
        """The checkouts whose git could not be asked up to now, each with the reason."""
        repositories = self._repositories.items()
        return {folder: one.lacking for folder, one in repositories if one.lacking is not None}

    def _is_tracked(self, path: str, *, folder: bool) -> bool:
        """A folder is tracked as a submodule alone."""
        tracked = self._index_of(path)
        return tracked is None or (path in tracked and (not folder or tracked[path]))

    def _index_of(self, path: str) -> Mapping[str, bool] | None:
        """What the repository around a path tracks, by paths from the root; `None` for all."""
        found = self._repository(path.rpartition("/")[0]) if self._whole else None
        if found is None:
            return {}
        folder, repository = found
        if repository.all_tracked:
            return None
        if folder not in self._tracked:
            inside = repository.tracked(self._root / folder)
            start = f"{folder}/" if folder else ""
            self._tracked[folder] = {f"{start}{one}": is_link for one, is_link in inside.items()}
        return self._tracked[folder]

    def _repository(self, folder: str) -> tuple[str, Repository] | None:
        """The innermost repository around a folder, and the folder of the code where it begins."""
        for above in _upward(folder):
            if above in self._repositories:
                return above, self._repositories[above]
        return None

    def _deciding(self, path: str) -> Iterator[tuple[_Layer, str]]:
        """The ignore files that may decide about a path, the first one first, each with the path as
        seen from its folder. The rules of a repository end where another one begins."""
        parent = path.rpartition("/")[0]
        git = True
        for folder in _upward(parent):
            inside = path[len(folder) + 1 :] if folder else path
            for layer in self._layers.get(folder, ()):
                if git or not layer.of_git:
                    yield layer, inside
            git = git and not (folder and folder in self._repositories)
        for layer in self._above:
            if git or not layer.of_git:
                yield layer, path

    def _layers_above(self, top: Path) -> Iterator[_Layer]:
        """The rules of the folders above the root up to the top of its repository, innermost first;
        none where they ignore the root itself: the user runs code in an ignored folder, so it
        counts."""
        case = self._whole and self._repositories[""].ignore_case
        layers = []
        for folder in self._root.parents:
            for name in reversed(RULES):
                shown = os.path.relpath(folder / name, self._root)
                try:
                    text = _text_of(folder / name, top, shown)
                except OSError:  # missing, or not readable
                    continue
                patterns = PatternList(patterns_of(text, shown), ignore_case=case)
                base = self._root.relative_to(folder).as_posix()
                layers.append(_Layer(patterns, base, of_git=name == RULES[0]))
            if folder == top:
                break
        if self._whole:
            base = self._root.relative_to(top).as_posix()
            layers += _of_repository(self._repositories[""], base)
        for inside in (self._root, *self._root.parents):
            if inside == top:
                break
            above = len(self._root.relative_to(inside).parts)
            for layer in layers:
                parts = layer.base.split("/")
                if len(parts) <= above:
                    continue  # the file lies in the folder, or below it
                seen = "/".join(parts[: len(parts) - above])
                found = layer.patterns.match(seen, folder=True)
                if found is not None and not found.negative:
                    return
                if found is not None:
                    break
        yield from layers

    def _top_of_all(self, top: Path) -> Path:
        outer = self._repositories.get("")
        return outer.top if outer is not None else min(top, self._root)

    def _note_taken_back(self, layer: _Layer, inside: str, by: Pattern, path: str) -> None:
        whole = f"{layer.base}/{inside}" if layer.base else inside
        before = layer.patterns.match(whole, folder=True, after=by)
        if before is not None and not before.negative and _ALL.fullmatch(before.text.strip()):
            self.taken_anew.add(path)


def _of_repository(repository: Repository, base: str) -> list[_Layer]:
    """The rules for a whole repository, the first one first."""
    return [
        _Layer(PatternList(patterns_of(text, path), ignore_case=repository.ignore_case), base)
        for path, text in reversed(repository.excludes)
    ]


def _upward(folder: str) -> Iterator[str]:
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


def _text_of(path: Path, top: Path, shown: str) -> str:
    """The text of an ignore file. git reads no `.gitignore` that is a link."""
    if leads_out(path, top):
        reason = f"it is a link to `{os.path.realpath(path)}`, outside of `{top}`"
        raise OSError(errno.ELOOP, reason, shown)
    if path.name == RULES[0] and path.is_symlink():
        return ""
    try:
        return read_regular(path).decode("utf-8", "surrogateescape")
    except OSError as error:
        error.filename = shown
        raise


def _literal_start(pattern: str) -> str:
    """The common start of all paths that a pattern matches; empty if it matches at any depth."""
    plain = pattern.removeprefix("/")
    if "/" not in pattern.rstrip("/") or pattern.startswith("**"):
        return ""
    match = re.match(r"[^*?\[\\]*", plain)
    return match.group() if match else ""
