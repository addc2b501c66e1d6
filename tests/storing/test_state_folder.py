import os
from pathlib import Path

import pytest

from sgpu_decl.storing.state_folder import make_state_folder, state_folder


def test_state_lies_in_the_project_on_a_local_disk(tmp_path: Path) -> None:
    mounts = "/dev/vda / ext4 rw 0 0\n"
    assert state_folder(tmp_path, None, mounts=mounts) == (tmp_path / ".sgpu/default", None)
    assert state_folder(tmp_path, "prod", mounts=mounts) == (tmp_path / ".sgpu/prod", None)


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "fuse", "cifs", "9p"])
def test_state_of_a_project_on_a_remote_file_system_goes_under_the_users_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    project = tmp_path / "far away" / "project"
    project.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    point = str(tmp_path / "far away").replace(" ", "\\040")
    folder, note = state_folder(
        project, "dev", mounts=f"/dev/vda / ext4 rw 0 0\nserver:/x {point} {kind} rw 0 0\n"
    )
    assert folder.is_relative_to(home)
    assert folder.name == "dev"
    assert kind in note
    assert str(folder) in note
    assert not home.exists()


def test_where_everything_is_remote_the_state_stays_in_the_project(tmp_path: Path) -> None:
    folder, note = state_folder(tmp_path, None, mounts="server:/ / nfs rw 0 0\n")
    assert folder == tmp_path / ".sgpu/default"
    assert "one machine at a time" in note


def test_the_innermost_and_latest_mount_counts() -> None:
    mounts = "r / ext4 rw 0 0\ns:/ /data nfs rw 0 0\n/dev/b /data/disk xfs rw 0 0\n"
    assert state_folder(Path("/data/disk/p"), None, mounts=mounts)[1] is None
    assert state_folder(Path("/data/p"), None, mounts=mounts)[1] is not None
    covered = mounts + "t /data tmpfs rw 0 0\n"
    assert state_folder(Path("/data/p"), None, mounts=covered)[1] is None


def test_this_machines_own_mounts_can_be_read(tmp_path: Path) -> None:
    folder, _ = state_folder(tmp_path, None)
    assert folder.name == "default"


def test_a_new_state_folder_hides_itself_from_git(tmp_path: Path) -> None:
    make_state_folder(tmp_path / "project" / ".sgpu" / "dev")
    assert (tmp_path / "project" / ".sgpu" / ".gitignore").read_text() == "*\n"
    (tmp_path / "project" / ".sgpu" / ".gitignore").unlink()
    make_state_folder(tmp_path / "project" / ".sgpu" / "prod")
    assert sorted(os.listdir(tmp_path / "project" / ".sgpu")) == ["dev", "prod"]


def test_a_state_folder_whose_maker_was_killed_is_hidden_from_git(tmp_path: Path) -> None:
    (tmp_path / ".sgpu").mkdir()
    make_state_folder(tmp_path / ".sgpu" / "dev")
    assert (tmp_path / ".sgpu" / ".gitignore").read_text() == "*\n"
