"""Content on its way to the two nodes of a Ray cluster without storage, beside what Ray itself
needs to take and to move as many bytes. BENCH_RAY_CONTENT is the size in megabytes."""

import http.client
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from measuring import Row

from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster

__all__ = ["ray_content"]

SIZE = int(os.environ.get("BENCH_RAY_CONTENT", "200")) * 1_000_000  # bytes
PUT_PIECE = 64 << 20
CODE = f"{ROOT}/objects/code"
# What Ray needs to bring a file from the head to another node, where it is written.
TRANSFER = """
import sys, time, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
address, source, target = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
here = ray.get_runtime_context().get_node_id()
(other,) = [node["NodeID"] for node in ray.nodes() if node["NodeID"] != here]
@ray.remote(num_cpus=0)
class Receiver:
    def write(self, piece):
        with open(target, "ab") as file:
            file.write(piece)
place = NodeAffinitySchedulingStrategy(other, soft=False)
receiver = Receiver.options(scheduling_strategy=place).remote()
ray.get(receiver.write.remote(b""))
started = time.monotonic()
going = []
with open(source, "rb") as file:
    while piece := file.read(32 << 20):
        going.append(receiver.write.remote(ray.put(piece)))
        if len(going) > 1:
            ray.get(going.pop(0))
ray.get(going)
print(time.monotonic() - started)
"""
# What a driver does before it starts the node programs: first all is missing there, then nothing.
SEND = """
import sys, time, ray
from ray.util.placement_group import placement_group
from sgpu_decl.backends.ray.cluster.head_folder import head_folder
from sgpu_decl.backends.ray.cluster.log_copies import LogCopy
from sgpu_decl.backends.ray.cluster.node_actors import NodeGroup
from sgpu_decl.backends.ray.cluster.sent_files import SentFiles
address, archive, folder = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
ray.get(group.ready())
with open(archive, "rb") as file:
    nodes = NodeGroup(group, file.read(), {"CPU": 1}, None)
nodes.await_actors()
sent = {"objects": head_folder() + "/objects", "code": "bench", "environment": None, "files": [],
        "resume": False}
for back in ("first", "second"):
    launch = {"launch": folder, "back": f"{folder}/{back}", "sent": sent, "upstreams": []}
    started = time.monotonic()
    for _ in SentFiles(launch, LogCopy()).send(nodes._actors, f"{folder}/logs-{back}"):
        pass
    print(time.monotonic() - started)
nodes.close(1.0)
"""


def ray_content(scratch: Path) -> Iterator[Row]:
    if find_spec("ray") is None:
        return
    folder = scratch / "content"
    folder.mkdir()
    content = folder / "content"
    content.write_bytes(os.urandom(SIZE))
    # Nodes keep what they get below the temporary folder.
    with ray_cluster(nodes=2, cpus=4, environ={"TMPDIR": str(folder)}) as cluster:
        put = _put(cluster, content)
        (transferred,) = _on_head(cluster, TRANSFER, content, folder / "arrived")
        files = HeadPlace(Clusters().at(cluster.url))
        files.make_folder(CODE)  # starts the depot, which takes as long for any content
        started = time.monotonic()
        files.put(f"{CODE}/bench.tar.gz", content)
        uploaded = time.monotonic() - started
        (folder / "agent.zip").write_bytes(agent_zip()[1])
        first, second = _on_head(cluster, SEND, folder / "agent.zip", folder / "launch")
    shutil.rmtree(folder)
    yield Row(
        what=f"{SIZE / 1e6:,.0f} MB of content to two Ray nodes without storage",
        took=f"{uploaded:.1f} s to the head, {first:.1f} s to the nodes",
        against=f"PUT of as much, {put:.1f} s, and its transfer to a node, {transferred:.1f} s",
        ratio=(uploaded + first) / (put + transferred),
        limit=1.5,
    )
    yield Row(
        what="the same once more, from the head to the nodes",
        took=f"{second * 1000:.0f} ms",
        against=f"the first time, {first:.1f} s",
        ratio=second / first,
        limit=None,
    )


def _put(cluster: RayCluster, content: Path) -> float:
    """Put the bytes into the key-value store, over one key: it is the memory of the head."""
    connection = http.client.HTTPConnection(urlsplit(cluster.url).netloc)
    started = time.monotonic()
    with content.open("rb") as file:
        while piece := file.read(PUT_PIECE):
            connection.request("PUT", "/api/packages/gcs/bench.zip", piece)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                sys.exit(f"Ray does not take a value: {answer.status}")
    seconds = time.monotonic() - started
    connection.close()
    return seconds


def _on_head(cluster: RayCluster, program: str, *paths: Path) -> list[float]:
    """Run a program that prints seconds. Ray prints there too, as when an actor is ended."""
    command = [cluster.python, "-c", program, cluster.address, *map(str, paths)]
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    output = subprocess.check_output(command, env=environ, text=True)
    return [float(line) for line in output.splitlines() if re.fullmatch(r"[\d.e-]+", line)]


if __name__ == "__main__":
    for row in ray_content(Path(sys.argv[1])):
        print(row)
