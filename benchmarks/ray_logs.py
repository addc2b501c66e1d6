"""Logs of four ranks on a Ray cluster, each of which writes 1 MB/s: how late `sgpu logs -f` shows
their lines, and what the head keeps of them in memory. And many submissions at once.

The clocks of ranks and reader are one: all nodes are processes of this machine.
"""

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from measuring import Row

from sgpu_decl.agent.system.processes import related
from sgpu_decl.api import Location, Session
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster

__all__ = ["ray_logs"]

SGPU = str(Path(sys.executable).with_name("sgpu"))
RANKS = 4
SECONDS = 30
SETTLED = 10  # seconds after which memory is measured for the first time
RATE = 1_000_000  # bytes of a rank in a second
LATE = 1.5  # seconds
SUBMISSIONS = 100
SPEAKS = f"""\
import sys, time

def main():
    line = "x" * 199 + "\\n"
    began, written = time.monotonic(), 0
    while (passed := time.monotonic() - began) < {SECONDS}:
        due = int(passed * {RATE})
        while written < due:
            stamp = f"stamp={{time.time():.3f}} ".ljust(199, "x") + "\\n"
            sys.stdout.write(stamp + line * 24)
            written += 5000
        time.sleep(0.005)
"""
STAMP = re.compile(rb"stamp=(\d+\.\d+) ")
RUN = """\
name: {name}
gpus: {gpus}
type: CPU
mlflow: {{enabled: false}}
backend: {{kind: ray, address: '{url}', ranks_per_node: {each}{storage}}}
"""


def ray_logs(scratch: Path) -> Iterator[Row]:
    if find_spec("ray") is None:
        print("Ray is not installed: no figures about logs of ranks on it")
        return
    folder = scratch / "ray_logs"
    (folder / "storage").mkdir(parents=True)
    (folder / "speaks.py").write_text(SPEAKS)
    with ray_cluster(nodes=2, cpus=2) as cluster:
        for name, storage in (("with", f", storage: {folder / 'storage'}"), ("without", "")):
            yield from _followed(name, storage, cluster, folder)
    with ray_cluster(nodes=1, cpus=1) as cluster:
        yield _submitted(cluster, folder)


def _followed(name: str, storage: str, cluster: RayCluster, folder: Path) -> Iterator[Row]:
    """Run the ranks, and read their lines as a user does."""
    file = folder / "run.yaml"
    text = RUN.format(name=name, gpus=RANKS, url=cluster.url, each=RANKS // 2, storage=storage)
    file.write_text(f"{text}entrypoint: speaks.py:main\n")
    with Session.open(Location(file=file, project=folder)) as session:
        session.apply(session.plan())
    late: list[float] = []
    memory: list[tuple[float, int]] = []
    follow = [SGPU, "logs", name, "-f", "--rank", "all"]
    with subprocess.Popen(follow, cwd=folder, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        rest, began = b"", None
        while chunk := os.read(reader.stdout.fileno(), 1 << 20):
            now = time.time()
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            late += [now - float(stamp) for stamp in STAMP.findall(whole)]
            began = began or now
            due = SETTLED if not memory else SECONDS - 1
            if len(memory) < 2 and now - began > due:
                memory.append((now, _memory(cluster)))
    expected = RANKS * SECONDS * RATE // 5000
    if len(late) < expected * 0.99 or len(memory) < 2:
        sys.exit(f"`sgpu logs -f` showed {len(late)} of {expected} stamps")
    p95 = statistics.quantiles(late, n=20)[-1]
    yield Row(
        what=f"{RANKS} ranks on Ray at 1 MB/s, {name} storage: lines in `sgpu logs -f`",
        took=f"{p95:.2f} s",
        against=f"{LATE} s, 95 % of {len(late):,} lines; the median {statistics.median(late):.2f}",
        ratio=p95 / LATE,
        limit=1.0,
    )
    (first, before), (last, after) = memory
    written = (last - first) * RANKS * RATE
    yield Row(
        what="the same: what the memory of the head node grows by",
        took=f"{(after - before) / 1e6:.1f} MB",
        against=f"{written / 1e6:.0f} MB of lines; it has {before / 1e6:.0f} MB",
        ratio=max(0, after - before) / written,
        limit=0.1,
    )


def _memory(cluster: RayCluster) -> int:
    """The bytes of all processes of the head node, the driver among them, without files and what
    they share."""
    total = 0
    for pid in related(cluster.nodes[0].pid):
        with suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            total += sum(int(size) * 1024 for size in re.findall(r"RssAnon:\s+(\d+) kB", status))
    return total


def _submitted(cluster: RayCluster, folder: Path) -> Row:
    """Launch the cells of a matrix. Ray would start all of their drivers at once, with 0.2 GB and a
    second of a core each. So its raylet is stopped once a first run has ended, and the cluster ends
    with the last answer."""
    file = folder / "many.yaml"
    storage = f", storage: {folder / 'storage'}"
    text = RUN.format(name="many", gpus=1, url=cluster.url, each=1, storage=storage)
    file.write_text(f'{text}matrix: {{n: [-1]}}\ncommand: ["true", "${{matrix.n}}"]\n')
    with Session.open(Location(file=file, project=folder)) as session:
        session.runs.wait(session.apply(session.plan()).launched)
    cells = list(range(SUBMISSIONS))
    file.write_text(f'{text}matrix: {{n: {cells}}}\ncommand: ["true", "${{matrix.n}}"]\n')
    with Session.open(Location(file=file, project=folder)) as session:
        prepared = session.plan()
        (raylet,) = cluster.processes(0, "raylet")
        os.kill(raylet, signal.SIGSTOP)
        began = time.perf_counter()
        launched = session.apply(prepared).launched
        seconds = time.perf_counter() - began
    if len(launched) < SUBMISSIONS:
        sys.exit(f"{len(launched)} of {SUBMISSIONS} runs were submitted")
    return Row(
        what=f"one apply submits {SUBMISSIONS} runs to Ray",
        took=f"{seconds:.1f} s",
        against="10 s; the raylet of the head is stopped",
        ratio=seconds / 10,
        limit=1.0,
    )
