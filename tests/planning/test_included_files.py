"""`include` on a disk: which files a pattern matches, and which are refused."""

from pathlib import Path

import pytest

from sgpu_decl.config.project_files import Included, IncludePattern
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.planning import included_files
from sgpu_decl.planning.included_files import FileReader, matching_paths
from sgpu_decl.planning.project_text import ProjectText


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in (
        "sgpu.yml", "a.yml", "b.yml", ".hidden.yml", "notes.txt", "runs/c.yml", "runs/d.yaml",
        "runs/deep/er/e.yml", ".venv/x.yml", ".git/y.yml", "mlruns/z.yml", "runs/.ci/f.yml",
    ):  # fmt: skip
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("runs: {}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("a.yml", ["a.yml"]),
        ("*.yml", ["a.yml", "b.yml", "sgpu.yml"]),
        ("?.yml", ["a.yml", "b.yml"]),
        ("[!a].yml", ["b.yml"]),
        ("[ac].yml", ["a.yml"]),
        ("runs/*", ["runs/c.yml", "runs/d.yaml"]),
        ("*/c.yml", ["runs/c.yml"]),
        ("**/*.yml", ["a.yml", "b.yml", "runs/c.yml", "runs/deep/er/e.yml", "sgpu.yml"]),
        ("runs/**", ["runs/c.yml", "runs/d.yaml", "runs/deep/er/e.yml"]),
        ("**/er/*.yml", ["runs/deep/er/e.yml"]),
        ("**/**/e.yml", ["runs/deep/er/e.yml"]),
        (".hidden.yml", [".hidden.yml"]),
        (".*.yml", [".hidden.yml"]),
        ("runs/.ci/*.yml", ["runs/.ci/f.yml"]),
        ("missing/*.yml", []),
        ("a.yml/*.yml", []),
    ],
)
def test_a_pattern_matches_names(tree: Path, pattern: str, paths: list[str]) -> None:
    assert list(matching_paths(tree, pattern)) == paths


def read(tree: Path, *patterns: str) -> tuple[FileReader, Included]:
    reader = FileReader(tree / "sgpu.yml", "project/sgpu.yml")
    places = [Place("project/sgpu.yml", line, 3) for line in range(1, len(patterns) + 1)]
    return reader, reader(list(map(IncludePattern, patterns, places)))


def refused(tree: Path, *patterns: str) -> Diagnostic:
    _, included = read(tree, *patterns)
    (finding,) = included.findings
    assert finding.hint
    assert finding.place is not None
    assert finding.place.line == len(patterns)
    return finding


def test_the_first_pattern_that_matches_a_file_counts_and_the_root_file_is_none(
    tree: Path,
) -> None:
    reader, included = read(tree, "b.yml", "*.yml")
    assert included.findings == ()
    assert [item.path for item in reader.files] == ["b.yml", "a.yml"]
    assert [item.file for item in reader.files] == ["project/b.yml", "project/a.yml"]
    assert reader.files[0].content == b"runs: {}\n"


def test_a_name_without_a_file_is_an_error_and_a_pattern_without_one_a_warning(
    tree: Path,
) -> None:
    assert refused(tree, "typo.yml").severity is Severity.ERROR
    finding = refused(tree, "a.yml", "typo/*.yml")
    assert (finding.code, finding.severity) == ("include_unmatched", Severity.WARNING)


def test_a_file_that_includes_itself_is_named_as_that(tree: Path) -> None:
    assert refused(tree, "sgpu.yml").summary == "`sgpu.yml` is this file itself"


def test_what_is_no_file_of_the_project_is_refused(tree: Path, tmp_path: Path) -> None:
    (tree / "plan.json").write_text('{"applyable": true, "format_version": "1.0"}')
    (tree / "folder.yml").mkdir()
    for pattern, words in (
        ("runs", "it is a folder"),
        ("folder.yml", "it is a folder"),
        ("notes.txt", "its name is not that of a YAML file"),
        ("plan.json", "it is a saved plan"),
    ):
        finding = refused(tree, "a.yml", pattern)
        assert finding.code == "include_invalid"
        assert words in finding.summary


def test_a_link_out_of_the_project_is_refused_unread(tree: Path, tmp_path: Path) -> None:
    project = tmp_path / "runs"
    (project / "sgpu.yml").write_text("project: {name: p}\n")
    (project / "out.yml").symlink_to(tmp_path / "a.yml")
    (project / "up").symlink_to(tmp_path)
    (project / "in.yml").symlink_to(project / "c.yml")
    for pattern in ("out.yml", "up/a.yml"):
        finding = refused(project, pattern)
        assert finding.code == "include_invalid"
        assert f"to `{tmp_path / 'a.yml'}`" in finding.summary
    reader, included = read(project, "in.yml")
    assert (included.findings, len(reader.files)) == ((), 1)


def test_a_file_that_may_not_be_read_is_named(tree: Path) -> None:
    (tree / "gone.yml").symlink_to(tree / "nowhere.yml")
    finding = refused(tree, "gone.yml")
    assert finding.summary == "`gone.yml` cannot be included: no such file or directory"


def test_too_many_files_are_refused_before_they_are_read(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(included_files, "MOST_FILES", 2)
    assert refused(tree, "runs/**/*.y*ml").code == "include_too_many"


def test_the_files_of_a_project_are_found_from_its_root_file(tree: Path) -> None:
    root = tree / "sgpu.yml"
    assert ProjectText(root).files() == (root,)
    root.write_text("project: {name: p}\ninclude: [runs/*.yml, b.yml]\n")
    assert ProjectText(root).files() == (root, tree / "runs/c.yml", tree / "b.yml")
    assert ProjectText(tree / "missing.yml").files() == (tree / "missing.yml",)
