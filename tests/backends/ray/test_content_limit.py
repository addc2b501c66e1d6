"""What a machine keeps by content."""

import os
import time
from pathlib import Path

from sgpu_decl.backends.ray.cluster.content_limit import prune


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old", "older", ".index")):
        (tmp_path / name).write_bytes(bytes(1000))
        os.utime(tmp_path / name, (time.time() - 10_000 * age,) * 2)

    prune(tmp_path.as_posix(), most=3000)
    assert sorted(os.listdir(tmp_path)) == [".index", "new", "old", "older"]
    prune(tmp_path.as_posix(), most=2500)
    assert sorted(os.listdir(tmp_path)) == [".index", "new", "old"]
    prune(tmp_path.as_posix(), most=0)
    assert sorted(os.listdir(tmp_path)) == [".index", "new"]
