"""GPUs of a machine with several users: locks that all share, whatever lies in their folder."""

import os
import stat
from pathlib import Path

import pytest

from sgpu_decl.agent.host.gpu_gate import GpuGate


class Holder:
    """A fork, of another user if one is named, that holds the lock of GPU 0 until `end`."""

    def __init__(self, folder: Path, user: int | None = None) -> None:
        reader, taken = os.pipe()
        go_on, self._writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._writer)
                if user is not None:
                    os.setuid(user)
                gate = GpuGate(str(folder), ())
                os.write(taken, b"taken" if gate.take("0") else b"refused")
                os.read(go_on, 1)
            finally:
                os._exit(0)
        os.close(taken)
        os.close(go_on)
        said = os.read(reader, 16)
        os.close(reader)
        assert said == b"taken"

    def end(self) -> None:
        os.write(self._writer, b"x")
        os.close(self._writer)
        os.waitpid(self._pid, 0)


def test_a_gpu_has_one_run_of_all_users_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    old = os.umask(0o077)
    try:
        other = Holder(folder)
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / "gpu-0").stat().st_mode) == 0o666
    ours = GpuGate(str(folder), ())
    assert (ours.take("0"), ours.take("1")) == (False, True)
    other.end()
    ours.wait("0")
    assert ours.take("0")
    ours.touch()
    ours.release()
    Holder(folder).end()


def test_another_user_holds_a_gpu_in_a_file_of_his_own(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root starts a program of another user")
    folder = Path("/tmp", f"sgpu-test-{os.getpid()}")
    GpuGate(str(folder), ()).release()
    try:
        other = Holder(folder, user=65_534)
        assert (folder / "gpu-0").stat().st_uid == 65_534
        ours = GpuGate(str(folder), ())
        assert not ours.take("0")
        other.end()
        assert ours.take("0")
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.parametrize("hostile", ["a link", "a pipe", "a folder", "a socket"])
def test_what_is_no_lock_file_is_said_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hostile: str
) -> None:
    path, precious = tmp_path / "gpu-0", tmp_path / "precious"
    tmp_path.chmod(0o1777)
    if hostile == "a link":
        path.symlink_to(precious)
    elif hostile == "a pipe":
        os.mkfifo(path)
    elif hostile == "a folder":
        path.mkdir()
    else:
        os.mknod(path, stat.S_IFSOCK | 0o666)
    gate = GpuGate(str(tmp_path), ())
    gate.wait("0")
    assert gate.take("0")
    gate.touch()
    assert "cannot share the lock of GPU 0 with other users" in capsys.readouterr().err
    assert not precious.exists()


@pytest.mark.parametrize("hostile", ["open to all", "a link", "a file"])
def test_a_folder_whose_files_others_may_delete_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hostile: str
) -> None:
    folder, other = tmp_path / "locks", tmp_path / "other"
    other.mkdir()
    if hostile == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    elif hostile == "a link":
        folder.symlink_to(other)
    else:
        folder.touch()
    assert GpuGate(str(folder), ()).take("0")
    assert "cannot share locks of GPUs with other users in" in capsys.readouterr().err
    assert not list(other.iterdir())
    assert hostile != "open to all" or not list(folder.iterdir())


def test_a_lock_file_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    """A cleaner deleted it: who comes then still excludes who comes later."""
    folder = tmp_path / "locks"
    first = Holder(folder)
    (folder / "gpu-0").unlink()
    second = Holder(folder)
    assert not GpuGate(str(folder), ()).take("0")
    first.end()
    second.end()
