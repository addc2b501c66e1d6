"""What the depot does with messages of clients: right ones, wrong ones, and on a full disk."""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.ray.cluster.depot import _Depot

ON_A_FULL_DISK = """
import sys
from pathlib import Path
from tests.backends.ray.test_depot_messages import Client
client = Client(Path(sys.argv[1]))
error = client.ask(b"x" * 4_000_000, do="piece", upload="ab", number=0, offset=0)["error"]
assert error == {"code": "no_room", "message": "No space left on device"}, error
assert client.ask(b"y" * 1_000_000, do="put", path="a").get("error") is None
error = client.ask(b"z" * 4_000_000, do="put", path="a")["error"]
assert error["code"] == "no_room", error
for number, size in ((0, 1), (1, 4), (1, 1)):  # the second one takes the first with it
    place = {"number": number, "offset": number * 500_000}
    client.ask(b"x" * size * 500_000, do="piece", upload="cd", **place)
error = client.ask(do="join", path="b", upload="cd", pieces=2)["error"]
assert error["message"] == "a piece of it is missing", error
assert client.there() == {"a"} and (client.root / "a").read_bytes() == b"y" * 1_000_000
"""

STARTED_ON_A_FULL_DISK = """
import sys
from pathlib import Path
from sgpu_decl.backends.ray.cluster import depot
root = Path(sys.argv[1]) / "sgpu"
store = {b"gcs://sgpu-depot-c-1": b'{"do": "delete", "path": "runs/old", "sha256": "%s"}\\n'}
depot._internal_kv_list = lambda _: list(store)
depot._internal_kv_get, depot._internal_kv_del = store.get, store.pop
started = depot._Depot(str(root), idle=0.0)
for name in ("objects/code/c", "runs/old/large"):
    (root / name).parent.mkdir(parents=True)
try:
    (root / "runs/old/large").write_bytes(bytes(4_000_000))
except OSError:
    pass
assert started.run("job") == 0
assert not (root / "runs/old").exists() and not store
assert "error" not in (root / ".depot/answers/c-1").read_text()
assert (root / "objects/.index").exists()
""".replace("%s", hashlib.sha256().hexdigest())


class Client:
    """Of a depot with its folder below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "sgpu"
        self._depot = _Depot(str(self.root))
        self._count = 0

    def ask(self, data: bytes = b"", **message: Any) -> dict[str, Any]:
        """Send a message; the answer."""
        whole = {"sha256": hashlib.sha256(data).hexdigest(), "sent": time.time(), **message}
        return self.send(json.dumps(whole).encode() + b"\n" + data)

    def send(self, value: bytes) -> dict[str, Any]:
        self._count += 1
        self._depot.answer(f"c-{self._count}", value)
        answer: dict[str, Any] = json.loads(
            (self.root / ".depot/answers" / f"c-{self._count}").read_text()
        )
        return answer

    def answer(self, name: str) -> None:
        """Have a message with this id answered."""
        self._depot.answer(name, b'{"do": "hello"}\n')

    def sweep(self) -> None:
        self._depot.sweep()

    def there(self) -> set[str]:
        """The names of what was written, beside what is the depot's own."""
        return {path.name for path in self.root.iterdir()} - {".depot", ".index"}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


def test_a_file_of_several_pieces_is_the_one_that_was_sent(client: Client) -> None:
    for number, piece in ((1, b"world"), (0, b"hello ")):
        place = {"number": number, "offset": 6 * number}
        assert "error" not in client.ask(piece, do="piece", upload="ab", **place)
    assert "error" not in client.ask(do="join", path="a", upload="ab", pieces=2)
    assert (client.root / "a").read_bytes() == b"hello world"
    assert "error" not in client.ask(do="join", path="a", upload="ab", pieces=2)  # once more


@pytest.mark.parametrize("path", ["../out", "/tmp/out", "a/../../out", "..", "../sgpu-beside/out"])
@pytest.mark.parametrize("do", ["put", "folder", "delete", "join"])
def test_no_path_leads_out_of_the_folder(client: Client, do: str, path: str) -> None:
    (client.root.parent / "sgpu-beside").mkdir()
    answer = client.ask(b"x", do=do, path=path, upload="ab", pieces=0)
    assert answer["error"]["message"] == "the path leads out of the folder"
    assert {path.name for path in client.root.parent.iterdir()} == {"sgpu", "sgpu-beside"}


@pytest.mark.parametrize("path", [".depot", ".depot/lock", "a/../.depot/depot.json"])
def test_the_files_of_the_depot_are_its_own(client: Client, path: str) -> None:
    for do in ("put", "folder", "delete"):
        answer = client.ask(b"x", do=do, path=path)
        assert answer["error"]["message"] == "the path is that of the depot itself"


def test_an_upload_that_takes_long_is_kept_and_one_that_was_left_is_not(client: Client) -> None:
    uploads = client.root / ".depot/uploads"
    for upload in ("aa", "bb"):
        client.ask(b"hello ", do="piece", upload=upload, number=0, offset=0)
    for path in uploads.iterdir():
        os.utime(path, (time.time() - 4000,) * 2)
    client.ask(b"world", do="piece", upload="aa", number=1, offset=6)

    client.sweep()

    assert {path.name for path in uploads.iterdir()} == {"aa", "aa.0", "aa.1"}
    assert "error" not in client.ask(do="join", path="a", upload="aa", pieces=2)
    assert (client.root / "a").read_bytes() == b"hello world"


@pytest.mark.parametrize("name", ["../../out", "/tmp/out", "", "put", "ab/c", "a" * 200])
def test_no_name_of_an_upload_leads_elsewhere(client: Client, name: str) -> None:
    answer = client.ask(b"x", do="piece", upload=name, number=0, offset=0)
    assert answer["error"]["message"] == "an upload cannot have this name"
    assert list((client.root / ".depot/uploads").iterdir()) == []


@pytest.mark.parametrize("name", ["../../out", "x", "", "a/b"])
def test_a_message_with_another_kind_of_id_is_not_answered(client: Client, name: str) -> None:
    client.answer(name)
    assert list((client.root / ".depot/answers").iterdir()) == []
    assert client.there() == set()


def test_content_that_changed_on_its_way_is_refused(client: Client) -> None:
    for digest in (hashlib.sha256(b"other").hexdigest(), "", None):
        for message in ({"do": "put", "path": "a"}, {"do": "piece", "upload": "ab"}):
            answer = client.ask(b"x", **message, number=0, offset=0, sha256=digest)
            assert "another content" in answer["error"]["message"]
    assert client.there() == set()


def test_an_old_message_changes_nothing(client: Client) -> None:
    old = time.time() - 400
    assert "five minutes" in client.ask(b"x", do="put", path="a", sent=old)["error"]["message"]
    assert client.there() == set()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\n",
        b"no JSON\n",
        b"[]\n",
        b"{}\n",
        b'{"sha256": 1}\n',
        b"\xff\n",
        b'{"sent": "x"}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_message_is_refused_and_ends_nothing(client: Client, value: bytes) -> None:
    assert client.send(value)["error"]["code"] == "remote_broken"
    assert "error" not in client.ask(b"x", do="put", path="a")


@pytest.mark.parametrize(
    "message",
    [
        {"do": "dance"},
        {},
        {"do": "join", "path": "a", "upload": "ab"},
        {"do": "piece", "upload": "ab", "number": 0, "offset": 1 << 70},
    ],
)
def test_a_message_of_another_version_is_refused(client: Client, message: dict[str, Any]) -> None:
    assert client.ask(b"x", **message)["error"]["code"] == "remote_broken"


@pytest.mark.parametrize("program", [ON_A_FULL_DISK, STARTED_ON_A_FULL_DISK])
def test_a_depot_works_on_a_full_disk(tmp_path: Path, program: str) -> None:
    """It takes the next file that fits, and deletes what it is asked to."""
    mounted = f"mount -t tmpfs -o size=3m tmpfs {tmp_path}"
    probe = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*probe, mounted], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    script = f'{mounted}; exec "$@"'
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(
        [*probe, script, "sh", *command], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
