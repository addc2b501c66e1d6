import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.environments.captured.capture import Captured
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.model.owner import Owner, Presence
from sgpu_decl.model.step_progress import Quiet
from tests.environments.captured.conftest import Venv
from tests.mounts import mount, small_disk
from tests.support import refusing

FIXED = 946684800

TAKES = """
import sys
from pathlib import Path
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.environments.environment_store import EnvironmentStore
store = EnvironmentStore(Path(sys.argv[2]))
print(store.capture(sys.argv[1], Quiet(), cache=Path(sys.argv[3]))[0].digest)
"""
# Kills itself when it is about to do its n-th durable step.
DIES = """
import os, signal, sys
left = int(sys.argv[4])
def step(event, args):
    global left
    writes = event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT
    if event in ("os.rename", "os.mkdir", "os.link") or writes:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(step)
"""


def _take(venv: Venv, store: EnvironmentStore) -> Captured:
    captured, findings = store.capture(venv.python, Quiet(), cache=venv.cache)
    assert findings == ()
    assert captured is not None
    return captured


def _objects(store: EnvironmentStore) -> list[Path]:
    return sorted(path for path in store.objects.rglob("*") if path.is_file())


def _check(store: EnvironmentStore) -> None:
    """Every object is what its name says, and none was left half-written."""
    for path in _objects(store):
        assert path.name[:64] == hashlib.sha256(path.read_bytes()).hexdigest()
        facts = path.stat()
        assert facts.st_mtime == FIXED
        assert facts.st_mode & 0o777 == (0o555 if path.suffix == ".x" else 0o444)
        assert path.parent.name == path.name[:2]


def _runs(tree: Path, module: str) -> str:
    argv = [str(tree / "bin/python"), "-c", f"import {module}; print({module}.VERSION)"]
    return subprocess.check_output(argv, text=True).strip()


@pytest.fixture
def alpha(venv: Venv) -> Venv:
    venv.install("alpha", files={"alpha/copy.py": "same", "alpha/other.py": "same"})
    (venv.site / "alpha/tool").write_text("#!/bin/sh\necho tool\n")
    (venv.site / "alpha/tool").chmod(0o755)
    venv.write({"p.pth": "import sys\n"})
    venv.compile()
    return venv


@pytest.mark.parametrize("passes", ["one", "two"])
def test_what_was_taken_in_is_an_environment_that_runs(
    alpha: Venv, store: EnvironmentStore, passes: str
) -> None:
    if passes == "one":
        captured = _take(alpha, store)
    else:
        captured = alpha.taken()
        assert len(store.missing(captured.manifest)) > 0
        store.put(captured, Quiet())
    _check(store)
    assert store.missing(captured.manifest) == []
    assert store.manifest(captured.digest) == captured.manifest
    assert store.tree(captured.digest) is None
    tree = store.hydrate(captured.digest, Quiet())
    assert store.tree(captured.digest) == tree
    assert _runs(tree, "alpha") == "1.0"
    assert subprocess.check_output([tree / "bin/alpha"], text=True) == "1.0\n"
    assert subprocess.check_output([tree / f"{captured.manifest.sites[0]}/alpha/tool"]) == b"tool\n"


def test_equal_content_is_stored_once_and_nothing_twice(
    alpha: Venv, store: EnvironmentStore
) -> None:
    captured = _take(alpha, store)
    files = (*captured.manifest.files, *captured.manifest.bytecode)
    assert len(_objects(store)) == len({file.key for file in files}) < len(files)
    before = [(path, path.stat().st_ino) for path in _objects(store)]
    store.put(captured, Quiet())
    assert [(path, path.stat().st_ino) for path in _objects(store)] == before


def test_what_was_taken_in_is_not_the_users_file(alpha: Venv, store: EnvironmentStore) -> None:
    captured = _take(alpha, store)
    path = alpha.site / "alpha/__init__.py"
    path.write_text("VERSION = 'edited'\n")
    assert path.stat().st_nlink == 1
    _check(store)
    assert _runs(store.hydrate(captured.digest, Quiet()), "alpha") == "1.0"


def test_files_of_ours_may_become_objects_themselves(alpha: Venv, store: EnvironmentStore) -> None:
    captured = alpha.taken()
    inode = (alpha.site / "alpha/__init__.py").stat().st_ino
    store.put(captured, Quiet(), by_link=True)
    _check(store)
    assert inode in {path.stat().st_ino for path in _objects(store)}
    assert _runs(store.hydrate(captured.digest, Quiet()), "alpha") == "1.0"


def test_the_store_is_for_the_user_alone(
    alpha: Venv, store: EnvironmentStore, tmp_path: Path
) -> None:
    store.hydrate(_take(alpha, store).digest, Quiet())
    for path in (tmp_path / "store").iterdir():
        if path.is_dir():
            assert path.stat().st_mode & 0o777 == 0o700, path


@pytest.mark.parametrize("how", ["edited", "deleted"])
def test_a_file_that_changed_since_it_was_looked_at_is_named(
    alpha: Venv, store: EnvironmentStore, how: str
) -> None:
    captured = alpha.taken()
    path = alpha.site / "alpha/__init__.py"
    path.write_text("VERSION = '6.6'\n") if how == "edited" else path.unlink()
    with refusing("environment_moving", match=r"alpha/__init__\.py") as caught:
        store.put(captured, Quiet())
    assert caught.value.hint
    assert store.manifest(captured.digest) is None


@pytest.mark.expensive
def test_bytecode_that_was_compiled_anew_stops_nobody(alpha: Venv, store: EnvironmentStore) -> None:
    captured = alpha.taken()
    for path in alpha.site.rglob("*.pyc"):
        path.write_bytes(b"changed")
    store.put(captured, Quiet())
    kept = store.manifest(captured.digest)
    assert kept.files == captured.manifest.files
    assert kept.bytecode == ()
    assert _runs(store.hydrate(captured.digest, Quiet()), "alpha") == "1.0"


def test_bytecode_that_was_compiled_anew_is_not_taken_for_a_tree_that_was_written_to(
    alpha: Venv, store: EnvironmentStore
) -> None:
    first = _take(alpha, store)
    store.hydrate(first.digest, Quiet())
    for path in alpha.site.rglob("*.pyc"):
        path.unlink()
    second = _take(alpha, store)
    assert second.digest == first.digest
    assert second.manifest.bytecode != first.manifest.bytecode
    assert store.examine(first.digest) == ()


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    path.chmod(0o444)
    os.utime(path, (FIXED, FIXED))


def test_a_flipped_bit_is_found_and_mended_from_the_source(
    alpha: Venv, store: EnvironmentStore
) -> None:
    captured = _take(alpha, store)
    content = next(
        file for file in captured.manifest.files if file.path.endswith("alpha/__init__.py")
    )
    _flip(store.objects / content.key[:2] / content.key)
    assert _runs(store.hydrate(captured.digest, Quiet()), "alpha") == "1.0"
    _check(store)


@pytest.mark.parametrize("source", ["edited", "gone"])
def test_a_flipped_bit_is_refused_where_the_source_is_another(
    alpha: Venv, store: EnvironmentStore, source: str
) -> None:
    captured = _take(alpha, store)
    content = next(
        file for file in captured.manifest.files if file.path.endswith("alpha/__init__.py")
    )
    _flip(store.objects / content.key[:2] / content.key)
    path = alpha.site / "alpha/__init__.py"
    kept = path.read_text()
    path.write_text("VERSION = '6.6'\n") if source == "edited" else os.unlink(alpha.python)
    with refusing("environment_damaged"):
        store.hydrate(captured.digest, Quiet())
    assert store.tree(captured.digest) is None
    if source == "edited":
        path.write_text(kept)
        assert _take(alpha, store).digest == captured.digest
        assert _runs(store.hydrate(captured.digest, Quiet()), "alpha") == "1.0"


def test_an_environment_that_is_not_here_is_said(store: EnvironmentStore) -> None:
    with refusing("environment_missing"):
        store.hydrate("sha256:" + "0" * 64, Quiet())
    assert store.manifest("sha256:" + "0" * 64) is None
    assert store.tree("sha256:" + "0" * 64) is None
    assert store.build_of("sha256:" + "0" * 64) is None


def test_a_damaged_manifest_is_none_and_is_written_again(
    alpha: Venv, store: EnvironmentStore, tmp_path: Path
) -> None:
    captured = _take(alpha, store)
    (path,) = (tmp_path / "store/manifests").iterdir()
    path.write_bytes(path.read_bytes().replace(b"alpha", b"alphb", 1))
    assert store.manifest(captured.digest) is None
    store.put(captured, Quiet())
    assert store.manifest(captured.digest) == captured.manifest


def test_processes_may_take_in_the_same_environment_at_once(
    alpha: Venv, store: EnvironmentStore, tmp_path: Path
) -> None:
    argv = [sys.executable, "-c", TAKES, alpha.python, str(tmp_path / "store"), str(alpha.cache)]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    digests = {process.communicate()[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    (digest,) = digests
    _check(store)
    assert list((tmp_path / "store/incoming").iterdir()) == []
    assert _runs(store.hydrate(digest, Quiet()), "alpha") == "1.0"


@pytest.mark.expensive
def test_a_capture_that_is_killed_at_any_step_leaves_nothing_half_done(
    alpha: Venv, tmp_path: Path
) -> None:
    """Each durable step of a capture is once the last one; the next capture ends it."""
    where = tmp_path / "store"
    store = EnvironmentStore(where)
    digest = alpha.taken().digest
    store.capture(alpha.python, Quiet(), cache=alpha.cache)  # with all of its folders
    steps = 0
    ended = None
    while ended != 0:
        for path in (*_objects(store), *(where / "manifests").iterdir()):
            path.unlink()
        steps += 1
        argv = [
            sys.executable,
            "-c",
            DIES + TAKES,
            alpha.python,
            str(where),
            str(alpha.cache),
            str(steps),
        ]
        said = subprocess.run(argv, capture_output=True, check=False)  # and until workers end
        ended = said.returncode
        assert ended in (0, -signal.SIGKILL)
        assert said.stderr == b""
        _check(store)
        manifest = store.manifest(digest)
        assert manifest is None or store.missing(manifest) == []
    assert steps > 5
    assert _take(alpha, store).digest == digest
    _collect(store, after=0)
    assert list((where / "incoming").iterdir()) == []
    assert _runs(store.hydrate(digest, Quiet()), "alpha") == "1.0"


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
"""
REFUSED = """
import sys
from pathlib import Path
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.errors import SgpuError
try:
    EnvironmentStore(Path(sys.argv[2])).capture(sys.argv[1], Quiet(), cache=Path(sys.argv[3]))
except SgpuError as error:
    print(error.code, error.message, error.hint, sep="\\n")
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, 3 << 20):
        yield folder


def test_a_disk_that_is_full_is_said_and_the_next_try_goes_on(alpha: Venv, disk: Path) -> None:
    big = alpha.site / "alpha/big.bin"
    big.write_bytes(os.urandom(1000) * 4000)
    store = EnvironmentStore(disk / "store")
    captured = alpha.taken()
    for take in (lambda: _take(alpha, store), lambda: store.put(captured, Quiet())):
        with refusing("store_full") as caught:
            take()
        assert str(disk) in caught.value.message
        assert "sgpu gc" in caught.value.hint
        assert store.manifest(captured.digest) is None
        assert list((disk / "store/incoming").iterdir()) == []
        _check(store)
    mount("-o", "remount,size=9m", str(disk))
    _take(alpha, store)
    assert store.missing(captured.manifest) == []


def test_a_limit_of_file_sizes_is_a_full_disk(
    alpha: Venv, store: EnvironmentStore, tmp_path: Path
) -> None:
    (alpha.site / "alpha/big.bin").write_bytes(bytes(2 << 20))
    where = tmp_path / "store"
    argv = [sys.executable, "-c", LIMITED + REFUSED, alpha.python, str(where), str(alpha.cache)]
    assert subprocess.check_output(argv, text=True).splitlines()[0] == "store_full"
    assert list((tmp_path / "store/manifests").iterdir()) == []
    _check(store)


def test_a_store_that_cannot_be_written_says_so(alpha: Venv, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("in the way")
    with refusing("store_unwritable"):
        _take(alpha, EnvironmentStore(tmp_path / "store"))


class _Kills:
    """Kills the workers as soon as something is done, and no other process of the tests."""

    def __init__(self) -> None:
        self._others = set(_children())

    def advance(self, phase: str, done: int, total: int) -> None:
        for child in set(_children()) - self._others:
            os.kill(child, signal.SIGKILL)


def _children() -> Iterator[int]:
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            yield from map(int, (task / "children").read_text().split())


def test_a_worker_that_is_killed_is_said(alpha: Venv, store: EnvironmentStore) -> None:
    alpha.write({f"many/m{number}.py": str(number) for number in range(1200)})
    with refusing("environment_reader_lost"):
        store.capture(alpha.python, _Kills(), cache=alpha.cache)
    assert store.missing(_take(alpha, store).manifest) == []
    _check(store)


LATER = 10 * 3600.0


def _collect(store: EnvironmentStore, *, after: float = LATER) -> Any:
    """Collect some seconds from now, with files alone as owners."""
    return store.collect(lambda _: Presence.UNKNOWN, now=time.time() + after)


def test_collect_keeps_what_is_referred_to_and_what_is_young(
    alpha: Venv, store: EnvironmentStore, tmp_path: Path
) -> None:
    alpha.write({"beta.py": "VERSION = 1"})
    first = _take(alpha, store)
    store.hydrate(first.digest, Quiet())
    alpha.write({"beta.py": "VERSION = 2"})
    second = _take(alpha, store)
    tree = store.hydrate(second.digest, Quiet())
    owner = tmp_path / "saved.plan"
    owner.touch()
    store.refer(Owner(path=str(owner)), {second.digest})
    assert _collect(store, after=0) == 0
    assert _collect(store) > 0
    assert store.manifest(first.digest) is None
    assert store.tree(first.digest) is None
    assert store.tree(second.digest) == tree
    assert store.missing(second.manifest) == []
    assert _runs(tree, "beta") == "2"
    owner.unlink()
    assert _collect(store) == 0
    _collect(store, after=31 * 86400)
    assert _objects(store) == []
    assert list(store.trees.glob("[0-9a-f]*")) == []
    assert list((tmp_path / "store/origins").iterdir()) == []


@pytest.mark.parametrize("why", ["store_unwritable", "store_damaged"])
def test_a_manifest_that_cannot_be_read_now_deletes_nothing(
    alpha: Venv, store: EnvironmentStore, tmp_path: Path, why: str
) -> None:
    captured = _take(alpha, store)
    owner = tmp_path / "saved.plan"
    owner.touch()
    store.refer(Owner(path=str(owner)), {captured.digest})
    manifest = tmp_path / f"store/manifests/{captured.digest.removeprefix('sha256:')}.json"
    before = _objects(store)
    content = manifest.read_bytes()
    manifest.unlink()
    if why == "store_unwritable":
        manifest.mkdir()  # as a disk that fails: what is there cannot be read
    else:
        manifest.touch()  # as after a power cut
    with refusing(why):
        _collect(store)
    assert _objects(store) == before
    if why == "store_unwritable":
        manifest.rmdir()
    manifest.write_bytes(content)
    assert _collect(store) == 0
    assert store.missing(captured.manifest) == []


def test_what_a_lock_became_is_kept_by_the_lock(
    alpha: Venv, store: EnvironmentStore, tmp_path: Path
) -> None:
    captured = _take(alpha, store)
    lock = "sha256:" + "1" * 64
    store.record_build(lock, captured.digest)
    assert store.build_of(lock) == captured.digest
    path = tmp_path / "saved.plan"
    path.touch()
    owner = Owner(path=str(path))
    store.refer(owner, {lock})
    _collect(store)
    assert store.build_of(lock) == captured.digest
    assert store.missing(captured.manifest) == []
    store.refer(owner, set())
    _collect(store)
    assert store.build_of(lock) is None
    assert _objects(store) == []
