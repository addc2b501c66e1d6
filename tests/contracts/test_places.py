"""What all places promise (`places.file_place.FilePlace`).

Another one joins by one more value of `PLACES`: a function that gives the place, and an empty
folder in it.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sgpu_decl.agent.system.folder_files import DRAFT
from sgpu_decl.backends.box.box_folder import BoxFolder
from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.workspace_files import VolumePlace, WorkspacePlace
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.errors import BackendError
from sgpu_decl.model.bucket_url import bucket_url
from sgpu_decl.places.bucket import BucketAddress, BucketPlace
from sgpu_decl.places.file_place import FilePlace, PlaceMissing, file_size
from sgpu_decl.places.folder import FolderPlace
from sgpu_decl.testing.ray_cluster import ray_cluster
from tests.backends.databricks.conftest import server, tenant, token
from tests.object_server import ObjectServer
from tests.ssh_server import SshServer

__all__ = ["server", "tenant", "token"]

Empty = tuple[FilePlace, str]


def _folder(request: pytest.FixtureRequest) -> Empty:
    root = request.getfixturevalue("tmp_path") / "shared"
    root.mkdir()
    return FolderPlace(root), str(root)


def _workspace(request: pytest.FixtureRequest) -> Empty:
    request.getfixturevalue("token")
    connection = Connection(Account())
    files = WorkspacePlace(connection)
    root = f"/Workspace/Users/{connection.user}/files"
    files.make_folder(root)
    return files, root


def _volume(request: pytest.FixtureRequest) -> Empty:
    volume: Path = request.getfixturevalue("tenant") / "Volumes" / "main" / "ml" / "files"
    volume.mkdir(parents=True)
    return VolumePlace(Connection(Account())), "/Volumes/main/ml/files"


@pytest.fixture(scope="module")
def ray_url() -> Iterator[str]:
    with ray_cluster(nodes=1, cpus=2) as cluster:
        yield cluster.url


def _head(request: pytest.FixtureRequest) -> Empty:
    files = HeadPlace(Clusters().at(request.getfixturevalue("ray_url")))
    root = f"{ROOT}/{uuid4().hex}"
    files.make_folder(root)
    return files, root


def _bucket(request: pytest.FixtureRequest) -> Empty:
    server: ObjectServer = request.getfixturevalue("object_server")
    request.getfixturevalue("object_login")
    name = f"test-{uuid4().hex[:12]}"
    server.make_bucket(name)
    url = bucket_url(f"s3://{name}/team")
    assert url is not None
    return BucketPlace(BucketAddress(url=url, endpoint=server.endpoint)), "/files"


@pytest.fixture(scope="module")
def ssh_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    server = SshServer(tmp_path_factory.mktemp("ssh") / "ssh")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{server.path}{os.pathsep}{os.environ['PATH']}")
        box = Box(BoxPlace("box", "~/sgpu"))
        yield box
    box.close()
    server.close()


def _box(request: pytest.FixtureRequest) -> Empty:
    box: Box = request.getfixturevalue("ssh_box")
    files, root = BoxFolder(box), f"{box.hello['root']}/{uuid4().hex}"
    files.make_folder(root)
    return files, root


PLACES: dict[str, Callable[[pytest.FixtureRequest], Empty]] = {
    "folder": _folder,
    "bucket": _bucket,
    "workspace": _workspace,
    "volume": _volume,
    "head": _head,
    "box": _box,
}


@pytest.fixture(
    params=[
        *(name for name in PLACES if name != "head"),
        pytest.param("head", marks=[pytest.mark.ray, pytest.mark.expensive]),
    ]
)
def empty(request: pytest.FixtureRequest) -> Empty:
    return PLACES[request.param](request)


def with_folders(empty: Empty) -> Empty:
    if isinstance(empty[0], BucketPlace):
        pytest.skip("folders are parts of names alone")
    return empty


@pytest.mark.parametrize("content", [b"", b"text", bytes(range(256)) * 20_000])
@pytest.mark.parametrize("form", ["bytes", "file"])
def test_what_was_put_is_there_for_every_call(
    empty: Empty, tmp_path: Path, content: bytes, form: str
) -> None:
    files, root = empty
    source, here = tmp_path / "source", tmp_path / "here"
    source.write_bytes(content)
    sent: list[int] = []
    received: list[int] = []

    files.put(f"{root}/a", content if form == "bytes" else source, sent.append)

    assert file_size(files, f"{root}/a") == len(content)
    assert files.get(f"{root}/a") == content
    files.fetch(f"{root}/a", here, received.append)
    assert here.read_bytes() == content
    assert sum(received) == len(content)
    (found,) = files.list(root)
    assert (found.name, found.folder, found.size) == ("a", False, len(content))
    assert abs(found.modified - files.now()) < 60
    assert form == "bytes" or not content or sent[-1] == len(content)


def test_a_file_is_created_once(empty: Empty) -> None:
    files, root = empty
    assert files.create(f"{root}/a", b"first")
    assert not files.create(f"{root}/a", b"second")
    assert files.get(f"{root}/a") == b"first"
    assert [item.name for item in files.list(root)] == ["a"]
    files.delete(f"{root}/a")
    assert files.create(f"{root}/a", b"third")


def test_of_several_that_create_a_path_one_is_told_so(empty: Empty) -> None:
    files, root = empty
    contents = [f"{number}".encode() for number in range(6)]
    with ThreadPoolExecutor(len(contents)) as threads:
        made = list(threads.map(lambda content: files.create(f"{root}/a", content), contents))
    (winner,) = (content for content, is_made in zip(contents, made, strict=True) if is_made)
    assert files.get(f"{root}/a") == winner


def test_a_file_and_a_folder_are_told_apart(empty: Empty) -> None:
    files, root = empty
    files.make_folder(f"{root}/b")
    files.put(f"{root}/b/a", b"12")
    file, folder = files.stat(f"{root}/b/a"), files.stat(f"{root}/b")
    assert file is not None
    assert folder is not None
    assert (file.name, file.folder, file.size) == ("a", False, 2)
    assert (folder.name, folder.folder) == ("b", True)
    assert [item.modified for item in files.list(f"{root}/b")] == [file.modified]
    with pytest.raises(BackendError, match="no file but a folder"):
        file_size(files, f"{root}/b")


def test_a_list_begins_after_a_name(empty: Empty) -> None:
    files, root = empty
    for name in ("a", "b", "c"):
        files.put(f"{root}/{name}", b"1")
    assert [item.name for item in files.list(root, after="a")] == ["b", "c"]
    assert files.list(root, after="c") == ()


def test_a_file_is_written_over(empty: Empty) -> None:
    files, root = empty
    for content in (b"first and longer", b"second"):
        files.put(f"{root}/a", content)
        assert files.get(f"{root}/a") == content
    assert [item.name for item in files.list(root)] == ["a"]


def test_a_listing_has_what_was_written_before_it(empty: Empty) -> None:
    """gc and launches exclude each other by that; of a real workspace it is assumed
    (`listing-lag`)."""
    files, root = empty
    for number in range(5):
        files.put(f"{root}/{number}", b"1")
        assert f"{number}" in {item.name for item in files.list(root)}


@pytest.mark.parametrize("name", ["a b", "übung", "100%25", "a#b?c", "-f", "a&b=c", "x" * 120])
def test_any_name_goes(empty: Empty, name: str, tmp_path: Path) -> None:
    files, root = empty
    files.make_folder(f"{root}/{name}")
    files.put(f"{root}/{name}/{name}", b"1")
    assert [item.name for item in files.list(root)] == [name]
    assert [item.name for item in files.list(f"{root}/{name}")] == [name]
    assert files.get(f"{root}/{name}/{name}") == b"1"
    files.fetch(f"{root}/{name}/{name}", tmp_path / "here")
    files.delete(f"{root}/{name}")
    assert files.list(root) == ()


def test_a_folder_is_listed_by_name(empty: Empty) -> None:
    files, root = empty
    files.make_folder(f"{root}/b/deep")
    for name in ("c", "B", "a", "b/inner"):
        files.put(f"{root}/{name}", b"1")
    found = files.list(root)
    assert [(item.name, item.folder) for item in found] == [
        ("B", False), ("a", False), ("b", True), ("c", False),
    ]  # fmt: skip


def test_folders_are_made_with_those_above_and_twice(empty: Empty) -> None:
    files, root = with_folders(empty)
    for _ in range(2):
        files.make_folder(f"{root}/a/b/c")
    assert [item.name for item in files.list(f"{root}/a/b")] == ["c"]


def test_what_is_not_there_is_missing(empty: Empty, tmp_path: Path) -> None:
    files, root = empty
    for path in (f"{root}/nothing", f"{root}/no/such/folder"):
        assert file_size(files, path) is None
        assert files.list(path) == ()
        files.delete(path)
        with pytest.raises(PlaceMissing, match=r"nothing|such"):
            files.get(path)
        with pytest.raises(PlaceMissing):
            files.fetch(path, tmp_path / "here")


def test_deleting_takes_a_file_or_a_folder_with_all_in_it(empty: Empty) -> None:
    files, root = empty
    files.make_folder(f"{root}/a/b")
    for path in ("x", "a/y", "a/b/z"):
        files.put(f"{root}/{path}", b"1")
    for _ in range(2):
        files.delete(f"{root}/x")
        files.delete(f"{root}/a")
    assert files.list(root) == ()


def test_an_upload_that_breaks_off_changes_nothing(empty: Empty, tmp_path: Path) -> None:
    files, root = empty
    files.put(f"{root}/a", b"old")
    large = tmp_path / "large"
    large.write_bytes(bytes(3_000_000))

    def break_off(sent: int) -> None:
        if sent:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.put(f"{root}/a", large, break_off)
    assert files.get(f"{root}/a") == b"old"
    names = [item.name for item in files.list(root)]
    if isinstance(files, BoxFolder):  # its agent may be killed before it deletes that
        names = [name for name in names if not name.startswith(DRAFT)]
    assert names == ["a"]


def test_of_several_writers_of_one_path_one_wins_and_readers_see_whole_files(
    empty: Empty,
) -> None:
    files, root = empty
    contents = [bytes([number]) * 200_000 for number in range(4)]
    files.put(f"{root}/a", contents[0])
    errors: list[BaseException] = []

    def attempt(step: Callable[[], Any]) -> None:
        try:
            step()
        except BaseException as error:
            errors.append(error)
            raise

    def read() -> None:
        for _ in range(8):
            assert files.get(f"{root}/a") in contents

    puts = ((lambda content=content: files.put(f"{root}/a", content)) for content in contents)
    steps = [read, *puts]
    threads = [threading.Thread(target=attempt, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert files.get(f"{root}/a") in contents
    assert [item.name for item in files.list(root)] == ["a"]


def test_a_file_where_a_folder_is_expected_is_an_error_with_the_path(empty: Empty) -> None:
    files, root = with_folders(empty)
    files.put(f"{root}/a", b"1")
    with pytest.raises(BackendError, match="/a") as caught:
        files.put(f"{root}/a/b", b"1")
    assert caught.value.hint
    assert files.get(f"{root}/a") == b"1"
