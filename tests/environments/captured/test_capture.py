import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.content.manifest import Manifest
from sgpu_decl.environments.captured.capture import Captured, capture
from sgpu_decl.environments.captured.interpreter_facts import ask
from sgpu_decl.model.step_progress import Quiet
from tests.environments.captured.conftest import Venv

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"lib/python{MINOR}/site-packages"


def _contents(captured: Captured) -> dict[str, str]:
    return {file.path: file.content for file in captured.manifest.files}


def test_packages_commands_and_data_are_taken(venv: Venv) -> None:
    venv.install("alpha", files={"alpha/data.json": "{}"})
    (venv.site / "alpha/tool").write_text("#!/bin/sh\n")
    (venv.site / "alpha/tool").chmod(0o755)
    share = venv.path / "share/alpha/x.txt"
    share.parent.mkdir(parents=True)
    share.write_text("x")
    with open(venv.site / "alpha-1.0.dist-info/RECORD", "a") as record:
        record.write("../../../share/alpha/x.txt,sha256=y,1\n")
    captured = venv.taken()
    assert captured.manifest.sites == (SITE,)
    assert captured.manifest.packages == (("alpha", "1.0"),)
    kinds = {file.path: file.kind for file in captured.manifest.files}
    assert kinds == {
        "bin/alpha": "s",
        "share/alpha/x.txt": "f",
        f"{SITE}/alpha/__init__.py": "f",
        f"{SITE}/alpha/data.json": "f",
        f"{SITE}/alpha/tool": "x",
        f"{SITE}/alpha-1.0.dist-info/METADATA": "f",
        f"{SITE}/alpha-1.0.dist-info/RECORD": "f",
    }


def test_what_is_captured_is_a_manifest_that_can_be_trusted(venv: Venv) -> None:
    venv.install("alpha")
    captured = venv.taken()
    again = Manifest.from_bytes(captured.manifest.to_bytes(), captured.digest)
    assert again == captured.manifest


def test_the_interpreter_is_part_of_it(venv: Venv) -> None:
    python = venv.taken().manifest.python
    assert python.implementation == sys.implementation.name
    assert python.version == ".".join(map(str, sys.version_info[:3]))
    assert python.abi.startswith("cpython-")
    assert python.platform == f"linux-{os.uname().machine}"


def test_equal_environments_in_two_places_are_one(make_venv: Callable[..., Venv]) -> None:
    one, two = make_venv("one"), make_venv("two/with a longer path")
    for venv in (one, two):
        venv.install("alpha")
    (two.site / "alpha-1.0.dist-info/INSTALLER").write_text("uv\n")
    (two.site / "alpha-1.0.dist-info/REQUESTED").write_text("")
    two.compile()
    with open(two.site / "alpha-1.0.dist-info/RECORD", "a") as record:
        record.write("alpha/__pycache__/__init__.cpython-311.pyc,,\n")
    assert one.taken().digest == two.taken().digest


def test_contents_count_not_what_record_says_of_them(venv: Venv) -> None:
    venv.install("alpha")
    before = venv.taken()
    path = venv.site / "alpha/__init__.py"
    facts = path.stat()
    path.write_text(path.read_text().replace("1.0", "6.6"))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    after = venv.taken()
    assert after.digest != before.digest
    assert _contents(after)[f"{SITE}/alpha/__init__.py"] == _sha256(path.read_bytes())


@pytest.mark.usefixtures("remembers_at_once")
def test_a_second_look_reads_what_changed_and_no_more(venv: Venv) -> None:
    venv.install("alpha", files={"alpha/big.py": "#" * 5000})
    venv.install("beta")
    venv.compile()
    first = venv.taken()
    seen = _Totals()
    assert venv.look(seen)[0] == first
    assert seen.totals == set()
    path = venv.site / "beta/__init__.py"
    path.write_text("VERSION = 'of another size'\n")
    second, _ = venv.look(seen)
    assert seen.totals == {2 * path.stat().st_size}  # with its bytecode, which is stale
    assert second.digest != first.digest
    assert len(second.manifest.bytecode) == len(first.manifest.bytecode) - 1


def _same_size(venv: Venv) -> None:
    path = venv.site / "alpha/__init__.py"
    facts = path.stat()
    path.write_text("VERSION = '2.0'\n")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


CHANGES: dict[str, Callable[[Venv], object]] = {
    "a file of the same size and time": _same_size,
    "a mode": lambda venv: (venv.site / "alpha/__init__.py").chmod(0o755),
    "a file more": lambda venv: venv.write({"alpha/more.py": ""}),
    "a file less": lambda venv: (venv.site / "alpha/part.py").unlink(),
    "a file that takes another's place": lambda venv: os.replace(
        venv.site / "alpha/part.py", venv.site / "alpha/__init__.py"
    ),
    "bytecode": lambda venv: shutil.rmtree(venv.site / "alpha/__pycache__"),
    "a command": lambda venv: (venv.path / "bin/alpha").write_text("#!/bin/sh\n"),
    "a listed command": lambda venv: (venv.path / "bin/alpha").unlink(),
    "a folder on the path": lambda venv: venv.write({"more.pth": f"{venv.path}/beside\n"}),
    "a line of start-up": lambda venv: venv.write({"more.pth": "import sys\n"}),
    "a link": lambda venv: (venv.site / "linked").symlink_to("alpha"),
    "nothing": lambda _venv: None,
}


@pytest.mark.usefixtures("remembers_at_once")
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_remembered_is_what_a_first_look_finds(venv: Venv, change: str) -> None:
    venv.install("alpha", files={"alpha/part.py": "x = 1\n"})
    (venv.path / "beside").mkdir()
    (venv.path / "beside/module.py").write_text("")
    (venv.site / "gone").symlink_to("nowhere")
    (venv.site / "beta-1.0.dist-info").mkdir()
    (venv.site / "beta-1.0.dist-info/METADATA").write_text("nothing")
    venv.compile()
    _, said = venv.look()
    assert said.keys() == {"link_dangling", "metadata_broken"}
    CHANGES[change](venv)
    found = venv.look()
    assert found == replace(venv, cache=venv.path / "another cache").look()
    assert found[1] == said


@pytest.mark.usefixtures("remembers_at_once")
@pytest.mark.parametrize("damage", [b"", b"x" * 100, None])
def test_a_damaged_memory_is_none(venv: Venv, damage: bytes | None) -> None:
    venv.install("alpha")
    first = venv.taken()
    for kept in venv.cache.iterdir():
        data = kept.read_bytes()
        kept.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage is None else damage)
    assert venv.taken() == first


def test_valid_bytecode_of_the_interpreter_is_carried_in_one_form(venv: Venv) -> None:
    venv.install("alpha", files={"alpha/stale.py": "x = 1"})
    venv.compile()
    cache = venv.site / "alpha/__pycache__"
    (cache / "other.cpython-27.pyc").write_bytes(b"")
    stale = venv.site / "alpha/stale.py"
    stale.write_text("x = 22")
    captured = venv.taken()
    (file,) = captured.manifest.bytecode
    assert file.path == f"{SITE}/alpha/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    assert not any("__pycache__" in item.path for item in captured.manifest.files)
    venv.compile()
    assert len(venv.taken().manifest.bytecode) == 2
    assert venv.taken().digest == captured.digest


def test_broken_metadata_is_named_and_its_files_are_taken(venv: Venv) -> None:
    venv.install("alpha")
    venv.install("beta")
    (venv.site / "alpha-1.0.dist-info/METADATA").write_bytes(b"\xff\xfe\x00nothing")
    shutil.rmtree(venv.site / "beta-1.0.dist-info")
    (venv.site / "beta-1.0.dist-info").mkdir()
    venv.write({"beta-1.0.dist-info/RECORD": "beta/__init__.py,,\n"})
    captured, _ = venv.look()
    _, findings = capture(venv.python, progress=Quiet(), cache=venv.cache)
    assert [finding.code for finding in findings] == ["metadata_broken"] * 2
    assert [finding.severity for finding in findings] == ["warning"] * 2
    assert "`alpha-1.0.dist-info`" in findings[0].summary
    assert "`beta-1.0.dist-info`" in findings[1].summary
    assert captured.manifest.packages == ()
    assert "alpha/__init__.py" in venv.inside(captured)


def test_caches_and_leftovers_are_left_out(venv: Venv) -> None:
    venv.install("alpha")
    before = venv.taken().digest
    venv.write(
        {
            "alpha/__pycache__/x.pyc": "x",
            "alpha/.mypy_cache/x.json": "x",
            "~lpha/__init__.py": "x",
            "~lpha-1.0.dist-info/METADATA": "x",
            "alpha/__init__.pyc": "x",
            "alpha-1.0.dist-info/direct_url.json": '{"url": "file:///home/me/alpha"}',
        }
    )
    assert venv.taken().digest == before
    venv.write({"alpha/sourceless.pyc": "x"})
    assert "alpha/sourceless.pyc" in venv.inside(venv.taken())


def test_a_name_that_is_not_utf_8_is_kept(venv: Venv) -> None:
    path = os.fsencode(venv.site) + b"/caf\xe9.py"
    with open(path, "w") as file:
        file.write("x = 1")
    captured = venv.taken()
    (name,) = venv.inside(captured)
    assert os.fsencode(name) == b"caf\xe9.py"
    assert Manifest.from_bytes(captured.manifest.to_bytes(), captured.digest) == captured.manifest


def test_names_that_differ_in_case_alone_are_both_named(venv: Venv) -> None:
    venv.write({"alpha/Readme.py": "", "alpha/README.py": "", "Beta/x.py": "", "beta/y.py": ""})
    captured, _ = venv.look()
    _, findings = capture(venv.python, progress=Quiet(), cache=venv.cache)
    assert captured is None
    assert [finding.code for finding in findings] == ["names_collide"] * 2
    told = " ".join(finding.summary for finding in findings)
    for name in ("alpha/Readme.py", "alpha/README.py", "/Beta`", "/beta`"):
        assert name in told


def test_a_name_that_no_manifest_may_hold_is_refused(venv: Venv) -> None:
    venv.write({"alpha/back\\slash.py": ""})
    captured, said = venv.look()
    assert captured is None
    assert "back\\\\slash.py" in said["name_unusable"]


def test_what_is_no_file_is_left_out(venv: Venv) -> None:
    venv.install("alpha")
    os.mkfifo(venv.site / "alpha/pipe")
    captured, said = venv.look()
    assert "alpha/pipe" in said["special_file"]
    assert "alpha/pipe" not in venv.inside(captured)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_that_cannot_be_read_is_named(venv: Venv) -> None:
    venv.install("alpha")
    (venv.site / "alpha/__init__.py").chmod(0)
    captured, said = venv.look()
    assert captured is None
    assert "alpha/__init__.py" in said["environment_unreadable"]


WRITES = """
import os, sys, time
with open(sys.argv[1], "r+b", buffering=0) as file:
    print(flush=True)
    while True:
        file.write(b"x")
        os.utime(file.fileno())
"""


@pytest.mark.expensive
def test_a_file_that_changes_while_it_is_read_is_named(venv: Venv) -> None:
    venv.install("alpha")
    path = venv.site / "alpha/weights.bin"
    with open(path, "wb") as file:
        file.truncate(200 << 20)  # takes longer to read than a clock tick
    with subprocess.Popen([sys.executable, "-c", WRITES, path], stdout=-1) as writer:
        try:
            writer.stdout.read(1)
            captured, said = venv.look()
        finally:
            writer.kill()
    assert captured is None
    assert said.keys() == {"environment_moving"}
    assert str(path) in said["environment_moving"]


def test_what_is_no_interpreter_is_said(venv: Venv, tmp_path: Path) -> None:
    nothing = tmp_path / "python"
    for text, why in (("", "Exec format"), ("#!/bin/sh\necho no\n", "cannot be read")):
        nothing.write_text(text)
        nothing.chmod(0o755)
        captured, findings = capture(str(nothing), progress=Quiet(), cache=venv.cache)
        assert captured is None
        assert [finding.code for finding in findings] == ["interpreter_unusable"]
        assert why in findings[0].summary
    captured, findings = capture(str(tmp_path / "gone"), progress=Quiet(), cache=venv.cache)
    assert "No such file" in findings[0].summary


@pytest.mark.parametrize("minor", ["3.10", "3.12", "3.13"])
def test_an_interpreter_of_another_version_is_asked(
    make_venv: Callable[..., Venv], minor: str
) -> None:
    python = shutil.which(f"python{minor}")
    said = python and subprocess.run([python, "-c", "pass"], capture_output=True, check=False)
    if minor == MINOR or not python or not said or said.returncode != 0:
        pytest.skip(f"no other Python {minor} on the PATH")
    real = subprocess.check_output([python, "-c", "import sys; print(sys.executable)"], text=True)
    venv = make_venv(minor, python=real.strip(), minor=minor)
    venv.install("alpha")
    subprocess.run([venv.python, "-m", "compileall", "-q", venv.site], check=True)
    captured = venv.taken()
    assert captured.manifest.python.minor == minor
    assert captured.manifest.sites == (f"lib/python{minor}/site-packages",)
    assert [item.path.rpartition(".cpython-")[2] for item in captured.manifest.bytecode] == [
        minor.replace(".", "") + ".pyc"
    ]


def test_the_interpreter_of_this_process_says_what_another_would(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    assert ask(sys.executable) == ask(str(other))


class _Totals:
    """The totals that a capture told of."""

    def __init__(self) -> None:
        self.totals: set[int] = set()

    def advance(self, phase: str, done: int, total: int) -> None:
        assert phase == "reading"
        assert 0 <= done <= total
        self.totals.add(total)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
