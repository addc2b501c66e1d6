"""Where the locks of this host lie: one place for all sessions of a user, and nobody else's."""

import os
from pathlib import Path

import pytest

from sgpu_decl.agent.system import host_locks
from sgpu_decl.agent.system.host_locks import host_lock_folder


def test_locks_are_the_same_in_every_session(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = set()
    for place in ("", "/run/user/0", "/var/tmp"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", place)
        monkeypatch.setenv("TMPDIR", place)
        folders.add(host_lock_folder("gpus"))
    assert len(folders) == 1
    assert Path(folders.pop()).parent.stat().st_uid == os.getuid()


@pytest.mark.parametrize("made", ["a link", "open to others", "a file", "another user's"])
def test_a_folder_that_is_not_ours_alone_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    shared = tmp_path / "shared"
    home = shared / f"sgpu-{os.getuid()}"
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    shared.mkdir()
    monkeypatch.setattr(host_locks, "_SHARED", str(shared))
    monkeypatch.setattr(host_locks, "_RUNTIME", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    if made == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        home.symlink_to(tmp_path / "elsewhere")
    elif made == "open to others":
        home.mkdir()
        home.chmod(0o777)
    elif made == "another user's":
        if os.getuid():
            pytest.skip("only root can make a folder another user's")
        home.mkdir(mode=0o700)
        os.chown(home, 65_534, 65_534)
    else:
        home.touch()
    assert host_lock_folder("gpus") == str(runtime / "sgpu/gpus")
    assert not list((tmp_path / "elsewhere").iterdir() if made == "a link" else [])
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    with pytest.raises(PermissionError, match=r"set XDG_RUNTIME_DIR"):
        host_lock_folder("gpus")
