"""Commands in hints install into the environment that sgpu runs in, however it was installed. And
`sgpu doctor` knows sgpu from the other project that has its former name."""

import os
import shlex
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support import shell_program

ROOT = Path(__file__).resolve().parents[1]
UV = shlex.quote("uv>=0.8,<1")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment as uv makes one: it has no pip."""
    folder = tmp_path / "an environment"
    venv.create(folder, symlinks=True)
    return folder


def said(environment: Path, *, path: str = "/usr/bin:/bin") -> str:
    """The command that installs the extra `env`, as sgpu in this environment says it."""
    program = "from sgpu_decl.distribution import extra_command; print(extra_command('env'))"
    done = subprocess.run(
        [environment / "bin/python", "-c", program],
        env={"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_an_environment_without_pip_is_named_for_uv(environment: Path) -> None:
    python = shlex.quote(str(environment / "bin/python"))
    assert said(environment) == f"uv pip install --python {python} {UV}"


def test_pip_is_that_of_the_environment(environment: Path) -> None:
    """Where it is not the first on the PATH, the interpreter is named."""
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    (site / "pip").mkdir()
    (site / "pip/__init__.py").touch()
    python = shlex.quote(str(environment / "bin/python"))
    assert said(environment) == f"{python} -m pip install {UV}"
    shell_program(environment / "bin/pip", "true")
    assert said(environment, path=f"{environment}/bin:/bin") == f"pip install {UV}"


def test_pipx_puts_it_into_its_environment(environment: Path) -> None:
    (environment / "pipx_metadata.json").touch()
    assert said(environment) == f"pipx inject 'an environment' {UV}"


@pytest.mark.parametrize(
    ("version", "script", "told"),
    [
        ("0.8.21", "sgpu.cli:main", "`sgpu` 0.8.21 is another project, with a command `sgpu`"),
        ("0.1.0", "sgpu_decl.__main__:main", "sgpu is installed under its former name `sgpu`"),
    ],
)
def test_doctor_finds_the_former_name(
    tmp_path: Path, version: str, script: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "site" / f"sgpu-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: sgpu\nVersion: {version}\n"
    )
    (information / "entry_points.txt").write_text(f"[console_scripts]\nsgpu = {script}\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    findings = (
        Shell(tmp_path, dict(os.environ)).here("doctor", "-o", "json").json["data"]["findings"]
    )
    (found, *_) = (item for item in findings if item["text"].startswith(told))
    assert found["verdict"] == "warn"
    assert found["text"].endswith("this one is `sgpu-decl`")
    assert "uninstall sgpu`" in found["hint"]
    assert "install .` in the checkout of sgpu" in found["hint"]
