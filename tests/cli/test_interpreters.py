"""`env.python`: which interpreter is found, and that looking at a project runs none of its
programs."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from venv import create

import pytest

from sgpu_decl.environments.interpreters import LocalPython, Pythons
from tests.cli.conftest import Shell
from tests.support import FUNCTION_RUN, shell_program

OWN = ".".join(map(str, sys.version_info[:3]))


@pytest.fixture
def project(sgpu: Shell, tmp_path: Path) -> Shell:
    sgpu.write("train.py", "import sys\ndef main():\n    return sys.version_info[:3]\n")
    sgpu.write("none.txt", "")
    sgpu.environ.update(PATH="/usr/bin:/bin", PYENV_ROOT=str(tmp_path / "no pyenv"))
    return sgpu


def declare(project: Shell, env: str) -> None:
    project.write("run.yaml", f"{FUNCTION_RUN}env: {env}\n")


def elder(path: Path, version: str = "3.12.1", *, threads: str = "") -> Path:
    """A program that says it is a Python of another version, and runs code as ours; one without
    a global lock has `threads="t"`."""
    abi = f"cpython-{version.rpartition('.')[0].replace('.', '')}{threads}-x86_64-linux-gnu"
    facts = f'["cpython", "{version}", "{abi}", "linux-x86_64", ""]'
    answer = (
        f'{{"python": {facts}, "executable": "{path}", "base": "{path}", "cache_tag": "x", '
        '"magic": "", "sites": []}'
    )
    text = f"""if [ "$1" = -I ] && [ "$2" = -c ]; then echo "$6"'{answer}'; exit; fi"""
    return shell_program(path, f'{text}\nexec {shlex.quote(sys.executable)} "$@"')


def shown(project: Shell, *said: str) -> str:
    """The words of a plan about its interpreter."""
    return str(project.checks(*said, id="interpreter")[0]["summary"])


def refused(project: Shell, *said: str) -> tuple[str, str]:
    (found,) = project.error("plan", *said)["diagnostics"]
    return found["code"], f"{found['summary']}; {found['hint']}"


@pytest.mark.parametrize("wanted", ["3.12", "3.12.1"])
def test_a_shim_that_does_not_run_is_passed_over_for_one_that_does(
    project: Shell, tmp_path: Path, wanted: str
) -> None:
    words = "pyenv: python3.12: command not found"
    shim = shell_program(tmp_path / "shims/python3.12", f"echo '{words}' >&2; exit 127")
    project.environ["PATH"] = f"{shim.parent}:{project.environ['PATH']}"
    declare(project, f"{{python: '{wanted}'}}")
    code, said = refused(project)
    assert code == "python_missing"
    assert f"this machine has no Python `{wanted}`; `{shim}` was passed over: {words}" in said
    found = elder(tmp_path / "bin/python3.12")
    project.environ["PATH"] += f":{found.parent}"
    assert shown(project) == f"ranks use Python 3.12.1, `{found}`"
    assert project("apply", "-y").code == 0  # ranks are started with what the plan found


def test_a_version_that_uv_or_pyenv_installed_serves(project: Shell, tmp_path: Path) -> None:
    declare(project, "{python: '3.12.1'}")
    assert refused(project)[0] == "python_missing"
    root = Path(project.environ["XDG_DATA_HOME"]) / "uv/python"
    found = elder(root / "cpython-3.12.1-linux-x86_64-gnu/bin/python3.12")
    assert f"`{found}`" in shown(project)
    found.unlink()
    project.environ["PYENV_ROOT"] = str(tmp_path / "pyenv")
    found = elder(tmp_path / "pyenv/versions/3.12.1/bin/python3.12")
    assert f"`{found}`" in shown(project)


def test_of_several_patch_versions_the_newest_serves(project: Shell, tmp_path: Path) -> None:
    root = Path(project.environ["XDG_DATA_HOME"]) / "uv/python"
    project.environ["PYENV_ROOT"] = str(tmp_path / "pyenv")
    found = {}
    for version in ("3.12.1", "3.12.10", "3.12.9"):
        found[version] = elder(root / f"cpython-{version}-linux/bin/python3.12", version)
        elder(tmp_path / f"pyenv/versions/{version}/bin/python3.12", version)
    declare(project, "{python: '3.12'}")
    assert shown(project) == f"ranks use Python 3.12.10, `{found['3.12.10']}`"
    declare(project, "{python: '3.12.9'}")
    assert f"`{found['3.12.9']}`" in shown(project)
    for path in found.values():
        path.unlink()
    declare(project, "{python: '3.12'}")
    assert shown(project).startswith("ranks use Python 3.12.10, ")


def test_a_version_alone_never_means_a_python_without_a_global_lock(
    project: Shell, tmp_path: Path
) -> None:
    root = Path(project.environ["XDG_DATA_HOME"]) / "uv/python"
    free = elder(root / "cpython-3.13.5+freethreaded-linux/bin/python3.13", "3.13.5", threads="t")
    declare(project, "{python: '3.13'}")
    code, words = refused(project)
    assert code == "python_missing"
    assert f"`{free}` was passed over: it is free-threaded; name it by its path to use it" in words
    usual = elder(root / "cpython-3.13.2-linux/bin/python3.13", "3.13.2")
    assert f"`{usual}`" in shown(project)
    declare(project, f"{{python: {free}}}")
    assert f"`{free}`" in shown(project)


def test_ranks_are_started_with_a_python_that_is_truly_another_one(project: Shell) -> None:
    """Such as that of the operating system beside one of pyenv."""
    ask = "import sys, platform; print(platform.python_version(), sys.version_info >= (3, 10))"
    for path in sorted(Path("/usr/bin").glob("python3.[0-9][0-9]")):
        said = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=True)
        version, usable = said.stdout.split()
        if usable == "True" and version != OWN:
            break
    else:
        pytest.skip("this machine has no other Python in /usr/bin")
    declare(project, f"{{python: '{version}'}}")
    assert shown(project) == f"ranks use Python {version}, `{path}`"
    assert project("apply", "-y").code == 0
    (result,) = project.data("results", "a")["results"]
    assert result["value"]["repr"] == repr(tuple(map(int, version.split("."))))


@pytest.mark.parametrize("more", ["", ", snapshot: true"])
def test_a_path_of_an_interpreter_that_does_not_run(project: Shell, more: str) -> None:
    declare(project, f"{{python: other/bin/python{more}}}")
    project.write(".gitignore", "other/\n")
    (project.folder / "other/bin").mkdir(parents=True)
    (project.folder / "other/bin/python").symlink_to("/nowhere/python3")
    code, said = refused(project)
    assert code == "python_missing"
    assert "not a working interpreter: it links to `/nowhere/python3`, which does not exist" in said


def test_an_interpreter_outside_of_the_project_that_does_not_run(
    project: Shell, tmp_path: Path
) -> None:
    broken = shell_program(tmp_path / "broken/python", "echo 'no such version' >&2; exit 1")
    declare(project, f"{{python: {broken}}}")
    assert "not a working interpreter: no such version" in refused(project)[1]


@pytest.mark.parametrize(
    "more",
    ["", pytest.param(", snapshot: true", marks=pytest.mark.expensive), ", requirements: none.txt"],
)
def test_a_plan_runs_no_program_of_the_project_that_it_names_as_its_interpreter(
    project: Shell, tmp_path: Path, more: str
) -> None:
    ran = tmp_path / "ran"
    shell_program(
        project.folder / "tools/python", f'touch {ran}; exec {shlex.quote(sys.executable)} "$@"'
    )
    declare(project, f"{{python: tools/python{more}}}")
    if more:
        code, said = refused(project)
        assert code == "interpreter_untrusted"
        assert "lies in the project, and a plan runs no program of the project" in said
        assert "`sgpu plan --trust-project`" in said
    else:
        planned = project.done("plan")
        assert "lies in the project: this plan did not run it\n  hint: `sgpu plan --trust-" in (
            planned.out
        )
    project.done("validate")
    assert not ran.exists()
    project.done("plan", "--trust-project")
    assert ran.exists()
    ran.unlink()


def test_one_on_the_path_that_lies_in_the_project_is_not_run_either(
    project: Shell, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    shell_program(project.folder / "bin/python3.12", f"touch {ran}")
    project.environ["PATH"] = f"{project.folder}/bin:bin:."
    declare(project, "{python: '3.12', requirements: none.txt}")
    assert refused(project)[0] == "interpreter_untrusted"
    assert not ran.exists()


def test_a_virtual_environment_of_the_project_is_planned_without_running_it(
    project: Shell, tmp_path: Path
) -> None:
    folder = project.folder / ".venv"
    create(folder, symlinks=True, with_pip=False)
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "tool.py").write_text("value = 1\n")
    (site / "tool-1.0.dist-info").mkdir()
    (site / "tool-1.0.dist-info/METADATA").write_text("Name: tool\nVersion: 1.0\n")
    ran = tmp_path / "ran"
    (site / "start.pth").write_text(f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n")
    declare(project, "{python: .venv/bin/python, snapshot: true}")

    def digest(*said: str) -> str:
        changes = project.data("plan", *said)["changes"]
        return next(
            change["environment"]["digest"] for change in changes if change["kind"] == "environment"
        )

    planned = digest()
    assert not ran.exists()
    assert digest("--trust-project") == planned


def test_a_link_of_the_project_to_another_program_is_not_run(
    project: Shell, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    other = shell_program(tmp_path / "tool", f"touch {ran}")
    project.write(".gitignore", "/python\n")
    (project.folder / "python").symlink_to(other)
    declare(project, "{python: ./python, snapshot: true}")
    assert f"it links to `{other}`, which is not a Python" in refused(project)[1]
    assert not ran.exists()


def test_another_interpreter_is_asked_once(project: Shell, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    found = elder(tmp_path / "bin/python3.12")
    found.write_text(found.read_text().replace("\n", f"\necho x >> {asked}\n", 1))
    declare(project, f"{{python: {found}}}")
    for _ in range(2):
        assert f"`{found}`" in shown(project)
    assert asked.read_text() == "x\n"
    assert os.path.exists(project.environ["XDG_CACHE_HOME"] + "/sgpu/pythons.json")


def test_a_name_that_is_neither_a_version_nor_a_path_is_refused_as_that(project: Shell) -> None:
    declare(project, "{python: python3}")
    code, words = refused(project)
    assert code == "python_missing"
    assert "`env.python: python3` is neither a version nor a path" in words
    assert "`/usr/bin/python3`" in words


def test_a_command_is_told_that_its_python_is_that_of_the_path(project: Shell) -> None:
    head = "name: run\ngpus: 1\ntype: CPU\ncommand: [python, -V]\n"
    project.write("run.yaml", f"{head}env: {{python: '{sys.executable}'}}\n")
    (warning,) = project.checks(id="python_unused")
    assert warning["severity"] == "warning"
    assert f"write `{sys.executable}` into the command" in warning["hint"]
    assert (warning["place"]["line"], warning["place"]["column"]) == (5, 15)


NOISE = "import atexit, os, sys; sys.stdout.write('noise {\"a\": '); atexit.register(print, 'bye')"


@pytest.mark.parametrize(
    "env",
    [
        pytest.param("{snapshot: true, python: v/bin/python}", marks=pytest.mark.expensive),
        pytest.param("{requirements: none.txt, python: v/bin/python}", marks=pytest.mark.expensive),
        "{python: v/bin/python}",
    ],
)
def test_an_interpreter_that_prints_serves_at_plan_and_apply(project: Shell, env: str) -> None:
    create(project.folder / "v", symlinks=True, with_pip=False)
    site = next((project.folder / "v/lib").glob("python*/site-packages"))
    (site / "noise.pth").write_text(f"{NOISE}\n")
    project.environ["PATH"] += f":{Path(sys.executable).parent}"  # of uv
    declare(project, env)
    project.done("plan")
    project.done("plan", "--trust-project")
    if "snapshot" in env or "requirements" in env:
        assert project("apply", "-y").code == 0


def test_what_others_print_is_no_part_of_an_answer(project: Shell, tmp_path: Path) -> None:
    """A copy of an interpreter has to be asked itself, and so is one behind a shim that prints."""
    create(tmp_path / "v", symlinks=False, with_pip=False)
    site = next((tmp_path / "v/lib").glob("python*/site-packages"))
    (site / "noise.pth").write_text(f"{NOISE}\n")
    copied = tmp_path / "v/bin/python"
    shim = shell_program(tmp_path / "shim/python", f'echo "now: {{}}"; exec {copied} "$@"')
    for path in (copied, shim):
        declare(project, f"{{python: {path}, snapshot: true}}")
        project.done("plan")


@pytest.mark.parametrize(
    ("named", "more"),
    [
        ("3.9", ""),
        ("3.8.18", ", requirements: none.txt"),
        ("/elder/python3.9", ", snapshot: true"),
        ("/elder/python", ", requirements: none.txt"),
    ],
)
def test_a_python_that_ranks_cannot_have_is_refused_by_the_plan(
    project: Shell, tmp_path: Path, named: str, more: str
) -> None:
    path = elder(tmp_path / "elder" / Path(named).name, "3.9.18")
    named = str(path) if "/" in named else named
    declare(project, f"{{python: '{named}'{more}}}")
    answer = project.error("plan")["diagnostics"]
    assert {item["code"] for item in answer} == {"python_too_old"}
    assert "ranks need Python 3.10 or newer" in answer[0]["summary"]
    assert answer[0]["line"] == 6


def test_a_lock_for_pythons_that_ranks_cannot_have(project: Shell) -> None:
    project.write(
        "pylock.toml",
        'lock-version = "1.0"\ncreated-by = "x"\nrequires-python = ">=3.8,<3.10"\npackages = []\n',
    )
    declare(project, "{lock: pylock.toml}")
    code, words = refused(project)
    assert code == "python_mismatch"
    assert "ranks need Python 3.10 or newer" in words


@pytest.mark.expensive
@pytest.mark.parametrize("env", ["requirements: none.txt", "snapshot: true", "snapshot of a venv"])
def test_ranks_have_the_oldest_python_that_they_can_have(project: Shell, env: str) -> None:
    found = Pythons(os.environ).find("3.10", project.folder)
    if not isinstance(found, LocalPython):
        pytest.skip("this machine has no Python 3.10")
    python = found.executable
    project.environ["PATH"] += f":{Path(sys.executable).parent}"  # of uv
    if env == "snapshot of a venv":
        subprocess.run([python, "-m", "venv", "--without-pip", "v"], cwd=project.folder, check=True)
        python, env = "v/bin/python", "snapshot: true"
    declare(project, f"{{python: {python}, {env}}}")
    applied = project("apply", "-y")
    assert applied.code == 0, applied
    (result,) = project.data("results", "a")["results"]
    assert result["value"]["repr"].startswith("(3, 10, ")
