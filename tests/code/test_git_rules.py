"""What travels is what git would take: compared with git itself."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu_decl.code.git_patterns import PatternList, patterns_of
from sgpu_decl.code.selection import SelectionRule
from sgpu_decl.code.snapshot import Snapshot, snapshot
from sgpu_decl.diagnostics.diagnostic import Severity
from tests.code.conftest import Plant
from tests.support import refusing

_PARTS = ("a", "b", "ab", "B", "a b", "x.py", "y.txt", "é", "[a]", "c ")
_PIECES = (
    "*", "**", "?", "/", "!", "\\", " ", "a", "b", "ab", "B", ".py", ".txt", "x", "y", "é", "**/",
    "/**", "*/", "[ab]", "[!a]", "[[:alpha:]]", "[a-", "]", "\\ ", "#", "c", "code", "code/",
)  # fmt: skip
_WHOLE = (
    "*", "!*/", "!*.py", "/*", "!/a", "!/a/", "a/", "!a/x.py", "*.txt", "!y.txt", "**/b", "a/**",
    "code/*",
)  # fmt: skip
_paths = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=3).map("/".join)
_lines = st.one_of(
    st.sampled_from(_WHOLE),
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=4).map("".join),
)
_rules = st.lists(_lines, max_size=5).map(lambda lines: "".join(f"{line}\n" for line in lines))
_trees = st.fixed_dictionaries(
    {
        "files": st.sets(_paths, min_size=1, max_size=12),
        "tracked": st.sets(_paths, max_size=3),
        "ignore_files": st.dictionaries(
            st.sampled_from(("", "a", "b", "a/b", "../", "nested")), _rules, max_size=3
        ),
        "exclude": _rules,
        "excludes_file": _rules,
        "default_excludes": _rules,
        "ignore_case": st.booleans(),
        "below": st.booleans(),
        "nested": st.sets(_paths, max_size=3),
        "nested_tracked": st.booleans(),
        "link": st.booleans(),
        "worktree": st.booleans(),
    }
)


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git knows the configuration of the test alone."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def _git(folder: Path, *words: str, check: bool = True) -> str:
    options = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "core.quotePath=false")
    done = subprocess.run(
        ["git", "-C", folder, *options, *words],
        check=check,
        capture_output=True,
        text=True,
        errors="surrogateescape",
    )
    return done.stdout


def _taken(root: Path) -> Snapshot:
    taken, findings = snapshot(root)
    assert taken is not None, findings
    return taken


def _by_git(root: Path) -> Iterator[str]:
    """The files that git lists, those of inner repositories too."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for path in set(filter(None, listed.split("\0"))):
        whole = root / path
        if (whole / ".git").exists():
            yield from (f"{path.rstrip('/')}/{inner}" for inner in _by_git(whole))
        elif whole.is_symlink() or whole.is_file():
            yield path


def _write(root: Path, path: str, text: str = "") -> bool:
    whole = root / path
    try:
        whole.parent.mkdir(parents=True, exist_ok=True)
        if not whole.is_dir():
            whole.write_text(text)
    except (FileExistsError, NotADirectoryError):
        return False
    return whole.is_file()


def _grow(room: Path, tree: Mapping[str, Any]) -> Path:
    """Make the checkout; returns the root of the code."""
    top = room / "top"
    _git(room, "init", "-q", "top")
    if tree["worktree"]:
        _git(top, "commit", "-q", "--allow-empty", "-m", "x")
        _git(top, "worktree", "add", "-q", "../tree")
        info, top = top / ".git" / "info", room / "tree"
    else:
        info = top / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "exclude").write_text(str(tree["exclude"]))
    _git(top, "config", "core.ignoreCase", str(tree["ignore_case"]).lower())
    if tree["excludes_file"]:
        (room / "excludes").write_text(str(tree["excludes_file"]))
        _git(top, "config", "core.excludesFile", str(room / "excludes"))
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "git"
    config.mkdir(parents=True, exist_ok=True)
    (config / "ignore").write_text(str(tree["default_excludes"]))
    root = top / "code" if tree["below"] else top
    root.mkdir(exist_ok=True)
    _write(root, "kept.md")
    for path in sorted(tree["files"]):
        _write(root, path)
    if tree["nested"] and not (root / "nested").exists():
        _git(root, "init", "-q", "nested")
        for path in sorted(tree["nested"]):
            _write(root / "nested", path)
        if tree["nested_tracked"]:
            _git(root / "nested", "add", "-A", "-f")
            _git(root / "nested", "commit", "-q", "--allow-empty", "-m", "x")
            _git(root, "add", "-f", "nested")
    for folder, rules in tree["ignore_files"].items():
        if folder != "../" or tree["below"]:
            _write(root, f"{folder}/.gitignore".lstrip("/"), rules)
    if tree["link"] and not (root / "linked").exists():
        (root / "linked").symlink_to("a")
        if not (root / "b" / ".gitignore").exists() and (root / "b").is_dir():
            (root / "b" / ".gitignore").symlink_to("../kept.md")
            (root / "kept.md").write_text("*\n")
    for path in sorted(tree["tracked"]):
        if (root / path).is_file() and _write(root, path):
            _git(root, "add", "-f", "--", f":(literal){path}")
    return root


def _is_ignored(root: Path) -> bool:
    words = ["git", "-C", str(root.parent), "check-ignore", "--no-index", "-q", root.name]
    return subprocess.run(words, check=False, capture_output=True).returncode == 0


def _compare(tree: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = _grow(Path(folder), tree)
        if tree["below"] and _is_ignored(root):
            return  # the user runs code in an ignored folder, so all of it counts
        ours = {entry.path for entry in _taken(root).entries}
        expected = {path for path in _by_git(root) if path.rpartition("/")[2] != ".gitignore"}
        assert ours == expected


_OPTIONS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@given(tree=_trees)
@settings(_OPTIONS, max_examples=5)
def test_what_travels_is_what_git_lists(tree: Mapping[str, Any]) -> None:
    _compare(tree)


@pytest.mark.expensive
@given(tree=_trees)
@settings(_OPTIONS, max_examples=60)
def test_what_travels_is_what_git_lists_in_many_trees(tree: Mapping[str, Any]) -> None:
    _compare(tree)


_MARKS = "ab/*?[]!-\\ #.^:A"
_TEXTS = (
    "a",
    "b",
    "ab",
    "a/b",
    "a/b/a",
    "A",
    "a b",
    "a ",
    "[a]",
    "ba/ab",
    ".a",
    "-",
    "\\a",
    "#a",
    "aab",
)


@pytest.mark.parametrize("ignore_case", [False, True])
def test_any_line_matches_what_it_matches_in_git(tmp_path: Path, ignore_case: bool) -> None:
    """A line of its own for each folder, so that one call of git judges all of them."""
    random = Random(7)
    lines = ["".join(random.choices(_MARKS, k=random.randint(1, 7))) for _ in range(250)]
    lines += [
        "[[:upper:]]*",
        "[[:foo:]]",
        "a**",
        "a**/b",
        "**/a",
        "a/**",
        "**",
        "[z-a]",
        "[a-",
        "a\\",
    ]
    lines = [line for line in lines if line.strip() and line[0] not in "!#"]
    _git(tmp_path, "init", "-q", ".")
    _git(tmp_path, "config", "core.ignoreCase", str(ignore_case).lower())
    for number, line in enumerate(lines):
        _write(tmp_path, f"{number}/.gitignore", f"{line}\n")
    asked = [f"{number}/{text}" for number in range(len(lines)) for text in _TEXTS]
    words = ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "-z", "--stdin"]
    said = subprocess.run(
        words, input="\0".join(asked), capture_output=True, text=True, check=False
    )
    ignored = set(said.stdout.split("\0"))
    for number, line in enumerate(lines):
        rules = PatternList(patterns_of(f"{line}\n"), ignore_case=ignore_case)
        for text in _TEXTS:
            parts = text.split("/")
            levels = [("/".join(parts[:end]), end < len(parts)) for end in range(1, len(parts) + 1)]
            ours = any(rules.match(path, folder=folder) for path, folder in levels)
            assert ours == (f"{number}/{text}" in ignored), (line, text)


def test_the_same_rules_hold_without_git(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        ".gitignore": "*\n!*/\n!*.py\n",
        "models/net.py": "",
        "models/w.bin": "",
        "train.py": "",
    }
    root = plant(files)
    monkeypatch.setenv("PATH", "")
    assert [entry.path for entry in _taken(root).entries] == ["models/net.py", "train.py"]


def test_sgpuignore_is_judged_level_by_level_too(plant: Plant) -> None:
    files = dict.fromkeys(("models/net.py", "models/w.bin"), "")
    root = plant({".sgpuignore": "*\n!*/\n!*.py\n", **files})
    assert [entry.path for entry in _taken(root).entries] == ["models/net.py"]


def test_sgpuignore_leaves_out_what_git_tracks_and_gitignore_does_not(plant: Plant) -> None:
    root = plant({".gitignore": "*.bin\nout/\n", ".sgpuignore": "big.bin\n", "big.bin": "",
                  "kept.bin": "", "out/kept": "", "out/not": ""})  # fmt: skip
    _git(root, "init", "-q", ".")
    _git(root, "add", "-f", "big.bin", "kept.bin", "out/kept")
    taken = _taken(root)
    assert [entry.path for entry in taken.entries] == ["kept.bin", "out/kept"]
    assert taken.exclusion("big.bin").rule is SelectionRule.SGPUIGNORE
    assert taken.exclusion("out/not").rule is SelectionRule.GITIGNORE


def test_a_rule_of_the_whole_repository_is_named_with_its_file(plant: Plant) -> None:
    root = plant({"a.bin": "", "b.py": ""})
    _git(root, "init", "-q", ".")
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text("# mine\n*.bin\n")
    assert str(_taken(root).exclusion("a.bin")) == f"line 2 of `{root}/.git/info/exclude` (`*.bin`)"


_SLOW = """\
#!/bin/sh
case "$*" in *ls-files*) read answer < {gate} ;; esac
exec {git} "$@"
"""


class _Opening:
    """A progress that lets git go on once its wait was reported."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate
        self.phases: list[str] = []

    def advance(self, phase: str, done: int, total: int) -> None:
        if phase == "listing" and "listing" not in self.phases:
            self._gate.write_text("go\n")
        self.phases.append(phase)


@pytest.fixture
def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `git` that lists no files before somebody writes into the pipe that this returns; and a
    checkout that tracks a file which it ignores."""
    gate, programs, checkout = tmp_path / "gate", tmp_path / "bin", tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "kept.bin").write_text("kept")
    (checkout / ".gitignore").write_text("*.bin\n")
    for words in (["init", "-q"], ["add", "-f", "kept.bin"]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    os.mkfifo(gate)
    programs.mkdir()
    git = shutil.which("git")
    (programs / "git").write_text(_SLOW.format(gate=shlex.quote(str(gate)), git=git))
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return gate


def test_a_slow_git_changes_nothing_and_the_wait_is_said(slow_git: Path) -> None:
    progress = _Opening(slow_git)
    code, findings = snapshot(slow_git.parent / "checkout", progress=progress)
    assert findings == ()
    assert code is not None
    assert code.takes("kept.bin")
    assert "listing" in progress.phases


def test_a_git_that_does_not_answer_is_an_error(
    slow_git: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.code.repository._LONGEST", 0.1)
    with refusing("git_silent", match="which files are code depends on its answer") as silent:
        snapshot(slow_git.parent / "checkout")
    assert "ls-files --stage -z` to see" in (silent.value.hint or "")


def _damage(part: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / ".git" / part).write_text(text)


def _lead(text: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        shutil.rmtree(root / ".git")
        (root / ".git").write_text(text)

    return change


_REFUSING: dict[str, tuple[Callable[[Path], object], str]] = {
    "a damaged index": (_damage("index", "x"), "index file smaller than expected"),
    "a damaged configuration": (_damage("config", "[core"), "bad config line"),
    "a newer repository": (
        _damage("config", "[core]\nrepositoryformatversion = 99\n"),
        "found 99",
    ),
    "an unknown extension": (
        _damage("config", "[core]\nrepositoryformatversion = 1\n[extensions]\nodd = true\n"),
        "extension",
    ),
    "no objects": (lambda root: shutil.rmtree(root / ".git" / "objects"), "not a git repository"),
}  # fmt: skip
_LACKING: dict[str, tuple[Callable[[Path], object], str]] = {
    "no index": (lambda root: (root / ".git" / "index").unlink(), "its index is missing"),
    "no HEAD": (lambda root: (root / ".git" / "HEAD").unlink(), "not a git repository"),
    "a repository that is gone": (
        _lead("gitdir: /nowhere/x\n"),
        "not a git repository: /nowhere/x",
    ),
    "a file of something else": (_lead("x"), "invalid gitfile format"),
}
_ANSWERING: dict[str, Callable[[Path], object]] = {
    "no work tree": _damage("config", "[core]\nbare = true\n"),
    "a lock": _damage("index.lock", ""),
    "a file monitor": lambda root: _git(root, "config", "core.fsmonitor", "false"),
    "no commit": lambda root: (root / ".git" / "refs" / "heads" / "work").unlink(),
}


@pytest.fixture
def checkout(plant: Plant) -> Path:
    """A checkout that tracks a file which it ignores."""
    root = plant({".gitignore": "*.bin\n", "kept.bin": "", "train.py": ""})
    _git(root, "init", "-q", "-b", "work", ".")
    _git(root, "add", "-f", ".", "kept.bin")
    _git(root, "commit", "-q", "-m", "x")
    return root


@pytest.mark.parametrize("case", _REFUSING)
def test_a_git_that_refuses_is_an_error_in_its_words(checkout: Path, case: str) -> None:
    damage, words = _REFUSING[case]
    damage(checkout)
    with refusing("git_refused", match=words):
        snapshot(checkout)


@pytest.mark.parametrize("case", _LACKING)
def test_a_checkout_without_its_repository_is_code_by_its_ignore_files_and_says_so(
    checkout: Path, case: str
) -> None:
    damage, words = _LACKING[case]
    damage(checkout)
    code, (finding,) = snapshot(checkout)
    assert code is not None
    assert [entry.path for entry in code.entries] == ["train.py"]
    assert (finding.code, finding.severity) == ("git_refused", Severity.WARNING)
    assert words in finding.summary
    assert "leave out `kept.bin`" in (finding.hint or "")


def test_a_checkout_without_a_program_git_says_so(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    _, (finding,) = snapshot(checkout)
    assert finding.summary.endswith("tracks: there is no program `git`")


@pytest.mark.parametrize("case", _ANSWERING)
def test_what_git_bears_changes_nothing(checkout: Path, case: str) -> None:
    _ANSWERING[case](checkout)
    assert [entry.path for entry in _taken(checkout).entries] == ["kept.bin", "train.py"]


def test_an_inner_checkout_whose_repository_is_gone_is_named(checkout: Path) -> None:
    inner = checkout / "inner"
    inner.mkdir()
    (inner / ".git").write_text("gitdir: ../.git/modules/inner\n")
    (inner / "a.bin").write_text("")
    code, (finding,) = snapshot(checkout)
    assert code is not None
    assert code.takes("kept.bin")
    assert code.takes("inner/a.bin")  # the rules of the outer checkout end here
    assert f"which files of `{inner}` it tracks" in finding.summary
