from pathlib import Path

import pytest

from sgpu_decl.environments.declared.uv import find_uv, run_uv, without_credentials
from sgpu_decl.errors import SgpuError
from tests.support import refusing


def _program(folder: Path, text: str) -> Path:
    path = folder / "uv"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_one_on_the_path_is_taken(tmp_path: Path) -> None:
    path = _program(tmp_path, "echo 'uv 0.99.1 (abc 2030-01-01)'")
    assert find_uv({"PATH": str(tmp_path)}) == str(path)


@pytest.mark.usefixtures("no_wheel")
def test_one_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    path = _program(tmp_path, "echo 'uv 0.4.30'")
    with refusing("uv_too_old", match=rf"`{path}` is 0\.4"):
        find_uv({"PATH": str(tmp_path)})


@pytest.mark.usefixtures("no_wheel")
@pytest.mark.parametrize("text", ["exit 127", "echo 'another program 1.0.0'"])
def test_what_does_not_answer_as_uv_is_none(tmp_path: Path, text: str) -> None:
    _program(tmp_path, text)
    with pytest.raises(SgpuError) as caught:
        find_uv({"PATH": str(tmp_path)})
    assert (caught.value.code, "install 'uv>=0.8,<1'`" in caught.value.hint) == ("uv_missing", True)


def test_uv_gets_the_users_settings_less_those_that_lead_astray(tmp_path: Path) -> None:
    path = _program(tmp_path, 'echo "$UV_INDEX|$UV_PROJECT|$UV_PYTHON_DOWNLOADS" >&2; exit 3')
    environ = {"UV_INDEX": "ours", "UV_PROJECT": "/else", "UV_PYTHON_DOWNLOADS": "automatic"}
    assert run_uv(str(path), [], folder=tmp_path, environ=environ) == (3, "ours||never", "")


def test_each_line_is_heard_as_it_comes(tmp_path: Path) -> None:
    path = _program(tmp_path, "read line; echo first $line >&2; echo second >&2")
    heard: list[str] = []
    run_uv(str(path), [], folder=tmp_path, environ={}, stdin_text="of all\n", on_line=heard.append)
    assert heard == ["first of all", "second"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at https://me:pw@host/x and http://t0k@h2", "at https://***@host/x and http://***@h2"),
        ("https://host/a@b", "https://host/a@b"),
        ("token hf_" + "a" * 30, "token hf_***"),
    ],
)
def test_credentials_are_hidden(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
