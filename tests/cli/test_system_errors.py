"""What the operating system refuses is named as that, with its number and place; what was launched
before is followed all the same."""

import errno
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.sampling import strided
from tests.support import PATIENCE

RUN = "name: train\ngpus: 1\ntype: CPU\ncommand: [echo, hello]\nmlflow: {enabled: false}\n"


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes calls fail."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    made = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@pytest.fixture
def failing(sgpu: Shell, faults: Path) -> Callable[..., object]:
    """`failing("fsync", EIO, "/store/")(...)` runs one command for which these calls fail."""
    sgpu.write("run.yaml", RUN)

    def shell(call: str, number: int, under: str, **more: str) -> object:
        fault = {"LD_PRELOAD": str(faults), "FAULT": f"{call}:{number}:{under}"}
        environ = {f"FAULT_{name.upper()}": value for name, value in more.items()}
        return replace(sgpu, environ={**sgpu.environ, **fault, **environ})

    return shell


@pytest.mark.parametrize(
    ("call", "number", "under"),
    [
        ("fsync", errno.EIO, "/store/"),
        ("write", errno.EDQUOT, "/store/"),
        ("mkdir", errno.EROFS, "/.sgpu/default/runs"),
        ("fsync", errno.EIO, "/.sgpu/default/runs"),
        ("rename", errno.EIO, "/.sgpu/default/runs"),
        ("write", errno.ENOSPC, "/.sgpu/default/runs"),
        ("mkdir", errno.ENOSPC, "/.sgpu"),
    ],
)
def test_a_call_that_fails_is_named_with_its_number_and_its_file(
    sgpu: Shell, failing: Callable[..., Shell], call: str, number: int, under: str
) -> None:
    refused = failing(call, number, under)("apply", "-y")
    assert refused.code == 1
    named = rf"{errno.errorcode[number]} on {call} of `[^`]*{re.escape(under)}[^`]*` \("
    assert re.search(named, refused.err), refused.err
    assert ".tmp" not in refused.err  # files are named by the name that users know
    assert ".new-" not in refused.err
    assert re.search(r"^hint: ", refused.err, re.MULTILINE)
    sgpu.done("apply", "-y")


def test_an_error_of_sqlite_is_named_with_its_code(
    sgpu: Shell, failing: Callable[..., Shell]
) -> None:
    refused = failing("pwrite64", errno.EIO, "/state.db")("apply", "-y")
    assert refused.code == 1
    assert re.search(r"state\.db` cannot be read or written: .*\(SQLITE_IOERR\w*\)", refused.err)


def test_a_limit_on_the_size_of_files_is_named(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    # Python 3.11 would leave cut off bytecode in the checkout: it does not look at short writes.
    sgpu.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with sgpu.start(
        "plan", "--out", "run.plan",
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (100, 100)),
    ) as process:  # fmt: skip
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "EFBIG on write of " in err


def test_a_link_to_itself_is_named(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    (sgpu.folder / ".sgpu").symlink_to(".sgpu")
    assert "internal error" not in sgpu.exits(1, "apply", "-y").err


def test_too_few_descriptors_are_no_fault_of_ours(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    for limit in (8, 12):
        with sgpu.start(
            "apply", "-y",
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (limit, limit)),
        ) as process:  # fmt: skip
            _, err = process.communicate(timeout=PATIENCE)
        assert "internal error" not in err


@pytest.mark.parametrize(
    ("call", "under", "after"),
    [
        # the record of the launch itself
        ("pwrite64", "/state.db", ".sgpu/default/runs/train/1/identity.json"),
        # the record of how it ended
        ("pwrite64", "/state.db", ".sgpu/default/runs/train/1/outcome.json"),
    ],
)
def test_a_run_that_was_launched_is_followed_though_the_disk_is_full(
    sgpu: Shell, failing: Callable[..., Shell], call: str, under: str, after: str
) -> None:
    full = failing(call, errno.ENOSPC, under, after=str(sgpu.folder / after))
    followed = full("apply", "-y")
    assert followed.code == 0, followed.err
    assert "hello" in followed.out.splitlines()
    assert "train#1 succeeded" in followed.err
    assert "warning[unrecorded]" in followed.err
    assert "the next `sgpu apply` records what is missing" in followed.err
    sgpu.ran("apply", "-y")
    assert sgpu("plan", "--detailed-exitcode").code == 0
    assert os.listdir(sgpu.folder / ".sgpu/default/runs/train") == ["1"]


def test_a_run_whose_needs_cannot_be_recorded_is_not_launched(
    sgpu: Shell, failing: Callable[..., Shell]
) -> None:
    full = failing("fsync", errno.ENOSPC, "/store/roots/")
    refused = full("apply", "-y")
    assert refused.code == 1, refused.err
    assert "cannot record what this project needs of it" in refused.err
    assert not (sgpu.folder / ".sgpu/default/runs").exists()
    sgpu.ran("apply", "-y")
    assert os.listdir(sgpu.folder / ".sgpu/default/runs/train") == ["1"]


@pytest.mark.expensive
@pytest.mark.parametrize("call", ["fsync", "write", "pwrite64", "mkdir", "rename"])
def test_a_disk_that_fills_up_at_any_moment_launches_once_or_not_at_all(
    sgpu: Shell, failing: Callable[..., Shell], tmp_path: Path, call: str
) -> None:
    counted = tmp_path / "calls"
    assert (
        failing(call, errno.ENOSPC, "/", skip="100000", log=str(counted))("apply", "-y").code == 0
    )
    for skip in strided(range(counted.stat().st_size), 4):
        for left in (sgpu.folder / ".sgpu", tmp_path / "home"):
            shutil.rmtree(left, ignore_errors=True)
        full = failing(call, errno.ENOSPC, "/", skip=str(skip))("apply", "-y")
        assert (full.code == 0) == (full.out.splitlines().count("hello") == 1), full.err
        assert full.code == 0 or "ENOSPC" in full.err or "SQLITE_" in full.err
        again = sgpu.here("apply", "-y")
        assert again.code == 0, (skip, full.err, again.err)
        assert os.listdir(sgpu.folder / ".sgpu/default/runs/train") == ["1"]
