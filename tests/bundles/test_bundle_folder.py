"""The folder of what the jobs of a bundle are launched from."""

from pathlib import Path

import pytest

from sgpu_decl.bundles.bundle_folder import BundleFolder
from sgpu_decl.code.selection import RENDERED
from sgpu_decl.errors import SgpuError


def staged(folder: Path, *paths: str) -> list[str]:
    for path in paths:
        if path.startswith("runs/"):
            (folder / path).mkdir(parents=True, exist_ok=True)
            (folder / path / "spec.json").write_text(path)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(path)
    return list(paths)


def there(folder: Path) -> set[str]:
    launches = {path.relative_to(folder).as_posix() for path in folder.glob("runs/*/*/*")}
    return launches | {path.relative_to(folder).as_posix() for path in folder.glob("objects/*/*")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sgpu"


def test_the_launches_of_the_last_three_calls_stay(folder: Path) -> None:
    bundle = BundleFolder(folder)
    bundle.make()
    for number in range(5):
        paths = staged(
            folder, f"runs/l/job.a/{number}", f"objects/code/{number}", "objects/agent/x"
        )
        bundle.keep("dev/jobs", paths, most=3)
    assert there(folder) == {
        "objects/agent/x",
        *(f"{kind}/{number}" for kind in ("runs/l/job.a", "objects/code") for number in (2, 3, 4)),
    }
    bundle.keep("dev/jobs", staged(folder, "runs/l/job.a/3"), most=1)
    assert there(folder) == {"runs/l/job.a/3"}


def test_what_did_not_change_is_no_new_call_and_targets_keep_their_own(folder: Path) -> None:
    bundle = BundleFolder(folder)
    bundle.make()
    bundle.keep("dev/jobs", staged(folder, "runs/l/job.a/0"), most=2)
    for _ in range(4):
        bundle.keep("prod/jobs", staged(folder, "runs/m/job.a/0"), most=2)
        bundle.keep("dev/jobs", staged(folder, "runs/l/job.a/1"), most=2)
    assert there(folder) == {"runs/l/job.a/0", "runs/l/job.a/1", "runs/m/job.a/0"}


@pytest.mark.parametrize("name", ["mine.py", "runs/l/job.a/0/spec.json", "jobs.yml", "objects/x"])
def test_files_of_others_are_refused_by_name(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("resources: {}\n")
    with pytest.raises(SgpuError, match=name.partition("/")[0]) as refused:
        BundleFolder(folder).refuse_foreign_files()
    assert refused.value.code == "bundle_foreign_files"


def test_a_checkout_with_rendered_jobs_alone_is_ours(folder: Path) -> None:
    folder.mkdir()
    (folder / "jobs.prod.yml").write_text(RENDERED + "targets: {}\n")
    (folder / ".gitignore").write_text("*\n")
    BundleFolder(folder).refuse_foreign_files()


def test_a_file_in_the_place_of_the_folder_is_refused(folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(SgpuError, match="files which sgpu did not write: `sgpu`"):
        BundleFolder(folder).refuse_foreign_files()
