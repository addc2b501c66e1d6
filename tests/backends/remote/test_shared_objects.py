"""What launches share, on its way to a node: what is cut short, damaged or exchanged there is never
used, and the failure says which file that is and what to do."""

import gzip
import io
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.node.agent_process import ARCHIVE
from sgpu_decl.agent.node.node_report import REPORT, read_report, seal
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.node.setup import TREE, SharedObjects, prepare
from sgpu_decl.agent.node.stop_request import StopRequest
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.remote.launching.uploader import write_archive
from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import snapshot
from sgpu_decl.content.store.pack_writer import send
from sgpu_decl.content.tree_files import remove
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from tests.agent.node.conftest import stopping
from tests.backends.remote.conftest import PLATFORM, Shared
from tests.backends.remote.test_node_reports import upload
from tests.content.conftest import make_environment
from tests.support import PATIENCE

__all__ = ["make_environment", "stopping"]

SPEC: dict[str, Any] = {"output_dir": "output", "code_dir": "code", "secrets": {}, "tracker": None}
PLATFORM_CODE = PlatformTable(code="MY_CODE")
OWN = PlatformTable(own_objects=True)


class Place:
    """A folder of shared objects, and the code that lies there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.objects = home / "objects"
        self.source = home / "source"
        (self.source / "deep/er").mkdir(parents=True)
        (self.source / "empty.py").touch()
        (self.source / "main.py").write_text("print(1)\n")
        (self.source / "deep/er/tool.sh").write_bytes(os.urandom(3000))
        (self.source / "deep/er/tool.sh").chmod(0o755)
        (self.source / "grün").write_text("ja")
        (self.source / os.fsdecode(b"not-\xff-text")).write_text("no")
        (self.source / ("long-" * 40)).write_text("l")
        (self.source / "link").symlink_to("deep/er/tool.sh")
        (self.source / "deep/folder").symlink_to("er")
        taken, _ = snapshot(self.source)
        assert taken is not None
        store = CodeStore(home / "store")
        store.put(taken)
        self.code = taken.digest.removeprefix("sha256:")
        self.archive = self.objects / "code" / f"{self.code}.tar.gz"
        self.archive.parent.mkdir(parents=True)
        write_archive(store, taken.digest, self.archive, Quiet())

    def prepared(
        self, stopping: StopRequest, platform: PlatformTable = PLATFORM, **given: Any
    ) -> tuple[str, str] | None:
        """Prepare a node whose patience is over; the folder of the run is new."""
        run = self.home / "run"
        remove(str(run / TREE))
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        if "environment" in given:
            (run / ARCHIVE).write_bytes(agent_zip()[1])
        objects = SharedObjects(str(self.objects), own=platform.own_objects, patience=0)
        return prepare(
            {**SPEC, "resume": given.pop("resume", None)}, str(run), stopping, platform,
            **{"code": self.code, "environment": None, "objects": objects, "back": "back", **given},
        )  # fmt: skip

    def staged(self) -> dict[str, tuple[int, bytes | str]]:
        return tree_of(self.home / "run" / "code")


def tree_of(top: Path) -> dict[str, tuple[int, bytes | str]]:
    """Of each file whether its owner may execute it, and its content, or where a link leads to."""
    return {
        os.path.relpath(path, top): (
            (0, os.readlink(path)) if path.is_symlink()
            else (path.stat().st_mode & 0o100, path.read_bytes())
        )
        for place, folders, names in os.walk(top)
        for name in (*folders, *names)
        if (path := Path(place, name)).is_symlink() or path.is_file()
    }  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_code_comes_as_it_was_pinned(place: Place, stopping: StopRequest) -> None:
    assert place.prepared(stopping) is None
    assert place.staged() == tree_of(place.source)
    assert oct((place.home / "run/code").stat().st_mode)[-3:] == "700"


def test_code_that_a_platform_extracted_comes_as_it_was_pinned(
    place: Place, stopping: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(place.objects)
    monkeypatch.setenv("MY_CODE", str(place.source))
    assert place.prepared(stopping, PLATFORM_CODE) is None
    assert place.staged() == tree_of(place.source)


@pytest.mark.parametrize("harm", ["other", "more", "less", "mode"])
def test_code_that_a_platform_changed_is_extracted_again(
    place: Place, stopping: StopRequest, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    pinned, copy = tree_of(place.source), place.home / "copy"
    shutil.copytree(place.source, copy, symlinks=True)
    if harm == "other":
        (copy / "main.py").write_text("print(2)\n")
    elif harm == "more":
        (copy / "more").touch()
    elif harm == "less":
        (copy / "link").unlink()
    else:
        (copy / "deep/er/tool.sh").chmod(0o644)
    monkeypatch.setenv("MY_CODE", str(copy))
    assert place.prepared(stopping, PLATFORM_CODE) is None
    assert place.staged() == pinned


@pytest.mark.parametrize(
    "platform",
    [PLATFORM, pytest.param(OWN, marks=pytest.mark.expensive)],
    ids=["shared", "own"],
)
def test_no_archive_that_is_cut_short_or_damaged_is_used(
    place: Place, stopping: StopRequest, platform: PlatformTable
) -> None:
    whole = place.archive.read_bytes()
    step = len(whole) // 25
    flipped = (
        whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        for at in range(10, len(whole), step)
    )
    refused = 0
    for content in (*(whole[:at] for at in range(0, len(whole), step)), *flipped):
        place.archive.write_bytes(content)
        problem = place.prepared(stopping, platform)
        if problem is None:  # no content was harmed, but the end of the file
            assert place.staged() == tree_of(place.source)
            continue
        refused += 1
        failure, why = problem
        assert failure == "staging_failed"
        assert str(place.archive) in why
        assert "apply again" in why
        assert not (place.home / "run/code").exists()
        assert place.archive.exists() == (platform is PLATFORM)
    assert refused > 40
    place.archive.write_bytes(whole)
    assert place.prepared(stopping, platform) is None


def test_an_archive_that_is_missing_is_named(place: Place, stopping: StopRequest) -> None:
    place.archive.unlink()
    assert place.prepared(stopping) == (
        "staging_failed",
        f"the archive of the code, `{place.archive}`, is missing; apply again, which uploads it",
    )


def members(*given: tuple[str, bytes, str]) -> bytes:
    """An archive of members: the name, the kind, and the content or where it leads to."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, kind, content in given:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
            else:
                member.linkname = content
            archive.addfile(member, io.BytesIO(content.encode()))
    return packed.getvalue()


FILE, LINK, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE: Mapping[str, tuple[tuple[str, bytes, str], ...]] = {
    "above": (("../victim", FILE, "harm"),),
    "above-in": (("code/../../victim", FILE, "harm"),),
    "absolute": (("/{home}/victim", FILE, "harm"),),
    "absolute-in": (("code//{home}/victim", FILE, "harm"),),
    "by-link": (("code/a", LINK, "{home}"), ("code/a/victim", FILE, "harm")),
    "by-link-up": (("code/a", LINK, "../.."), ("code/a/victim", FILE, "harm")),
    "over-link": (("code/a", LINK, "{home}/victim"), ("code/a", FILE, "harm")),
    "folder-link": (("code/a", LINK, "{home}"), ("code/a", tarfile.DIRTYPE, ""),
                    ("code/a/victim", FILE, "harm")),
    "hard-link": (("code/a", HARD, "{home}/victim"), ("code/a", FILE, "harm")),
    "hard-link-out": (("code/a", HARD, "../../victim"),),
    "device": (("code/a", tarfile.CHRTYPE, ""),),
    "pipe": (("code/a", tarfile.FIFOTYPE, ""),),
    "top-link": (("code", LINK, "{home}"), ("code/victim", FILE, "harm")),
    "other-top": (("other/main.py", FILE, "harm"),),
    "below-file": (("code/a", FILE, "x"), ("code/a/b", FILE, "harm")),
    "deep": (("code/" + "a/" * 1500 + "b", FILE, "harm"),),
    "long": (("code/" + "a" * 300, FILE, "harm"),),
    "empty": (),
}  # fmt: skip


@pytest.mark.parametrize("harm", HOSTILE)
def test_no_member_of_an_archive_leaves_its_folder(
    place: Place, stopping: StopRequest, harm: str
) -> None:
    victim = place.home / "victim"
    victim.write_text("whole")
    filled = [
        (name.replace("{home}", str(place.home)), kind, content.replace("{home}", str(place.home)))
        for name, kind, content in HOSTILE[harm]
    ]
    place.archive.write_bytes(members(*filled))
    before = {path.name for path in place.home.iterdir()} | {"run"}

    problem = place.prepared(stopping)

    assert problem is not None
    assert problem[0] == "staging_failed"
    assert victim.read_text() == "whole"
    assert {path.name for path in place.home.iterdir()} == before
    assert not (place.home / "run/code").exists()


def test_no_change_of_a_member_is_passed_over(place: Place, stopping: StopRequest) -> None:
    """The archive is whole as gzip: its sender damaged it before, or it is that of other code."""
    plain = gzip.decompress(place.archive.read_bytes())
    pinned = tree_of(place.source)
    for at in range(0, len(plain), 501):
        changed = plain[:at] + bytes([plain[at] ^ 0x01]) + plain[at + 1 :]
        place.archive.write_bytes(gzip.compress(changed, 1))
        problem = place.prepared(stopping)
        assert problem is not None or place.staged() == pinned, at
        assert problem is None or str(place.archive) in problem[1], at


def test_a_damaged_output_that_resume_finds_is_named_and_the_way_out_leads_to_the_one_before(
    place: Place, stopping: StopRequest
) -> None:
    runs = place.home / "runs"
    for number, text in ((1, "older"), (2, "newer")):
        left = place.home / f"left-{number}"
        (left / "output").mkdir(parents=True)
        (left / "output/ckpt").write_text(text)
        upload(left, runs / f"{number}-abc/back/0/node_0")
    newest = runs / "2-abc/back/0"
    given: dict[str, Any] = {"code": None, "resume": "auto", "back": str(runs / "3-abc/back")}
    assert place.prepared(stopping, **given) is None
    assert (place.home / "run/previous_output/ckpt").read_text() == "newer"

    (newest / "node_0/output/ckpt").write_text("never")
    assert place.prepared(stopping, **given) == (
        "staging_failed",
        (
            "the output of an earlier attempt, which `resume` finds, cannot be copied: "
            f"`{newest}/node_0/output/ckpt` is not what the node wrote there; "
            f"delete `{newest}` and apply again: ranks find what the attempt before left"
        ),
    )

    shutil.rmtree(newest)
    assert place.prepared(stopping, **given) is None
    assert (place.home / "run/previous_output/ckpt").read_text() == "older"


def test_what_a_node_says_last_is_read_however_long_its_names_are(tmp_path: Path) -> None:
    node = tmp_path / "back/0/node_0"
    node.mkdir(parents=True)
    file = {"bytes": 0, "sha256": "0" * 64}
    files = {f"ranks/{'x' * 3000}-{number}": file for number in range(10_000)}
    (node / REPORT).write_bytes(seal(files=files, left=["one"]))
    assert (read_report(str(node)) or {})["left"] == ["one"]


# ── environments ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def environment(place: Place, make_environment: Any) -> Iterator[tuple[str, dict[str, bytes]]]:
    """An environment in packs: its digest, and its files by name."""
    made = make_environment({f"one{number}.py": f"x = {number}\n" * 50 for number in range(20)})
    packs = place.objects / "packs"
    send(made.manifest, made.objects, FolderPlace(packs), str(packs), Quiet())
    yield (
        made.manifest.digest.removeprefix("sha256:"),
        {path.name: path.read_bytes() for path in packs.iterdir()},
    )
    remove(str(place.home / "run" / TREE))


CASES = [
    pytest.param(own, kind, harm, id=f"{harm}-{kind}-{'own' if own else 'shared'}")
    for own in (False, True)
    for kind in ("manifest", "packs", "pack")
    for harm in ("missing", "short", "damaged", "other")
]


@pytest.mark.expensive
@pytest.mark.parametrize(("own", "kind", "harm"), CASES)
def test_no_damaged_file_of_an_environment_is_used_and_the_way_out_leads_out(
    place: Place, stopping: StopRequest, environment: Any, own: bool, kind: str, harm: str
) -> None:
    digest, files = environment
    packs = place.objects / "packs"
    (name,) = (name for name in files if name.endswith(f".{kind}"))
    whole = files[name]
    if harm == "missing":
        (packs / name).unlink()
    else:
        middle = len(whole) // 2
        flipped = bytes([whole[middle] ^ 0x10])
        (packs / name).write_bytes(
            {"short": whole[:middle], "damaged": whole[:middle] + flipped + whole[middle + 1 :],
             "other": b"{}"}[harm]
        )  # fmt: skip
    platform = OWN if own else PLATFORM

    problem = place.prepared(stopping, platform, code=None, environment=digest)

    assert problem is not None
    failure, why = problem
    assert failure == "staging_failed"
    assert str(packs / name) in why
    assert "apply again" in why
    advice = why.rpartition("; ")[2]
    if own:
        assert advice.startswith(("this node deleted its copy", "apply again"))
    else:
        for path in re.findall(r"`([^`]+)`", advice):
            Path(path).unlink()
    # Whoever uploads sends nothing of an environment that has its index, and no file twice.
    assert not (packs / f"{digest}.packs").exists()
    for other, content in files.items():
        if not (packs / other).exists():
            (packs / other).write_bytes(content)
    assert place.prepared(stopping, platform, code=None, environment=digest) is None


# ── by real nodes ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.expensive
@pytest.mark.parametrize("nodes", [1, 2])
def test_other_code_under_the_name_of_an_archive_never_runs_and_the_way_out_leads_out(
    shared: Callable[..., Shared], tmp_path: Path, nodes: int
) -> None:
    machine = shared(nodes=nodes)
    request = machine.request("def main(): return 'mine'", gpus=nodes)
    other = machine.request("def main(): return 'not mine'", number=2, gpus=nodes)
    uses, others = machine.stage(request, other)
    assert uses.code is not None
    assert others.code is not None
    archive = Path(machine.area.layout.code(uses.code))
    shutil.copyfile(machine.area.layout.code(others.code), archive)

    def run() -> list[tuple[int, str]]:
        port, lock = claim_port(host_lock_folder("ports"), os.getpid())
        started = machine.start(request, MY_FIRST="127.0.0.1", MY_PORT=str(port))
        said = [node.communicate(timeout=PATIENCE)[0] for node in started]
        os.close(lock)
        return [(node.returncode, text) for node, text in zip(started, said, strict=True)]

    assert all(code != 0 for code, _ in run())
    back = RemoteResults(machine.files, machine.folder(request), tmp_path / "attempt")
    assert back.values(0, [(rank, rank) for rank in range(nodes)]) == []
    outcome = back.outcome(0) or {}
    assert outcome["class"] == "staging_failed"
    why = outcome["first_cause"]["summary"]
    assert f"delete `{archive}` and apply again" in why
    assert others.code.removeprefix("sha256:")[:12] in why

    archive.unlink()
    machine = shared("elsewhere", nodes=nodes)
    again = machine.request("def main(): return 'mine'", number=3, gpus=nodes)
    machine.stage(again)
    request = again
    ended = run()
    assert [code for code, _ in ended] == [0] * nodes, ended
    back = RemoteResults(machine.files, machine.folder(again), tmp_path / "again")
    assert [value["value"] for value in back.values(0, [(0, 0)])] == ["mine"]
