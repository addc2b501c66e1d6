"""What cannot be resolved is one finding, at the requirement that it is about."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environments.declared.conftest import Declared, Index

# What is declared, files of the project, the code, the place where it is said, and words that are.
WHEEL = "x.invalid/alpha-1.0-py3-none-any.whl"
REFUSED: dict[str, tuple[object, dict[str, str], str, str | None, tuple[str, ...]]] = {
    "a package that is nowhere": (["alpha", "nowhere>=3"], {},
        "package_not_found", "run.yaml:6:5", ("`nowhere`", "uv says:")),
    "a dependency that is nowhere, told where it comes in": (["alpha", "astray"], {},
        "package_not_found", "run.yaml:6:5", ("`nowhere`",)),
    "a version that does not exist": (["alpha==9"], {}, "unresolvable", "run.yaml:5:5", ()),
    "no wheel for this Python": (["elder"], {},
        "no_matching_wheel", "run.yaml:5:5", (f"Python 3.{sys.version_info.minor}",)),
    "no requirement": (["beta", "alpha >> 2"], {}, "bad_requirement", "run.yaml:6:5", ()),
    "a literal password of an index": (["alpha", "--index-url https://me:s3cret@x.invalid/simple"],
        {}, "literal_secret", "run.yaml:6:5", ()),
    "a literal token of a wheel": (["alpha", f"alpha @ https://t0ken@{WHEEL}"], {},
        "literal_secret", "run.yaml:6:5", ()),
    "a literal password of links": (["alpha", "-f https://me:s3cret@x.invalid"], {},
        "literal_secret", "run.yaml:6:5", ()),
    "a user of git, who is no password": (["alpha @ git+ssh://git@127.0.0.1:1/alpha"], {},
        "repository_unreachable", None, ()),
    "a source folder": (["alpha", "./lib"],
        {"lib/pyproject.toml": "[project]\nname='lib'\nversion='1'\n"},
        "requirement_local", None, ("`./lib`",)),
    "an editable install, where it is written": ("requirements.txt",
        {"requirements.txt": "alpha\n-e ./lib\n"},
        "requirement_local", "requirements.txt:2:1", ()),
    "a file of another machine, without its password": ("requirements.txt",
        {"requirements.txt": "-r https://me:secret@x.invalid/r.txt\n"},
        "bad_requirement", "requirements.txt:1:1",
        ("`https://x.invalid/r.txt` is not on this machine",)),
    "what is wrong in a constraints file": ("requirements.txt",
        {"requirements.txt": "alpha\n-c sub/bound.txt\n", "more.txt": "-e ./lib\n",
         "sub/bound.txt": "beta<2\n-r ../more.txt\n"},
        "requirement_local", "more.txt:1:1", ()),
    "a file that includes itself": ("a.txt", {"a.txt": "-r b.txt\n", "b.txt": "alpha\n-r a.txt\n"},
        "bad_requirement", "b.txt:2:1", ()),
    "a missing file": ("none.txt", {}, "requirements_missing", None, ()),
    "a missing lock": ({"lock": "none/uv.lock"}, {}, "lock_missing", "run.yaml:4:3", ()),
    "a lock without hashes": ({"lock": "locked.txt"}, {"locked.txt": "alpha==1.0\n"},
        "lock_without_hashes", None, ()),
    "a hash that no file has": ({"lock": "locked.txt"},
        {"locked.txt": f"alpha==1.0 --hash=sha256:{'0' * 64}\n"},
        "hash_mismatch", "locked.txt:1:1", ()),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_resolved_is_told_at_its_place(declared: Declared, case: str) -> None:
    asked, files, code, place, words = REFUSED[case]
    for name, text in files.items():
        declared.write(name, text)
    if not isinstance(asked, dict):
        asked = {"dependencies" if isinstance(asked, list) else "requirements": asked}
    found = declared.refused(**asked)
    assert (found.code, place and str(found.place)) == (code, place)
    assert all(word in found.summary for word in words), found.summary


def test_requirements_that_contradict_are_both_shown(declared: Declared) -> None:
    declared.write("requirements.txt", "# ours\nbeta>=2\n")
    found = declared.refused(dependencies=["alpha<2"], requirements="requirements.txt")
    assert found.code == "unresolvable"
    places = {str(found.place), *(str(item.place) for item in found.related)}
    assert places == {"run.yaml:5:5", "requirements.txt:2:1"}


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


def test_all_that_is_wrong_in_files_is_told_at_once(declared: Declared) -> None:
    declared.write("requirements.txt", "-e ./lib\n-r other.txt\n-c https://x.invalid/c.txt\n")
    lock, found = declared.resolve(requirements="requirements.txt")
    assert lock is None
    assert [(item.code, str(item.place)) for item in found] == [
        ("requirement_local", "requirements.txt:1:1"),
        ("requirements_missing", "requirements.txt:2:1"),
        ("bad_requirement", "requirements.txt:3:1"),
    ]


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
