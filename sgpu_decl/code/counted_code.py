"""Which files of the code count: a change of one that does not count launches nothing again.

All of the code travels. Documents at the top, `docs/`, settings of CI and editors, notebooks and
tests do not count, unless the run reaches them: by an import, by a path that its source, its
settings, its command or its arguments name, or by `code.include`. Where a part of a path is
computed, all that may be meant counts. Where nothing can be told, all of them count.
"""

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

from sgpu_decl.code.command_programs import CommandReach, command_reach, lists_folder
from sgpu_decl.code.git_patterns import PatternList, patterns_of
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.code.source_mentions import (
    Mentions,
    mentions_of,
    mentions_of_notebook,
    mentions_of_text,
    started_modules,
)
from sgpu_decl.model.jsonable import canonical, digest
from sgpu_decl.regular_files import read_head, read_regular

RULE = "1"
"""The version of this rule. A record of a launch says by which one its code was counted."""

_MOST = 2000  # files that are parsed: a plan should not take longer
_DOCUMENTS = (
    "acknowledgements|authors|changelog|changes|citation|code[-_]of[-_]conduct|codeowners"
    "|contributing|contributors|copying|copyright|credits|faq|governance|history|install|licen[cs]es?|maintainers"
    "|news|notes|notice|readme|release[-_]?notes|releases|roadmap|security|support|thanks|todo"
    "|upgrading"
)
_WRITTEN = re.compile(rf"(?i:({_DOCUMENTS})([-_.][\w-]+)*\.(md|mdx|markdown|rst|adoc|org|cff))")
# A text of that name in small letters may be data.
_PLAIN = re.compile(rf"({_DOCUMENTS.upper()})([-_.][\w-]+)*(\.txt|\.TXT)?")
_SETTINGS = frozenset({
    ".azuredevops", ".buildkite", ".circleci", ".devcontainer", ".forgejo", ".gitea", ".github",
    ".gitlab", ".husky", ".vs", ".woodpecker", ".zed",
})  # fmt: skip
_SETTINGS_FILES = frozenset({
    ".editorconfig", ".gitattributes", ".gitlab-ci.yml", ".pre-commit-config.yaml", ".travis.yml",
    "Jenkinsfile", "azure-pipelines.yml", "bitbucket-pipelines.yml",
})  # fmt: skip
_TEST = re.compile(r"(test_.*|.*_test|conftest)\.py")
_TESTS = frozenset({"test", "tests"})
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_WILD = re.compile(r"[*?\[]")
# A part that is computed: of an f-string, of `str.format`, of `%` and of a shell.
_COMPUTED = re.compile(r"\{[^{}]*\}|%(?:\(\w+\))?[-+ #0]*[\d.*]*[A-Za-z]|\$\w+|\$\{[^}]*\}")
_COMMENT = re.compile(r"(^|(?<=\s))#.*", re.MULTILINE)
_MARKS = r"=,;:'\"`()<>&|@{}\[\]"
_BETWEEN = re.compile(rf"[\s{_MARKS}]+")
_BETWEEN_SPACED = re.compile(rf"\s*[{_MARKS}]+\s*")  # names of files may hold spaces
_SCRIPT = (".sh", ".bash")  # their words are read where the run names them
_READ = (".yaml", ".yml", ".json", ".toml")  # settings, whose words are read
# They may list files: of their words, those that are paths count.
_LISTS = (
    ".cfg", ".conf", ".csv", ".gin", ".ini", ".j2", ".jinja", ".jinja2", ".jsonl", ".jsonnet",
    ".lst", ".properties", ".tsv", ".txt", ".xml",
)  # fmt: skip
# Those of tools for development name tests and documents that the run does not read.
_OF_TOOLS = re.compile(
    r"\..*|(pyproject|ruff|ty|pixi|netlify|cliff|package(-lock)?|tsconfig.*|pyrightconfig|renovate"
    r"|mkdocs|codecov|myst|_config|_toc|docker-compose.*|compose|[Tt]askfile"
    r"|.*requirements.*|.*constraints.*|setup|tox|pytest|mypy|CMakeLists)\.\w+"
)
_LARGEST = 256 * 1024  # bytes of such a file; what is larger is data
_MOST_READ = 2000
_MOST_LISTS = 500
_PYTEST = frozenset({"py.test", "pytest", "unittest"})
_WRITTEN_ENDINGS = frozenset({".adoc", ".ipynb", ".markdown", ".md", ".mdx", ".org", ".rst"})
_ALL = frozenset({".", "./", "*", "./*", "**", "**/*", "*.*", "$PWD", "${PWD}", "$(pwd)"})
"""Words of a command or an argument that name the whole code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUses:
    """What a run uses of its code, as far as that decides what counts.

    Attributes:
        started: scripts and modules, each with who starts it.
        programs: the texts of `python -c`.
        words: the texts that may name a file, each with the field that holds it.
        include: the patterns of `code.include`.
        tests: whether pytest runs.
        unclear: why all of the code counts.
        everything: whether it does so by `code.count`.
    """

    started: tuple[tuple[str, str], ...] = ()
    programs: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()
    include: tuple[str, ...] = ()
    tests: bool = False
    unclear: str | None = None
    everything: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCode:
    """What of a tree counts for a run.

    Attributes:
        record: the rule and the digest of what counts, as the record of a launch keeps it.
        uncounted: the files that do not count, each with the kind that it is of.
        reached: the files of such a kind that count, each with the reason.
        unclear: why all of them count although the rule is not `all`.
    """

    record: str
    uncounted: Mapping[str, str] = field(default_factory=dict)
    reached: Mapping[str, str] = field(default_factory=dict)
    unclear: str | None = None


def kinds_of(paths: Iterable[str]) -> dict[str, str]:
    """The files that do not count unless they are reached, each with its kind in words."""
    every = list(paths)
    tests = {
        folder
        for path in every
        if _TEST.fullmatch(path.rpartition("/")[2])
        for folder in _folders(path)
        if folder.rpartition("/")[2] in _TESTS
    }
    found = ((path, _kind(path, tests)) for path in every)
    return {path: kind for path, kind in found if kind is not None}


def _kind(path: str, tests: Collection[str]) -> str | None:
    top, _, below = path.partition("/")
    name = path.rpartition("/")[2]
    if not below and (_WRITTEN.fullmatch(name) or _PLAIN.fullmatch(name)):
        return "a document at the top of the code"
    if below and top == "docs":
        return "documentation"
    if (below and top in _SETTINGS) or (not below and name in _SETTINGS_FILES):
        return "settings of CI or an editor"
    if name.endswith(".ipynb"):
        return "a notebook"
    if _TEST.fullmatch(name) or any(folder in tests for folder in _folders(path)):
        return "a test"
    return None


class CodeTree:
    """The files of a tree, by what may lead to them.

    Args:
        gone: files that an earlier tree had, which are judged as if they were there.
    """

    def __init__(self, code: Snapshot, gone: Collection[str] = ()) -> None:
        self.code = code
        self.links = {entry.path: entry.target for entry in code.entries if entry.target}
        every = [*(entry.path for entry in code.entries), *gone]
        self.kinds = kinds_of(every)
        self.paths = frozenset(every)
        self.kind_links = [path for path in self.links if path in self.kinds]
        self.link_names = {path.rpartition("/")[2] for path in self.kind_links}
        self.folders = {folder for path in every for folder in _folders(path)}
        self.kind_folders = {folder for path in self.kinds for folder in _folders(path)}
        self.modules: dict[str, list[str]] = {}
        self.by_name: dict[str, list[str]] = {}
        for path in self.kinds:
            self.by_name.setdefault(path.rpartition("/")[2], []).append(path)
        for path in every:
            if path.endswith((".py", ".ipynb")):
                self.modules.setdefault(_module_of(path).rpartition("/")[2], []).append(path)
        followed = (path for path in every if _is_followed(path))
        self._ends = {
            path.rpartition("/")[2] for path in (*self.kind_folders, *self.kinds, *followed)
        }
        self._reaches: dict[str, CommandReach] = {}
        self._texts: dict[str, str | None] = {}
        self._may: dict[str, bool] = {}
        self._matching: dict[str, tuple[str, ...]] = {}
        self._have_spaces = any(" " in path for path in self.kinds)

    def uses(
        self,
        *,
        entrypoint: str | None = None,
        command: Sequence[str] | str | None = None,
        words: Iterable[tuple[str, str]] = (),
        include: tuple[str, ...] = (),
        everything: bool = False,
    ) -> RunUses:
        """What a run uses of this tree. Runs that differ in nothing that matters have the same.

        Args:
            words: texts of its arguments, parameters and variables, each with its field.
        """
        if everything or not self.kinds:
            return RunUses(everything=True)
        pieces = [(where, piece) for where, text in words for piece in _pieces(text)]
        reach = CommandReach()
        started: tuple[tuple[str, str], ...] = ()
        if entrypoint is not None:
            started = ((entrypoint.partition(":")[0], "the entrypoint"),)
        elif command is not None:
            reach = self._reach(command)
            started = tuple((one, "the command") for one in reach.started)
            pieces += [("command", piece) for word in reach.words for piece in _pieces(word)]
        return RunUses(
            started=started,
            programs=tuple(reach.programs),
            words=tuple(dict.fromkeys(one for one in pieces if self.may_name(one[1]))),
            include=include,
            tests=reach.tests,
            unclear=reach.unknown,
        )

    def _reach(self, command: Sequence[str] | str) -> CommandReach:
        """Runs that differ in variables and arguments share a text, which is read once."""
        if not isinstance(command, str):
            return command_reach(command, self._text)
        if command not in self._reaches:
            self._reaches[command] = command_reach(command, self._text)
        return self._reaches[command]

    def settings(self) -> list[str]:
        """The settings and lists that count, whose words are read."""
        found = sorted(
            path
            for path in self.paths - self.kinds.keys()
            if path.endswith((*_READ, *_LISTS)) and not _OF_TOOLS.fullmatch(path.rpartition("/")[2])
        )
        settings = [path for path in found if path.endswith(_READ)][:_MOST_READ]
        return settings + [path for path in found if path.endswith(_LISTS)][:_MOST_LISTS]

    def may_name(self, text: str) -> bool:
        """Whether a text may lead to a file that counts only if it is reached."""
        if text not in self._may:
            self._may[text] = self._may_name(text)
        return self._may[text]

    def _may_name(self, text: str) -> bool:
        if text in _ALL or text in _PYTEST or self.matching(text):
            return True
        for path in self.literals(text):
            parent, _, end = path.rpartition("/")
            if end in self._ends or (parent and parent.rpartition("/")[2] in self._ends):
                return True
            if any(part in self.link_names for part in path.split("/")):
                return True
        return bool(_DOTTED.fullmatch(text)) and any(
            part in self.modules for part in text.split(".")
        )

    def matching(self, text: str) -> tuple[str, ...]:
        """The files that count only if they are reached, by a text with wildcards or with parts
        that are computed."""
        if text not in self._matching:
            self._matching[text] = tuple(self._matches(text))
        return self._matching[text]

    def _matches(self, text: str) -> Iterator[str]:
        pattern = _COMPUTED.sub("*", text)
        if not _WILD.search(pattern) or not any(map(str.isalnum, pattern)):
            return
        if " " in pattern and not self._have_spaces:
            return
        end = pattern.rstrip("/").rpartition("/")[2]
        is_name = pattern == text or sum(map(str.isalnum, end)) > 1
        if not is_name and "/" not in pattern:
            return
        whole, name = (re.compile(translate(one)) for one in (pattern, end))
        for path in self.kinds:
            if whole.match(path) or (is_name and name.match(path.rpartition("/")[2])):
                yield path

    def literals(self, text: str) -> list[str]:
        """The paths that a text may mean, relative to some folder: itself, and what stands between
        the parts of it that are computed, with the folders before these."""
        root = f"{self.code.root}/"
        first, *others = _COMPUTED.split(text.removeprefix(root))
        paths = [text.removeprefix(root), *(part for part in (first, *others) if others)]
        paths += [part.rpartition("/")[0] for part in (first, *others)[:-1]]
        if _DOTTED.fullmatch(text):  # a package, whose data may be read
            paths.append(text.replace(".", "/"))
        return [path for path in dict.fromkeys(one.strip("/") for one in paths) if path]

    def file_facts(self, path: str) -> os.stat_result | None:
        """Those of a file of the tree; None for one that is gone."""
        try:
            return os.stat(self.code.root / path)
        except OSError:
            return None

    def first_line(self, path: str) -> bytes:
        try:
            return read_head(self.code.root / path, 128).partition(b"\n")[0]
        except OSError:
            return b""

    def _text(self, path: str) -> str | None:
        if path not in self._texts:
            self._texts[path] = self._read(os.path.normpath(path))
        return self._texts[path]

    def _read(self, path: str) -> str | None:
        if path not in self.paths:
            return None
        try:
            return read_regular(self.code.root / path).decode("utf-8", "surrogateescape")
        except OSError:
            return None


def counted_code(tree: CodeTree, uses: RunUses) -> CountedCode:
    """Tell which files of a tree count for a run."""
    code = tree.code
    if uses.everything:
        return CountedCode(record=f"{RULE}:{code.digest}")
    reach = _Reach(tree)
    reach.follow(uses)
    if reach.unclear is not None:
        return CountedCode(record=f"{RULE}:{code.digest}", unclear=reach.unclear)
    uncounted = {path: kind for path, kind in tree.kinds.items() if path not in reach.reached}
    counting = [entry.to_json() for entry in code.entries if entry.path not in uncounted]
    return CountedCode(
        record=f"{RULE}:{digest(canonical(counting))}", uncounted=uncounted, reached=reach.reached
    )


class _Reach:
    """Follows what a run starts through the files of a tree."""

    def __init__(self, tree: CodeTree) -> None:
        self._tree = tree
        self._waiting: dict[str, None] = {}
        self._seen: set[str] = set()
        self._starts: dict[str, None] = {"": None, "src": None}
        self.reached: dict[str, str] = {}
        self.unclear: str | None = None

    def follow(self, uses: RunUses) -> None:
        self._include(uses.include)
        for path, target in self._tree.links.items():
            if path not in self._tree.kinds:
                self._named(target, _parent(path), f"the link `{path}` leads to it")
        for where, word in uses.words:
            self._named(word, "", f"`{where}` names it")
        for program in uses.programs:
            try:
                self._mentions(mentions_of_text(program), "", "command")
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self.unclear = "the program in the command cannot be parsed"
        if any(word in _ALL for where, word in uses.words if not where.startswith("env.")):
            self._below(".", "the run names the folder of the code")
        self._waiting.update(dict.fromkeys(self._tree.settings()))
        if uses.tests:
            self._collect("pytest may collect it")
        for target, by in uses.started:
            self._start(target, by)
        self.unclear = uses.unclear or self.unclear
        done = 0
        while self._waiting and self.unclear is None:
            path = next(iter(self._waiting))
            del self._waiting[path]
            if path.endswith(".ipynb"):
                self._notebook(path)
                continue
            if not path.endswith(".py") and not (_is_plain(path) and self._starts_python(path)):
                self._words(path)
                continue
            done += 1
            if done > _MOST:
                self.unclear = f"the run imports more than {_MOST:,} files"
                return
            self._file(path)

    def _include(self, patterns: Sequence[str]) -> None:
        include = PatternList(patterns_of(patterns))
        for path in self._tree.kinds if patterns else ():
            levels = [(path, False), *((folder, True) for folder in _folders(path))]
            named = (include.match(level, folder=is_folder) for level, is_folder in levels)
            deciding = next((one for one in named if one is not None), None)
            if deciding is not None and not deciding.negative:
                self._take(path, "`code.include` names it")

    def _start(self, target: str, by: str) -> None:
        """A script, or a module with its packages."""
        path = os.path.normpath(target)
        if path in self._tree.paths:
            self._starts.setdefault(path.rpartition("/")[0])
            self._take(path, f"{by} starts it")
            return
        if target.endswith(".py") or "/" in target:
            folders = [path for path in self._tree.paths if path.endswith(f"/{target}")]
            if not folders:
                self.unclear = f"{by} starts `{target}`, which is no file of the code"
            for path in folders:  # the command may have gone to its folder
                self._starts.setdefault(path.rpartition("/")[0])
                self._take(path, f"{by} starts it")
            return
        found = self._files_of(target, [*self._starts]) or self._anywhere(target)
        main = self._files_of(f"{target}.__main__", [*self._starts])
        if not found and not main:
            self.unclear = f"{by} starts the module `{target}`, which is not in the code"
        for path in (*found, *main):
            self._take(path, f"{by} starts it")

    def _take(self, path: str, why: str) -> None:
        """A file that counts, and whose own mentions count if it is one that is read."""
        if path in self._tree.kinds:
            self.reached.setdefault(path, why)
        if path in self._seen:
            return
        self._seen.add(path)
        if _is_followed(path):
            self._waiting[path] = None
        if path in self._tree.links:
            target = self._tree.links[path]
            self._named(target, _parent(path), f"the link `{path}` leads to it")

    def _collect(self, why: str) -> None:
        for path, kind in self._tree.kinds.items():
            if kind == "a test":
                self._take(path, why)

    def _starts_python(self, path: str) -> bool:
        first = self._tree.first_line(path)
        return first.startswith(b"#!") and b"python" in first

    def _notebook(self, path: str) -> None:
        try:
            mentions = mentions_of_notebook(self._tree.code.root / path)
        except (
            SyntaxError,
            RecursionError,
            MemoryError,
            OSError,
            ValueError,
            LookupError,
            TypeError,
        ):
            return  # it is shown or copied, or fails in the run
        self._mentions(mentions, _parent(path), path)

    def _file(self, path: str) -> None:
        try:
            mentions = mentions_of(self._tree.code.root / path, path)
        except FileNotFoundError:
            return  # of an earlier tree
        except (SyntaxError, RecursionError, MemoryError, OSError, ValueError):
            self.unclear = f"`{path}` cannot be parsed"
            return
        self._mentions(mentions, _parent(path), path)

    def _words(self, path: str) -> None:
        """The paths that settings or a shell script name."""
        facts = self._tree.file_facts(path)
        if facts is None or facts.st_size > _LARGEST:
            return
        is_script = path.endswith(_SCRIPT) or _is_plain(path)
        if _is_plain(path) and not self._tree.first_line(path).startswith(b"#!"):
            return
        folder, why = _parent(path), f"`{path}` names it"
        words = _words_of(self._tree.code.root / path, facts.st_mtime_ns, facts.st_size)
        for word in words:
            if is_script and word in _PYTEST:
                self._collect(f"`{path}` may start pytest")
            for module in started_modules(word) if is_script else ():
                self._modules((module,), 0, folder, why)
            if not path.endswith(_LISTS) or "/" in word or word in self._tree.by_name:
                self._named(word, folder, why)

    def _modules(self, modules: Sequence[str], level: int, folder: str, why: str) -> None:
        for path in self._imported(modules, level, folder):
            self._take(path, why)

    def _mentions(self, mentions: Mentions, folder: str, shown: str) -> None:
        """What a file mentions; `folder` is its own."""
        for one in mentions.imports:
            self._modules(one.modules, one.level, folder, f"`{shown}:{one.line}` imports it")
            if not one.level and not _PYTEST.isdisjoint(one.modules):
                self._collect(f"`{shown}:{one.line}` may start tests")
        for start, line in mentions.computed:
            for path in self._tree.paths:
                dotted = path.removesuffix(".py").replace("/", ".")
                if path.endswith(".py") and f".{start}" in f".{dotted}":
                    self._take(path, f"`{shown}:{line}` imports modules by computed names")
        for line in _on_whole_code(mentions):
            self._below(".", f"`{shown}:{line}` starts a program on the folder of the code")
        for path, line in mentions.opened:
            self._below(path, f"`{shown}:{line}` opens it")
        for text, line in mentions.texts:
            for module in started_modules(text):
                self._modules((module,), 0, folder, f"`{shown}:{line}` starts it")
            for path in self._tree.kinds if text in _WRITTEN_ENDINGS else ():
                if path.endswith(text):
                    self._take(path, f"`{shown}:{line}` names files that end with `{text}`")
            for piece in sorted(_pieces(text)):
                if piece in _PYTEST:
                    self._collect(f"`{shown}:{line}` may start tests")
                self._named(piece, folder, f"`{shown}:{line}` names it")

    def _below(self, path: str, why: str) -> None:
        """A path that is named: a file, or a folder with all that it holds."""
        while (end := path.rpartition("/")[2]) and not end.strip("*."):  # of `docs/*`
            if path == ".":
                break
            path = path.rpartition("/")[0] or "."
        for link in self._tree.kind_links:
            if path.startswith(f"{link}/"):
                self._take(link, why)
                self._named(f"{self._tree.links[link]}{path[len(link) :]}", _parent(link), why)
        if path in self._tree.paths:
            self._take(path, why)
        elif path == "." or path in self._tree.kind_folders:
            for one in self._tree.kinds:
                if path == "." or one.startswith(f"{path}/"):
                    self._take(one, why)
        elif "/" in path and path not in self._tree.folders:  # it may go on
            for one in self._tree.kinds:
                if one.startswith(path):
                    self._take(one, why)

    def _named(self, text: str, folder: str, why: str) -> None:
        """A text that may be a path, a pattern of paths, or the name of a module."""
        if not self._tree.may_name(text):
            return
        if _DOTTED.fullmatch(text):
            for path in self._files_of(text, [*self._starts, folder]):
                self._take(path, why)
        for path in self._tree.matching(text):
            self._take(path, why)
        for literal in self._tree.literals(text):
            for base in {*self._starts, folder}:
                path = os.path.normpath(os.path.join(base, literal))
                if path.strip("*./"):
                    self._below(path, why)
            self._elsewhere(literal, why)
        if "." in text and "/" not in text:
            for path in self._tree.by_name.get(text, ()):
                self._take(path, why)

    def _elsewhere(self, literal: str, why: str) -> None:
        """A path that is relative to a folder which is not known."""
        ending = os.path.normpath(f"/{literal}").replace("/..", "")
        if ending.count("/") < 2 and ending[1:] not in (*_TESTS, "docs"):
            return
        for path in self._tree.by_name.get(ending.rpartition("/")[2], ()):
            if path.endswith(ending):
                self._take(path, why)
        for folder in self._tree.kind_folders:
            if folder.endswith(ending):
                self._below(folder, why)

    def _imported(self, modules: Sequence[str], level: int, folder: str) -> Iterator[str]:
        """The files that an import may execute."""
        if level:
            for _ in range(level - 1):
                folder = folder.rpartition("/")[0]
            if (package := f"{folder}/__init__.py".lstrip("/")) in self._tree.paths:
                yield package
            for module in filter(None, modules):
                yield from self._files_of(module, [folder])
            return
        bases = list(dict.fromkeys([*self._starts, folder]))
        found = [path for module in modules for path in self._files_of(module, bases)]
        yield from found or (path for module in modules[:1] for path in self._anywhere(module))

    def _files_of(self, module: str, bases: Sequence[str]) -> list[str]:
        """The files of a dotted name below some folders, its packages included."""
        found = []
        for base in bases:
            path = base
            for part in module.split("."):
                path = f"{path}/{part}".lstrip("/")
                files = (f"{path}/__init__.py", f"{path}.py", f"{path}.ipynb")
                found += [one for one in files if one in self._tree.paths]
                if path not in self._tree.folders:
                    break
        return found

    def _anywhere(self, module: str) -> list[str]:
        """The files of a module that lies in no folder from which Python imports here, as far as
        that is known: the program may add others."""
        if module.partition(".")[0] in sys.stdlib_module_names:
            return []
        inside = f"/{module.replace('.', '/')}"
        named = self._tree.modules.get(module.rpartition(".")[2], ())
        return [path for path in named if _module_of(path).endswith(inside)]


def _on_whole_code(mentions: Mentions) -> Iterator[int]:
    """The lines that start a program on all files of the folder, such as `cat *`."""
    for words, line in mentions.programs:
        if lists_folder(words) or not _ALL.isdisjoint(words.split()):
            yield line


def _pieces(text: str) -> set[str]:
    """A text, its words, and what stands between the marks in them."""
    return {text, *text.split(), *_BETWEEN.split(text), *_BETWEEN_SPACED.split(text)}


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix(".ipynb").removesuffix("/__init__")


def _is_plain(path: str) -> bool:
    """Whether a file may be a program by its first line: its name has no ending."""
    return "." not in path.rpartition("/")[2]


def _is_followed(path: str) -> bool:
    """Whether what is written in a file matters where the run names it."""
    return path.endswith((".py", ".ipynb", *_SCRIPT, *_READ, *_LISTS)) or _is_plain(path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


@lru_cache(maxsize=8192)
def _words_of(path: Path, _mtime: int, _size: int) -> tuple[str, ...]:
    try:
        text = read_regular(path).decode("utf-8", "surrogateescape")
    except OSError:
        return ()
    if not path.name.endswith(".json"):
        text = _COMMENT.sub("", text)
    return tuple(dict.fromkeys(one for line in text.splitlines() for one in sorted(_pieces(line))))


def _folders(path: str) -> Iterator[str]:
    """The folders above a path, innermost first."""
    while path := path.rpartition("/")[0]:
        yield path
