"""A lock becomes an environment in the store: whole, once, and from the files that it names."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.environments.declared.environment_build import BuildResult, build, find_build
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Quiet
from tests.environments.declared.conftest import Declared, Index
from tests.support import refusing


def test_what_is_built_holds_the_files_of_the_lock(
    declared: Declared,
    make: Callable[..., BuildResult],
    store: EnvironmentStore,
    left: Callable[[], list[str]],
) -> None:
    lock = declared.lock(dependencies=["beta<2"])
    assert find_build(lock, store) is None
    manifest = make(lock).manifest
    paths = {file.path for file in manifest.files}
    site = manifest.sites[0]
    assert {f"{site}/alpha/__init__.py", f"{site}/beta/__init__.py", "bin/alpha"} <= paths
    assert manifest.packages == (("alpha", "1.1"), ("beta", "1.0"))
    assert any("alpha/__pycache__" in item.path for item in manifest.bytecode)
    assert find_build(lock, store) == manifest == store.manifest(manifest.digest)
    assert left() == []


def test_the_ranks_import_it_and_its_scripts_run(
    declared: Declared, make: Callable[..., BuildResult], store: EnvironmentStore
) -> None:
    manifest = make(declared.lock(dependencies=["beta<2"])).manifest
    tree = store.hydrate(manifest.digest, Quiet())
    said = subprocess.run(
        [tree / "bin" / "python", "-c", "import beta; beta.main()"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    said += subprocess.run(
        [tree / "bin" / "alpha"], capture_output=True, text=True, check=True
    ).stdout
    assert said == "beta 1.0\nalpha 1.1\n"


def test_what_was_built_is_not_built_again(
    declared: Declared, make: Callable[..., BuildResult], index: Index
) -> None:
    lock = declared.lock(dependencies=["beta<2"])
    first = make(lock)
    index.asked.clear()
    declared.environ["PATH"] = ""  # and no uv
    assert make(lock) == first
    assert index.asked == []


def test_an_object_that_is_gone_is_built_anew(
    declared: Declared, make: Callable[..., BuildResult], store: EnvironmentStore
) -> None:
    lock = declared.lock(dependencies=["alpha"])
    manifest = make(lock).manifest
    script = next(file for file in manifest.files if file.path.endswith("alpha/__init__.py"))
    (store.objects / script.key[:2] / script.key).unlink(missing_ok=True)
    (store.objects / script.key[:2] / script.key[2:]).unlink(missing_ok=True)
    assert find_build(lock, store) is None
    assert make(lock).manifest.digest == manifest.digest
    assert find_build(lock, store) is not None


def test_nothing_is_an_environment_too(
    declared: Declared, make: Callable[..., BuildResult]
) -> None:
    assert make(declared.lock(dependencies=[])).manifest.packages == ()


def test_locks_of_every_kind(
    declared: Declared,
    make: Callable[..., BuildResult],
    hash_of: Callable[[str], str],
    wheelwright: Callable[..., Path],
) -> None:
    wheelwright(declared.folder, "mine", "0.1")
    local = declared.lock(dependencies=["./mine-0.1-py3-none-any.whl"])
    assert make(local).manifest.packages == (("mine", "0.1"),)
    declared.write("pylock.toml", local.to_toml(declared.folder))
    assert declared.lock(lock="pylock.toml").digest == local.digest
    declared.write("locked.txt", f"alpha==1.0 --hash={hash_of('alpha-1.0')}")
    assert make(declared.lock(lock="locked.txt")).manifest.packages == (("alpha", "1.0"),)


def test_another_machine_builds_the_same_from_the_plan(
    declared: Declared, make: Callable[..., BuildResult], tmp_path: Path
) -> None:
    lock = declared.lock(dependencies=["beta<2"])
    saved = json.dumps(lock.to_json())
    elsewhere = EnvironmentStore(tmp_path / "elsewhere" / "environments")
    other = build(
        Lock.from_json(json.loads(saved)), declared.python(), elsewhere, Quiet(),
        folder=tmp_path, environ=declared.environ,
    )  # fmt: skip
    assert other.manifest.digest == make(lock).manifest.digest


def test_what_a_lock_lacks_is_warned_of(
    declared: Declared, make: Callable[..., BuildResult], hash_of: Callable[[str], str]
) -> None:
    declared.write("locked.txt", f"beta==1.0 --hash={hash_of('beta-1.0')}")
    (found,) = make(declared.lock(lock="locked.txt")).warnings
    assert found.code == "packages_misfit"
    assert "`alpha<2`" in found.summary


def test_a_file_with_other_bytes_is_refused(
    declared: Declared,
    make: Callable[..., BuildResult],
    store: EnvironmentStore,
    index: Index,
    left: Callable[[], list[str]],
) -> None:
    lock = declared.lock(dependencies=["alpha==1.0"])
    name = "alpha-1.0-py3-none-any.whl"
    index.other[name] = (index.wheels / "checker-1.0-py3-none-any.whl").read_bytes()
    with refusing("hash_mismatch", match="its hash differs"):
        make(lock)
    assert (left(), find_build(lock, store)) == ([], None)


def test_an_index_that_went_away_is_named_and_the_next_try_goes_on(
    declared: Declared, make: Callable[..., BuildResult], index: Index
) -> None:
    lock = declared.lock(dependencies=["alpha==1.0"])
    index.status = 503
    subprocess.run(["rm", "-rf", declared.environ["UV_CACHE_DIR"]], check=True)
    with pytest.raises(SgpuError) as caught:
        make(lock)
    host = index.url.split("/")[2]
    assert (caught.value.code, caught.value.retryable) == ("index_unreachable", True)
    assert f"`{host}`" in caught.value.message
    index.status = 200
    assert make(lock).manifest.packages == (("alpha", "1.0"),)


def test_credentials_come_from_the_variable_that_the_lock_names(
    declared: Declared, make: Callable[..., BuildResult], index: Index
) -> None:
    index.password = "s3cret"
    line = f"--extra-index-url {index.url.replace('//', '//me:${INDEX_TOKEN}@')}"
    declared.environ |= {"INDEX_TOKEN": "s3cret", "UV_DEFAULT_INDEX": "https://x.invalid"}
    lock = declared.lock(dependencies=[line, "alpha==1.0"])
    del declared.environ["INDEX_TOKEN"]
    with pytest.raises(SgpuError, match="`INDEX_TOKEN` is not set"):
        make(lock)
    declared.environ["INDEX_TOKEN"] = "s3cret"
    assert make(lock).manifest.packages == (("alpha", "1.0"),)


def test_another_python_than_the_locks_is_refused(
    declared: Declared, make: Callable[..., BuildResult]
) -> None:
    lock = declared.lock(dependencies=["alpha"])
    other = Lock(python=lock.python._replace(version="3.99.0"), entries=lock.entries)
    with refusing("python_mismatch", match=r"resolved for Python 3\.99"):
        make(other)


def test_progress_counts_packages(declared: Declared, make: Callable[..., BuildResult]) -> None:
    calls = []

    class Seen:
        def advance(self, phase: str, done: int, total: int) -> None:
            if phase == "building":
                calls.append((done, total))

    make(declared.lock(dependencies=["beta<2"]), Seen())
    assert (calls[0], calls[-1]) == ((0, 2), (2, 2))
    assert calls == sorted(calls)
