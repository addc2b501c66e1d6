"""What cannot be resolved is one finding, at the requirement that it is about."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environments.declared.conftest import Declared, Index


def test_a_package_that_is_nowhere(declared: Declared) -> None:
    found = declared.refused(dependencies=["alpha", "nowhere>=3"])
    assert (found.code, str(found.place)) == ("package_not_found", "run.yaml:6:5")
    assert "`nowhere`" in found.summary
    assert "uv says:" in found.summary


def test_a_dependency_that_is_nowhere_is_told_where_it_comes_in(declared: Declared) -> None:
    found = declared.refused(dependencies=["alpha", "astray"])
    assert (found.code, str(found.place)) == ("package_not_found", "run.yaml:6:5")
    assert "`nowhere`" in found.summary


def test_requirements_that_contradict_are_both_shown(declared: Declared) -> None:
    declared.write("requirements.txt", "# ours\nbeta>=2\n")
    found = declared.refused(dependencies=["alpha<2"], requirements="requirements.txt")
    assert found.code == "unresolvable"
    places = {str(found.place), *(str(item.place) for item in found.related)}
    assert places == {"run.yaml:5:5", "requirements.txt:2:1"}


def test_a_version_that_does_not_exist(declared: Declared) -> None:
    found = declared.refused(dependencies=["alpha==9"])
    assert (found.code, str(found.place)) == ("unresolvable", "run.yaml:5:5")


def test_no_wheel_for_this_python(declared: Declared) -> None:
    found = declared.refused(dependencies=["elder"])
    assert (found.code, str(found.place)) == ("no_matching_wheel", "run.yaml:5:5")
    assert f"Python {declared.python().python.minor}" in found.summary


def test_what_is_no_requirement(declared: Declared) -> None:
    found = declared.refused(dependencies=["beta", "alpha >> 2"])
    assert (found.code, str(found.place)) == ("bad_requirement", "run.yaml:6:5")


def test_offline_without_a_cache(declared: Declared) -> None:
    declared.environ["UV_OFFLINE"] = "1"
    found = declared.refused(dependencies=["alpha"])
    assert (found.code, str(found.place)) == ("offline", "run.yaml:5:5")


def test_an_index_that_refuses_connections_is_named(declared: Declared) -> None:
    declared.environ["UV_DEFAULT_INDEX"] = "http://me:s3cret@127.0.0.1:1/simple"
    found = declared.refused(dependencies=["alpha"])
    assert found.code == "index_unreachable"
    assert "`127.0.0.1:1`" in found.summary
    assert "s3cret" not in found.summary


def test_an_index_that_never_answers_is_given_up(declared: Declared, silent_index: str) -> None:
    declared.environ |= {"UV_DEFAULT_INDEX": silent_index, "UV_HTTP_TIMEOUT": "1"}
    found = declared.refused(dependencies=["alpha"])
    assert found.code == "index_unreachable"
    assert f"`{silent_index.split('/')[2]}`" in found.summary


def test_an_index_that_is_broken(declared: Declared, index: Index) -> None:
    index.status = 503
    found = declared.refused(dependencies=["alpha"])
    assert found.code == "index_unreachable"
    assert "503" in found.summary


def test_an_index_that_wants_credentials(declared: Declared, index: Index) -> None:
    index.password = "s3cret"
    assert declared.refused(dependencies=["alpha"]).code == "index_denied"
    declared.environ["UV_DEFAULT_INDEX"] = index.url.replace("//", "//me:s3cret@")
    assert "s3cret" not in str(declared.lock(dependencies=["alpha"]).to_json())


def test_credentials_by_a_variable_never_reach_the_lock(declared: Declared, index: Index) -> None:
    index.password = "s3cret"
    line = f"--extra-index-url {index.url.replace('//', '//me:${INDEX_TOKEN}@')}"
    declared.environ |= {"INDEX_TOKEN": "s3cret", "UV_DEFAULT_INDEX": "https://x.invalid"}
    lock = declared.lock(dependencies=[line, "alpha"])
    assert "s3cret" not in str(lock.to_json())
    assert lock.indexes == (index.url.replace("//", "//me:${INDEX_TOKEN}@"),)


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://me:s3cret@x.invalid/simple",
        "alpha @ https://t0ken@x.invalid/alpha-1.0-py3-none-any.whl",
        "-f https://me:s3cret@x.invalid",
    ],
)
def test_a_literal_password_is_refused(declared: Declared, line: str) -> None:
    found = declared.refused(dependencies=["alpha", line])
    assert (found.code, str(found.place)) == ("literal_secret", "run.yaml:6:5")


def test_a_user_of_git_is_no_password(declared: Declared) -> None:
    found = declared.refused(dependencies=["alpha @ git+ssh://git@127.0.0.1:1/alpha"])
    assert found.code == "repository_unreachable"


def test_a_source_folder_is_refused(declared: Declared) -> None:
    declared.write("lib/pyproject.toml", "[project]\nname='lib'\nversion='1'\n")
    found = declared.refused(dependencies=["alpha", "./lib"])
    assert found.code == "requirement_local"
    assert "`./lib`" in found.summary


def test_an_editable_install_is_refused_where_it_is_written(declared: Declared) -> None:
    declared.write("requirements.txt", "alpha\n-e ./lib\n")
    found = declared.refused(requirements="requirements.txt")
    assert (found.code, str(found.place)) == ("requirement_local", "requirements.txt:2:1")


def test_all_that_is_wrong_in_files_is_told_at_once(declared: Declared) -> None:
    declared.write("requirements.txt", "-e ./lib\n-r other.txt\n-c https://x.invalid/c.txt\n")
    lock, found = declared.resolve(requirements="requirements.txt")
    assert lock is None
    assert [(item.code, str(item.place)) for item in found] == [
        ("requirement_local", "requirements.txt:1:1"),
        ("requirements_missing", "requirements.txt:2:1"),
        ("bad_requirement", "requirements.txt:3:1"),
    ]


def test_a_file_of_another_machine_is_named_without_its_password(declared: Declared) -> None:
    declared.write("requirements.txt", "-r https://me:secret@x.invalid/r.txt\n")
    found = declared.refused(requirements="requirements.txt")
    assert (found.code, str(found.place)) == ("bad_requirement", "requirements.txt:1:1")
    assert "`https://x.invalid/r.txt` is not on this machine" in found.summary


def test_what_is_wrong_in_a_constraints_file_is_told_there(declared: Declared) -> None:
    declared.write("requirements.txt", "alpha\n-c sub/bound.txt\n")
    declared.write("sub/bound.txt", "beta<2\n-r ../more.txt\n")
    declared.write("more.txt", "-e ./lib\n")
    found = declared.refused(requirements="requirements.txt")
    assert (found.code, str(found.place)) == ("requirement_local", "more.txt:1:1")


def test_a_file_that_includes_itself(declared: Declared) -> None:
    declared.write("a.txt", "-r b.txt\n")
    declared.write("b.txt", "alpha\n-r a.txt\n")
    found = declared.refused(requirements="a.txt")
    assert (found.code, str(found.place)) == ("bad_requirement", "b.txt:2:1")


def test_a_missing_file(declared: Declared) -> None:
    assert declared.refused(requirements="none.txt").code == "requirements_missing"
    found = declared.refused(lock="none/uv.lock")
    assert (found.code, str(found.place)) == ("lock_missing", "run.yaml:4:3")


def test_a_lock_for_another_environment(declared: Declared, hash_of: Callable[[str], str]) -> None:
    digest = hash_of("alpha-1.0").partition(":")[2]
    lock = (
        'lock-version = "1.0"\ncreated-by = "x"\n{}\n[[packages]]\nname = "alpha"\n'
        'version = "1.0"\n{}\nwheels = [{{ url = "https://x.invalid/alpha-1.0-py3-none-any.whl", '
        f'hashes = {{{{ sha256 = "{digest}" }}}} }}}}]\n'
    )
    declared.write("pylock.toml", lock.format("environments = [\"sys_platform == 'win32'\"]", ""))
    found = declared.refused(lock="pylock.toml")
    assert (found.code, str(found.place)) == ("python_mismatch", "run.yaml:4:3")
    assert "`pylock.toml` is for other environments: `sys_platform == 'win32'`" in found.summary
    declared.write("pylock.toml", lock.format("", 'requires-python = "<3"'))
    assert "has alpha 1.0, which is for Python <3" in declared.refused(lock="pylock.toml").summary
    declared.write("pylock.toml", lock.format("", 'requires-python = ">3"'))
    assert declared.resolve(lock="pylock.toml")[0] is not None


def test_hashes_for_some_only(declared: Declared, hash_of: Callable[[str], str]) -> None:
    declared.write("locked.txt", f"alpha==1.0 --hash={hash_of('alpha-1.0')}\nbeta==1.0\n")
    found = declared.refused(requirements="locked.txt")
    assert (found.code, str(found.place)) == ("lock_without_hashes", "locked.txt:2:1")


def test_a_lock_without_hashes(declared: Declared) -> None:
    declared.write("locked.txt", "alpha==1.0\n")
    assert declared.refused(lock="locked.txt").code == "lock_without_hashes"


def test_a_hash_that_no_file_has(declared: Declared) -> None:
    declared.write("locked.txt", f"alpha==1.0 --hash=sha256:{'0' * 64}\n")
    found = declared.refused(lock="locked.txt")
    assert (found.code, str(found.place)) == ("hash_mismatch", "locked.txt:1:1")


def test_without_uv(declared: Declared, monkeypatch: pytest.MonkeyPatch) -> None:
    declared.environ["PATH"] = ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = declared.refused(dependencies=["alpha"])
    assert found.code == "uv_missing"
    assert "pip install 'uv>=0.8,<1'`" in found.hint


def test_a_failure_is_not_remembered(
    declared: Declared, index: Index, wheelwright: Callable[..., Path]
) -> None:
    declared.refused(dependencies=["nowhere"])
    wheelwright(index.wheels, "nowhere", "1.0")
    lock, _ = declared.resolve(dependencies=["nowhere"], upgrade=True)
    assert lock is not None
