"""Where the locks of this host lie: one place for all sessions of a user, and nobody else's."""

import os
from pathlib import Path

import pytest

from sgpu_decl.agent import hostlocks
from sgpu_decl.backends.local.layout import host_lock_folder


def test_locks_are_the_same_in_every_session(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = set()
    for place in ("", "/run/user/0", "/var/tmp"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", place)
        monkeypatch.setenv("TMPDIR", place)
        folders.add(host_lock_folder("gpus"))
    assert len(folders) == 1
    assert folders.pop().parent.stat().st_uid == os.getuid()


@pytest.mark.parametrize("made", ["a link", "open to others", "a file"])
def test_a_folder_that_is_not_ours_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    monkeypatch.setattr(hostlocks, "_SHARED", str(tmp_path))
    home = tmp_path / f"sgpu-{os.getuid()}"
    if made == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        home.symlink_to(tmp_path / "elsewhere")
    elif made == "open to others":
        home.mkdir()
        home.chmod(0o777)
    else:
        home.touch()
    with pytest.raises(OSError, match=home.name):
        host_lock_folder("gpus")
