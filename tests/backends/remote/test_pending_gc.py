from pathlib import Path

from sgpu_decl.backends.remote.pending_gc import PendingGc


def test_a_folder_is_remembered_before_the_project_has_a_state(tmp_path: Path) -> None:
    pending = PendingGc(tmp_path / ".sgpu" / "default" / "unfreed.json")
    pending.add({"path": "/Workspace/a"})
    assert pending.all() == ({"path": "/Workspace/a"},)
    pending.settle({"path": "/Workspace/a"})
    assert pending.all() == ()
