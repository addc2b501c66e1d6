import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu_decl.code import snapshot as snapshot_module
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import changed, snapshot
from sgpu_decl.diagnostics.diagnostic import Severity
from tests.code.conftest import Plant


def _paths(root: Path, **options: Any) -> list[str]:
    taken, findings = snapshot(root, **options)
    # The `.git` of some trees is no repository.
    assert {found.code for found in findings} <= {"git_refused"}
    return [entry.path for entry in taken.entries]


def _codes(root: Path, **options: Any) -> list[str]:
    taken, findings = snapshot(root, **options)
    assert taken is None
    return [found.code for found in findings]


def test_a_tree_is_its_files_sorted_by_path(plant: Plant) -> None:
    root = plant({"b.py": "b", "a/z.py": "z", "a.py": "a"})
    taken, _ = snapshot(root)
    assert [(entry.path, entry.size, entry.executable) for entry in taken.entries] == [
        ("a.py", 1, False),
        ("a/z.py", 1, False),
        ("b.py", 1, False),
    ]
    assert taken.digest.startswith("sha256:")


def test_what_never_counts_is_not_taken(plant: Plant) -> None:
    never = (
        ".git/config",
        ".sgpu/default/state.db",
        ".venv/bin/x",
        "a/__pycache__/m.pyc",
        "m.pyc",
        ".ipynb_checkpoints/n",
        "mlruns/0",
        "mlflow.db",
        "train.log",
        ".mypy_cache/x",
        ".ruff_cache/x",
        ".pytest_cache/x",
        ".hypothesis/x",
        "node_modules/x",
        "env/pyvenv.cfg",
        "env/lib/python/site.py",
    )
    assert _paths(plant({"train.py": "", **dict.fromkeys(never, "x")})) == ["train.py"]


def test_what_never_counts_is_not_taken_as_a_link_or_a_file_either(
    plant: Plant, tmp_path: Path
) -> None:
    root = plant({"train.py": "", ".git": "gitdir: ../.git/worktrees/here"})
    (root / ".sgpu").symlink_to(tmp_path)
    assert _paths(root) == ["train.py"]


# The files, the folder below them that is the root, options, and what is taken of it.
RULES: dict[str, tuple[dict[str, str], str, dict[str, list[str]], list[str]]] = {
    "ignore files hold for their folder, and deeper ones win": (
        {".gitignore": "*.bin\n/data/\n", "a.bin": "", "data/x": "", "sub/other.bin": "",
         "sub/.gitignore": "!keep.bin\n", "sub/keep.bin": "", "sub/data/x": ""},
        "", {}, ["sub/data/x", "sub/keep.bin"]),
    "sgpuignore adds to gitignore, and wins over it": (
        {".gitignore": "*.a\n", ".sgpuignore": "*.b\n!x.a\n", "x.a": "", "y.a": "", "z.b": ""},
        "", {}, ["x.a"]),
    "a line that is no pattern is passed over, as git does": (
        {".gitignore": "!\n[z-a]\n*.bin\n", "a.bin": "", "b": ""}, "", {}, ["b"]),
    "rules above the root hold up to the top of the repository": (
        {".git/HEAD": "", ".gitignore": "*.ckpt\n/deep/down/out/\n", "deep/down/out/x": "",
         "deep/.gitignore": "!best.ckpt\n", "deep/down/train.py": "", "deep/down/a.ckpt": "",
         "deep/down/best.ckpt": ""},
        "deep/down", {}, ["best.ckpt", "train.py"]),
    "rules above the root that ignore the root itself are not meant": (
        {".git/HEAD": "", ".gitignore": "scratch/\n", "scratch/train.py": ""},
        "scratch", {}, ["train.py"]),
    "rules above the root, outside of a repository, do not count": (
        {".gitignore": "*\n", "code/train.py": ""}, "code", {}, ["train.py"]),
    "include does not bring back whole environments": (
        {"train.py": "", "env/pyvenv.cfg": "", "env/a.py": "", ".git/hooks/b.py": ""},
        "", {"include": ["**/*.py"]}, ["train.py"]),
    "exclude leaves out": (
        {"a.py": "", "tests/b.py": ""}, "", {"exclude": ["tests/"]}, ["a.py"]),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_rules_say_which_files_are_code(plant: Plant, case: str) -> None:
    files, root, options, taken = RULES[case]
    assert _paths(plant(files) / root, **options) == taken


def test_include_wins_over_ignore_files_also_inside_an_ignored_folder(plant: Plant) -> None:
    root = plant({".gitignore": "data/\n", "data/vocab.txt": "", "data/big": "", "a.py": ""})
    assert _paths(root, include=["data/vocab.txt"]) == ["a.py", "data/vocab.txt"]
    assert _paths(root, include=["data"]) == ["a.py", "data/big", "data/vocab.txt"]


def test_an_ignored_folder_that_include_cannot_mean_is_not_looked_into(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plant({".gitignore": "data/\n", "data/x": "", "a.py": "", "cfg/x": ""})
    seen: list[str] = []
    real = os.scandir

    def scandir(path: Any) -> Any:
        seen.append(str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    snapshot(root, include=["cfg/*.yaml"])
    assert not any(path.endswith("data") for path in seen)


def test_a_pattern_that_git_would_not_take_is_an_error(plant: Plant) -> None:
    root = plant({"a.py": ""})
    assert _codes(root, exclude=["!"], include=["["]) == ["pattern_invalid", "pattern_invalid"]


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".env.prod",
        ".envrc",
        "key.pem",
        "bundle.p12",
        ".git-credentials",
        ".pypirc",
        ".npmrc",
        "kubeconfig",
        "kaggle.json",
        ".kube/config",
        "id_rsa",
        "id_ed25519.pub",
        ".netrc",
        ".databrickscfg",
        ".aws/credentials",
        "sub/.ssh/config",
    ],
)
def test_a_secret_is_left_out_and_listed_and_cannot_be_included(plant: Plant, name: str) -> None:
    root = plant({"a.py": "", name: "token"})
    taken, findings = snapshot(root, include=["*"])
    assert findings == ()
    assert [entry.path for entry in taken.entries] == ["a.py"]
    assert len(taken.left_out) == 1
    assert name.startswith(taken.left_out[0])
    assert _codes(root, include=[name]) == ["secret_included"]


def test_sgpus_own_files_are_known_by_content(plant: Plant) -> None:
    ours = {
        "run.yaml": "name: a\ngpus: 1\ntype: CPU\nentrypoint: a.py\n",
        "other.yml": "gpus: 2\ncommand: [x]\n",
        "modeline.yaml": "# yaml-language-server: $schema=../schemas/run.v1.schema.json\n{}\n",
        "sgpu.yml": "project: {name: x}\nruns: {}\n",
        "saved.json": '{"applyable":true,"changes":[{"address":"run.a"}],"format_version":"1.0"}',
        "saved": '{"format_version": "1.0", "applyable": true, "changes": [{"address": "run.a"}]}',
    }
    kept = {"config.yaml": "gpus: 8\nlr: 1\n", "data.json": '{"changes": []}', "a.py": ""}
    assert _paths(plant({**ours, **kept})) == sorted(kept)


def test_a_file_named_as_ours_is_not_code(plant: Plant) -> None:
    root = plant({"a.py": "", "odd.yaml": "{gpus: 1}"})
    assert _paths(root, owners=[root / "odd.yaml"]) == ["a.py"]


def test_linked_data_is_neither_read_nor_in_the_digest(plant: Plant) -> None:
    root = plant({"a.py": "", "data/big": "1"})
    before, _ = snapshot(root, link=["data/"])
    (root / "data/big").write_text("2")
    after, _ = snapshot(root, link=["data"])
    assert [entry.path for entry in after.entries] == ["a.py"]
    assert before.digest == after.digest


@pytest.mark.parametrize("link", ["../data", "/data", "nowhere", "."])
def test_a_link_must_be_a_path_in_the_tree(plant: Plant, link: str) -> None:
    assert _codes(plant({"a.py": ""}), link=[link]) == ["code_link_invalid"]


def test_links_inside_the_tree_stay_links(plant: Plant) -> None:
    root = plant({"a.py": "", "sub/b.py": ""})
    (root / "sub/rel").symlink_to("../a.py")
    (root / "sub/abs").symlink_to(root / "a.py")
    (root / "folder").symlink_to("sub")
    taken, findings = snapshot(root)
    assert findings == ()
    assert {entry.path: entry.target for entry in taken.entries if entry.target} == {
        "sub/rel": "../a.py",
        "sub/abs": "../a.py",
        "folder": "sub",
    }


def test_a_link_out_of_the_tree_is_an_error_unless_it_is_linked_data(
    plant: Plant, tmp_path: Path
) -> None:
    root = plant({"a.py": ""})
    (root / "data").symlink_to(tmp_path)
    assert _codes(root) == ["link_outside"]
    assert _paths(root, link=["data"]) == ["a.py"]


def test_a_link_to_something_left_out_is_warned_of(plant: Plant) -> None:
    root = plant({"a.py": "", ".gitignore": "big/\n", "big/x": ""})
    (root / "data").symlink_to("big")
    (root / "broken").symlink_to("nothing")
    taken, findings = snapshot(root)
    assert taken is not None
    assert [(finding.code, finding.severity) for finding in findings] == [
        ("link_dangling", Severity.WARNING)
    ]


def test_links_in_a_circle_do_no_harm(plant: Plant) -> None:
    root = plant({"a.py": ""})
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x")
    assert _paths(root) == ["a.py", "x", "y"]


def test_a_root_that_is_no_folder_is_an_error(plant: Plant) -> None:
    assert _codes(plant({"a.py": ""}) / "a.py") == ["code_root_missing"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may read anything")
def test_a_file_that_cannot_be_read_is_an_error(plant: Plant) -> None:
    root = plant({"a.py": "", "b.py": ""})
    (root / "b.py").chmod(0)
    assert _codes(root) == ["code_unreadable"]


def test_a_root_with_far_too_many_files_is_refused_before_it_is_read(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "MOST_FILES", 3)
    assert _codes(plant(dict.fromkeys("abcd", ""))) == ["code_too_many_files"]


def test_very_large_code_is_warned_of_with_its_largest_files(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "LARGE", 10)
    root = plant({"a.py": "", "weights": "more than ten"})
    taken, findings = snapshot(root)
    assert taken is not None
    assert "`weights`" in findings[0].hint


def test_very_many_files_are_warned_of_with_the_folders_that_hold_most(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "MANY", 3)
    root = plant({"a.py": "", "data/1": "1", "data/2": "2", "lib/x.py": ""})
    (warning,) = snapshot(root)[1]
    assert warning.code == "code_large"
    assert "holds 4 files" in warning.summary
    assert "`data/` (2), `lib/` (1)" in warning.hint
    assert snapshot(root, exclude=["lib"])[1] == ()


def test_sgpuignore_wins_over_gitignore_beside_it(plant: Plant) -> None:
    root = plant({".gitignore": "*.txt", ".sgpuignore": "!vocab.txt", "vocab.txt": "", "b.txt": ""})
    taken, _ = snapshot(root)
    assert taken is not None
    assert [entry.path for entry in taken.entries] == ["vocab.txt"]


def test_names_that_are_not_utf8_have_a_digest_and_can_be_stored(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    root = plant({"a.py": ""})
    with open(os.fsencode(root) + b"/\xff", "wb"):
        pass
    taken, _ = snapshot(root)
    assert taken is not None
    store.put(taken)
    assert store.manifest(taken.digest).entries == taken.entries
    store.materialize(taken.digest, tmp_path / "copy")
    assert b"\xff" in os.listdir(os.fsencode(tmp_path / "copy"))


def test_looking_changes_nothing(plant: Plant) -> None:
    root = plant({"a.py": "", ".gitignore": "x"})
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    snapshot(root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


names = st.sampled_from(["a.py", "b.py", "p/c.py", "p/q/d.txt", "e"])
trees = st.dictionaries(names, st.text(max_size=5), min_size=1)


def _grow(root: Path, tree: Mapping[str, str]) -> None:
    for name, content in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8", newline="")


@given(trees, st.data())
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_digest_is_of_content_alone_and_one_changed_byte_is_one_changed_path(
    tmp_path_factory: pytest.TempPathFactory, tree: Mapping[str, str], data: st.DataObject
) -> None:
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    _grow(one, tree)
    _grow(two, dict(reversed(tree.items())))
    first, _ = snapshot(one)
    for name in tree:
        os.utime(two / name, (1, 1))
    second, _ = snapshot(two)
    assert first is not None
    assert second is not None
    assert (first.digest, first.entries) == (second.digest, second.entries)
    assert changed(first, second) == ()

    touched = data.draw(st.sampled_from(sorted(tree)))
    (two / touched).write_bytes((two / touched).read_bytes() + b"!")
    third, _ = snapshot(two)
    assert third is not None
    assert third.digest != first.digest
    assert changed(first, third) == (touched,)


def test_added_removed_and_newly_executable_files_are_changes(plant: Plant) -> None:
    root = plant({"a.py": "", "b.py": "", "c.py": ""})
    before, _ = snapshot(root)
    (root / "a.py").unlink()
    (root / "b.py").chmod(0o755)
    (root / "d.py").write_text("")
    after, _ = snapshot(root)
    assert before is not None
    assert after is not None
    assert changed(before, after) == ("a.py", "b.py", "d.py")
    assert changed(None, after) == ()
