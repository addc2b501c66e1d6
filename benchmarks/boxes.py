"""A second apply on a machine that ssh reaches, beside `rsync` and `ssh` of the same.

The machine is this one, over an sshd of its own. Each round changes one file of many. By hand, each
command logs in, as it does unless a user configures ssh to keep connections.
"""

import os
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, measure

__all__ = ["boxes"]

FILES = 1000
BY_HAND = (
    "rsync -a --exclude .sgpu ./ box:code/ && "
    'ssh box "cd code && (setsid python3 train.py > log 2>&1 < /dev/null &)"'
)
RUN = (
    "name: train\ngpus: 1\ntype: CPU\nentrypoint: train.py\nmlflow: {enabled: false}\n"
    "backend: {kind: ssh, host: box, storage: ~/sgpu}\n"
)


def boxes(scratch: Path, sgpu: str, repeats: int) -> Iterator[Row]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.ssh_server import SshServer, sshd

    if sshd() is None or shutil.which("rsync") is None:
        print("openssh-server or rsync is not installed: no figures of machines by ssh")
        return
    folder = scratch / "boxes"
    folder.mkdir()
    (folder / "train.py").write_text("print('up')\n")
    for number in range(FILES):
        (folder / f"module_{number}.py").write_text(f"VALUE = {number}\n")
    (folder / "run.yaml").write_text(RUN)
    server = SshServer(scratch / "box-server")
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{server.path}{os.pathsep}{before}"
    try:
        ours, by_hand = [], []
        for number in range(repeats + 1):
            (folder / "module_7.py").write_text(f"VALUE = 'round {number}'\n")
            by_hand.append(measure(("sh", "-c", BY_HAND), folder).seconds)
            ours.append(measure((sgpu, "apply", "-y", "--detach", "run.yaml"), folder).seconds)
            measure((sgpu, "wait", "train"), folder)
    finally:
        os.environ["PATH"] = before
        server.close()
    took, beside = (statistics.median(column[1:]) for column in (ours, by_hand))
    yield Row(
        what=f"second apply by ssh, 1 changed file of {FILES:,}",
        took=f"{took:.2f} s",
        against=f"rsync + ssh of the same, {beside:.2f} s",
        ratio=took / beside,
        limit=1.5,
    )
