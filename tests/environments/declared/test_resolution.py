"""What is declared becomes a lock, which stays until what it depends on changes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.environments.declared.lock import Artifact, Lock, LockEntry
from sgpu_decl.environments.declared.resolution_cache import ResolutionCache
from tests.environments.declared.conftest import Declared, Index


def test_dependencies_become_exact_files_with_hashes(
    declared: Declared, hash_of: Callable[[str], str]
) -> None:
    lock = declared.lock(dependencies=["beta<2"])
    assert [(entry.name, entry.version) for entry in lock.entries] == [
        ("alpha", "1.1"),
        ("beta", "1.0"),
    ]
    assert [entry.files[0].hashes for entry in lock.entries] == [
        (hash_of("alpha-1.1"),),
        (hash_of("beta-1.0"),),
    ]


def test_what_is_for_another_platform_is_left_out(declared: Declared) -> None:
    assert declared.versions(dependencies=["beta>=2"]) == {"alpha": "2.0", "beta": "2.0"}
    assert declared.versions(dependencies=["alpha; sys_platform == 'win32'"]) == {}


def test_nothing_needs_no_uv(declared: Declared) -> None:
    declared.environ["PATH"] = ""
    assert declared.versions(dependencies=[]) == {}


def test_a_variable_that_uv_does_not_know_is_said(declared: Declared) -> None:
    declared.environ["UV_NO_INDEX"] = "1"
    lock, findings = declared.resolve(dependencies=["alpha"])
    assert lock is not None  # from the index all the same
    assert [(finding.code, str(finding.severity)) for finding in findings] == [
        ("uv_no_index", "warning")
    ]
    declared.write("uv.toml", "no-index = true\n")
    lock, findings = declared.resolve(dependencies=["alpha"])
    assert lock is None
    assert "alpha" in findings[0].summary


def test_a_resolution_stays_when_the_index_moves_on(
    declared: Declared, index: Index, wheelwright: Callable[..., Path]
) -> None:
    first = declared.lock(dependencies=["alpha"])
    wheelwright(index.wheels, "alpha", "3.0")
    assert declared.lock(dependencies=["alpha"]) == first
    lock, _ = declared.resolve(dependencies=["alpha"], upgrade=True)
    assert lock.packages[0].version == "3.0"
    assert declared.lock(dependencies=["alpha"]) == lock


def test_what_is_known_asks_neither_index_nor_uv(declared: Declared, index: Index) -> None:
    first = declared.lock(dependencies=["alpha"])
    index.asked.clear()
    declared.environ["PATH"] = ""
    assert declared.lock(dependencies=["alpha"]) == first
    assert index.asked == []


def test_a_damaged_memory_is_no_memory(declared: Declared) -> None:
    first = declared.lock(dependencies=["alpha"])
    for path in (declared.memory / "memory/resolved").glob("*.json"):
        path.write_text('{"lock": 3}')
    assert declared.lock(dependencies=["alpha"]) == first


def test_versions_that_were_applied_are_kept_where_they_fit(declared: Declared) -> None:
    first = declared.lock(dependencies=["alpha<2"])
    lock, _ = declared.resolve(dependencies=["alpha", "beta<2"], previous=first)
    assert [(package.name, package.version) for package in lock.packages] == [
        ("alpha", "1.1"),
        ("beta", "1.0"),
    ]
    lock, _ = declared.resolve(dependencies=["beta>=2"], previous=first)
    assert [(package.name, package.version) for package in lock.packages] == [
        ("alpha", "2.0"),
        ("beta", "2.0"),
    ]


def test_constraints_bind_and_ask_for_nothing(declared: Declared) -> None:
    lock, _ = declared.resolve(dependencies=["alpha"], constraints=("alpha<2", "beta<2"))
    assert [(package.name, package.version) for package in lock.packages] == [("alpha", "1.1")]


def test_a_requirements_file_with_includes(declared: Declared) -> None:
    declared.write("requirements.txt", "-r more/more.txt  # as in pip\n-c bound.txt\n")
    declared.write("more/more.txt", "alpha\n")
    declared.write("bound.txt", "alpha<2\n")
    assert declared.versions(requirements="requirements.txt") == {"alpha": "1.1"}
    declared.write("bound.txt", "alpha<1.1\n")
    assert declared.versions(requirements="requirements.txt") == {"alpha": "1.0"}
    declared.write("more/more.txt", "alpha\nbeta\n")
    assert declared.versions(requirements="requirements.txt") == {"alpha": "1.0", "beta": "1.0"}


def test_dependencies_and_a_requirements_file_together(declared: Declared) -> None:
    declared.write("requirements.txt", "beta")
    found = declared.versions(requirements="requirements.txt", dependencies=["alpha<2"])
    assert found == {"alpha": "1.1", "beta": "1.0"}


def test_a_local_wheel_is_named_relative_to_the_project(
    declared: Declared, wheelwright: Callable[..., Path], index: Index
) -> None:
    (declared.folder / "dist").mkdir()
    wheelwright(declared.folder / "dist", "mine", "0.1", requires=["alpha<2"])
    lock = declared.lock(dependencies=["./dist/mine-0.1-py3-none-any.whl"])
    assert [package.name for package in lock.packages] == ["alpha", "mine"]
    assert lock.entries[1].files[0].location == "dist/mine-0.1-py3-none-any.whl"


def test_settings_of_uv_count(declared: Declared) -> None:
    first = declared.versions(dependencies=["alpha"])
    declared.write("uv.toml", '[pip]\nresolution = "lowest"\n')
    second = declared.versions(dependencies=["alpha"])
    assert (first, second) == ({"alpha": "2.0"}, {"alpha": "1.0"})


def test_the_project_around_counts_by_its_settings_alone(
    declared: Declared, index: Index, wheelwright: Callable[..., Path]
) -> None:
    declared.write("pyproject.toml", "[project]\nname='p'\nversion='1'\n[tool.uv]\n")
    first = declared.lock(dependencies=["alpha"])
    wheelwright(index.wheels, "alpha", "3.0")
    declared.write("pyproject.toml", "[project]\nname='p'\nversion='2'\n[tool.uv]\n")
    assert declared.lock(dependencies=["alpha"]) == first
    declared.write("pyproject.toml", '[tool.uv.pip]\nresolution = "lowest"')
    assert declared.versions(dependencies=["alpha"]) == {"alpha": "1.0"}


def test_the_digest_is_of_what_is_installed_wherever_it_comes_from(
    declared: Declared, index: Index
) -> None:
    first = declared.lock(dependencies=["alpha==1.0"])
    declared.environ["UV_FIND_LINKS"] = str(index.wheels)
    declared.environ["UV_OFFLINE"] = "1"
    del declared.environ["UV_DEFAULT_INDEX"]
    second = declared.lock(dependencies=["alpha==1.0"])
    assert first.entries[0].files[0].location != second.entries[0].files[0].location
    assert first.digest == second.digest
    assert first.digest != declared.lock(dependencies=["alpha==1.1"]).digest


def test_the_digest_is_of_the_interpreter_less_its_patch(declared: Declared) -> None:
    lock = declared.lock(dependencies=["alpha"])
    python = lock.python
    assert replace(lock, python=python._replace(version=python.minor + ".99")).digest == lock.digest
    assert replace(lock, python=python._replace(version="3.99.0")).digest != lock.digest
    assert replace(lock, python=python._replace(platform="linux-vax")).digest != lock.digest


def test_a_lock_survives_a_plan(declared: Declared) -> None:
    lock = declared.lock(dependencies=["beta"])
    written: Any = lock.to_json()
    assert Lock.from_json(written) == lock
    with pytest.raises(ValueError, match="not a lock"):
        Lock.from_json({"v": 1, "packages": [["alpha"]]})


def test_a_yanked_version_is_warned_of_each_time(declared: Declared, index: Index) -> None:
    index.yanked.add("alpha-1.0-py3-none-any.whl")
    for _ in range(2):
        lock, found = declared.resolve(dependencies=["beta<2", "alpha==1.0"])
        assert lock is not None
        assert [(item.code, item.severity, item.place.line) for item in found] == [
            ("yanked_version", Severity.WARNING, 6)
        ]


def test_requirements_with_hashes_are_a_lock(
    declared: Declared, hash_of: Callable[[str], str]
) -> None:
    alpha = f"alpha==1.0 \\\n    --hash={hash_of('alpha-1.0')}\n"
    declared.write("locked.txt", alpha + f"beta==1.0 --hash={hash_of('beta-1.0')}\n")
    assert declared.versions(lock="locked.txt") == {"alpha": "1.0", "beta": "1.0"}
    assert declared.lock(requirements="locked.txt") == declared.lock(lock="locked.txt")


def test_what_a_lock_leaves_out_is_not_added(
    declared: Declared, hash_of: Callable[[str], str]
) -> None:
    declared.write("locked.txt", f"beta==1.0 --hash={hash_of('beta-1.0')}\n")
    assert declared.versions(lock="locked.txt") == {"beta": "1.0"}


def test_a_pylock_is_taken_as_it_is_without_uv(
    declared: Declared, index: Index, hash_of: Callable[[str], str]
) -> None:
    first = declared.lock(dependencies=["beta<2"])
    declared.write("pylock.toml", first.to_toml(declared.folder))
    declared.environ["PATH"] = ""
    index.asked.clear()
    lock = declared.lock(lock="pylock.toml")
    assert (lock.entries, lock.digest) == (first.entries, first.digest)
    assert index.asked == []


def test_a_pylock_is_read_for_this_interpreter(declared: Declared) -> None:
    entry = '[[packages]]\nname="{}"\nversion="1.0"\nmarker="{}"\nwheels=[{}]\n'
    wheel = '{url="https://x.invalid/%s.whl", hashes={sha256="%064d"}}'
    names = ("one-1.0-py3-none-any", "one-1.0-cp27-cp27m-win32")
    files = ", ".join(wheel % (name, at) for at, name in enumerate(names))
    text = 'lock-version="1.0"\ncreated-by="t"\n'
    text += entry.format("one", "sys_platform != 'win32'", files)
    text += entry.format("two", "sys_platform == 'win32'", files)
    declared.write("pylock.toml", text)
    lock = declared.lock(lock="pylock.toml")
    assert [package.name for package in lock.packages] == ["one"]
    assert [file.hashes for file in lock.entries[0].files] == [("sha256:" + "0" * 64,)]


@pytest.fixture
def project(declared: Declared, uv: Callable[..., None]) -> Declared:
    """A uv project with a development group, locked."""
    declared.write(
        "app/pyproject.toml",
        "[project]\nname='app'\nversion='1'\nrequires-python='>=3.10'\ndependencies=['beta<2']\n"
        "[dependency-groups]\ndev=['checker']\n",
    )
    uv("lock", folder=declared.folder / "app")
    return declared


def test_a_uv_lock_is_what_the_project_depends_on(project: Declared, index: Index) -> None:
    index.asked.clear()
    assert project.versions(lock="app/uv.lock") == {"alpha": "1.1", "beta": "1.0"}
    project.environ["PATH"] = ""
    assert project.versions(lock="app/uv.lock") == {"alpha": "1.1", "beta": "1.0"}
    assert index.asked == []


def test_a_uv_lock_for_another_python_is_refused(project: Declared) -> None:
    path = project.folder / "app/uv.lock"
    path.write_text(path.read_text().replace(">=3.10", ">=3.99"))
    found = project.refused(lock="app/uv.lock")
    assert found.code == "python_mismatch"
    assert ">=3.99" in found.summary


def test_a_uv_lock_with_an_editable_package_is_refused(
    declared: Declared, uv: Callable[..., None]
) -> None:
    declared.write("lib/pyproject.toml", "[project]\nname='lib'\nversion='1'\n")
    declared.write(
        "pyproject.toml",
        "[project]\nname='app'\nversion='1'\nrequires-python='>=3.10'\ndependencies=['lib']\n"
        "[tool.uv.sources]\nlib={path='lib', editable=true}\n[tool.uv]\npackage=false\n",
    )
    uv("lock", folder=declared.folder)
    found = declared.refused(lock="uv.lock")
    assert (found.code, found.place.line) == ("requirement_local", 4)
    assert "`lib` is a source folder, `lib`" in found.summary


def test_a_plan_that_may_not_build_and_its_apply_find_the_same_versions(
    declared: Declared, index: Index
) -> None:
    (index.wheels / "alpha-9.0.tar.gz").write_bytes(b"a source, which would have to be built")
    planned, _ = declared.resolve(guarded=True, dependencies=["alpha"])
    assert planned is not None
    assert planned.packages[0].version == "2.0"
    declared.known = ResolutionCache(declared.memory / "other")
    assert declared.lock(dependencies=["alpha"]) == planned


def test_what_was_built_before_is_not_replaced_by_an_older_wheel(
    declared: Declared, index: Index
) -> None:
    source = Artifact("sdist", "https://x.invalid/alpha-9.0.tar.gz", 1, (f"sha256:{'0' * 64}",))
    built = LockEntry("alpha", "9.0", (source,))
    before = replace(declared.lock(dependencies=["beta"]), entries=(built,))
    lock, (found,) = declared.resolve(guarded=True, previous=before, dependencies=["alpha"])
    assert lock is None
    assert found.code == "build_untrusted"
    assert "`alpha`" in found.summary
    kept, _ = declared.resolve(guarded=True, previous=before, dependencies=["checker"])
    assert kept is not None  # it is needed no more


def test_links_in_a_file_start_from_the_folder_of_the_file(
    declared: Declared, wheelwright: Callable[..., Path]
) -> None:
    (declared.folder / "lists/wheels").mkdir(parents=True)
    wheelwright(declared.folder / "lists/wheels", "local", "1.0")
    declared.write("lists/wanted.txt", "-f ./wheels\nlocal\n")
    assert declared.versions(requirements="lists/wanted.txt") == {"local": "1.0"}
