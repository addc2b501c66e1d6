"""Environments: what is done with one of 25,000 files and 1 GB, beside the usual tools.

The environment is written, not installed: sources with valid bytecode, some data, a few large
libraries, as the environments of training runs are.
"""

import marshal
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

from captures import captures
from installs import installed
from measuring import Measurement, Row, measure

import sgpu_decl.agent
from sgpu_decl.content.tree_files import discard, remove
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.model.step_progress import Quiet

__all__ = ["environments", "large_environment"]

PACKAGES = 100
MODULES = 110  # of each package, each with its bytecode
DATA = 40  # files of each package
LIBRARIES = 8  # of all
LIBRARY = 82_000_000  # bytes
ROUNDS = 5
MEMORY = 200_000_000  # bytes
WHOLE = 0.05  # seconds
SEND = """
from pathlib import Path
from sgpu_decl.content.manifest import Manifest
from sgpu_decl.content.store.pack_writer import send
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
manifest = Manifest.from_bytes(Path("manifest.json").read_bytes())
send(manifest, Path("store/objects"), FolderPlace(Path.cwd()), "packs", Quiet())
"""
AGENT = Path(sgpu_decl.agent.__file__).with_name("__main__.py")


def large_environment(folder: Path) -> Path:
    """Write it as a virtual environment; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    body = "def function(x):\n    return x\n" * 300
    code = marshal.dumps(compile(body, "module", "exec"))
    for package in range(PACKAGES):
        info = site / f"package{package}-1.0.dist-info"
        info.mkdir()
        head = f"Metadata-Version: 2.1\nName: package{package}\nVersion: 1.0\n"
        (info / "METADATA").write_text(head)
        for module in range(MODULES):
            path = site / f"package{package}" / f"part{module // 10}" / f"module{module}.py"
            _write(path, f"# {package} {module}\n{body}".encode())
            facts = path.stat()
            stamp = b"".join(
                value.to_bytes(4, "little") for value in (0, int(facts.st_mtime), facts.st_size)
            )
            _write(Path(cache_from_source(str(path))), MAGIC_NUMBER + stamp + code)
        for number in range(DATA):
            path = site / f"package{package}" / "data" / f"{number}.json"
            _write(path, f'{{"{package}": {number}}}'.encode() * 100)
    half = os.urandom(LIBRARY // 2)
    for number in range(LIBRARIES):
        # As libraries: half of it compresses well. Each is another one.
        _write(site / f"package{number}" / "library.so", bytes([number]) * (LIBRARY // 2) + half)
    return folder / "bin/python"


def environments(scratch: Path) -> Iterator[Row]:
    """Trees, packs and captures of it."""
    # In a process of its own: a child's peak memory counts from its parent's.
    output = subprocess.check_output([sys.executable, __file__, scratch], text=True)
    what, python = output.splitlines()
    interpreter = scratch / "environment/bin/python"
    uv = shutil.which("uv")
    if uv is None:
        print("uv is not on the PATH: no figures beside it")
    installing = installed(scratch, interpreter, uv) if uv else None
    yield from trees(scratch, what, python, installing)
    yield from packs(scratch, python)
    yield from captures(scratch, interpreter, "package0", installing)


def prepare(scratch: Path) -> None:
    """Write the environment and take it into a store; print what it is, and its interpreter."""
    interpreter = large_environment(scratch / "environment")
    captured, findings = EnvironmentStore(scratch / "store").capture(str(interpreter), Quiet())
    if captured is None:
        sys.exit("\n".join(finding.summary for finding in findings))
    (scratch / "manifest.json").write_bytes(captured.manifest.to_bytes())
    files = [*captured.manifest.files, *captured.manifest.bytecode]
    print(f"of {len(files):,} files, {sum(file.size for file in files) / 1e9:.1f} GB")
    print(captured.base)


def trees(scratch: Path, what: str, python: str, installing: Measurement | None) -> Iterator[Row]:
    """The first tree of an environment, and a look at one that is there."""
    base = hydrating(scratch, python, scratch / "store/objects")
    first = scratch / "trees/first"
    measure((*base, f"--tree={first}"), scratch)
    rounds_here, copied = [], []
    for number in range(ROUNDS):
        tree, copy = scratch / f"trees/{number}", scratch / f"trees/copy{number}"
        rounds_here.append(measure((*base, f"--tree={tree}"), scratch))
        copied.append(measure(("cp", "-al", str(first), str(copy)), scratch))
        discard(str(tree))
        remove(str(copy))
    mine, peer = Measurement.median(rounds_here), Measurement.median(copied)
    yield Row(
        what=f"first tree {what}",
        took=str(mine),
        against=f"cp -al, {peer.seconds:.2f} s",
        ratio=mine.seconds / peer.seconds,
        limit=2,
    )
    if installing is not None:
        yield Row(
            what=f"first tree {what}",
            took=str(mine),
            against=f"uv pip install, warm cache, no bytecode, {installing.seconds:.2f} s",
            ratio=mine.seconds / installing.seconds,
            limit=None,
        )
    yield Row(
        what="first tree: memory",
        took=f"{mine.memory / 1e6:.0f} MB",
        against=f"{MEMORY / 1e6:.0f} MB",
        ratio=mine.memory / MEMORY,
        limit=1,
    )
    looks = (
        "from sgpu_decl.content.hydration import whole; import sys, time; at = time.perf_counter()"
    )
    script = f"{looks}; assert whole(sys.argv[1]); print(time.perf_counter() - at)"
    look = statistics.median(
        float(subprocess.check_output([sys.executable, "-c", script, first])) for _ in range(ROUNDS)
    )
    yield Row(
        what="a tree that is there is looked at",
        took=f"{look * 1000:.0f} ms",
        against=f"{WHOLE * 1000:.0f} ms",
        ratio=look / WHOLE,
        limit=1,
    )


def packs(scratch: Path, python: str) -> Iterator[Row]:
    """The environment on its way to a worker that has nothing, and its first tree there."""
    folder, worker, tree = scratch / "packs", scratch / "worker", scratch / "trees/first"
    send = measure((sys.executable, "-c", SEND), scratch)
    hydrate = hydrating(scratch, python, worker / "objects")
    arrive = measure((*hydrate, f"--packs={folder}", f"--tree={worker / 'trees/there'}"), scratch)
    discard(str(worker / "trees/there"))
    if shutil.which("zstd") is None:
        print("zstd is not on the PATH: no figures beside it")
        return
    archive, there = scratch / "tree.tar.zst", scratch / "there"
    there.mkdir()
    pack = measure(("sh", "-c", f"tar -C {tree} -cf - . | zstd -q -3 -T0 > {archive}"), scratch)
    unpack = measure(("sh", "-c", f"zstd -qdc {archive} | tar -C {there} -xf -"), scratch)
    remove(str(there))
    bytes_sent = sum(path.stat().st_size for path in folder.iterdir())
    for step, mine, peer in (
        ("sent in packs", send, pack),
        ("out of packs to a tree", arrive, unpack),
    ):
        yield Row(
            what=f"{step}, {bytes_sent / 1e6:.0f} MB beside {archive.stat().st_size / 1e6:.0f}",
            took=str(mine),
            against=f"tar and zstd -3, {peer.seconds:.2f} s",
            ratio=mine.seconds / peer.seconds,
            limit=None,
        )


def hydrating(scratch: Path, python: str, objects: Path) -> Sequence[str]:
    """The command that makes a tree, but for its place."""
    options = (
        f"--manifest={scratch / 'manifest.json'}",
        f"--objects={objects}",
        f"--python={python}",
    )
    return (python, "-I", "-S", str(AGENT), "hydrate", *options)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
