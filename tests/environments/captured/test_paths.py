"""What leads out of the folder of packages, or into it: .pth files, editable installs, links."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.environments.captured.capture import Captured
from sgpu_decl.environments.captured.interpreter_facts import InterpreterFacts, ask
from sgpu_decl.environments.captured.site_layout import lay_out
from tests.environments.captured.conftest import Venv

SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
ONE = SITE.replace("site-packages", "site-1")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("src/beta/__init__.py", "src/beta/part.py", "data/big.bin", "src/solo.py"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def _paths(captured: Captured | None) -> set[str]:
    assert captured is not None
    return {file.path for file in captured.manifest.files}


def _links(captured: Captured | None) -> dict[str, str]:
    assert captured is not None
    return {file.path: file.content for file in captured.manifest.files if file.kind == "l"}


def test_a_folder_that_a_pth_file_adds_is_a_place_of_its_own(venv: Venv, project: Path) -> None:
    venv.install("alpha")
    venv.write({"a.pth": f"# mine\n\n{project}/src\n/nowhere/at/all\n", "beta/__init__.py": "own"})
    captured = venv.taken()
    assert captured.manifest.sites == (SITE, ONE)
    assert {f"{ONE}/beta/part.py", f"{ONE}/solo.py", f"{SITE}/beta/__init__.py"} <= _paths(captured)
    assert f"{SITE}/a.pth" not in _paths(captured)
    assert captured.sources[f"{ONE}/solo.py"] == f"{project}/src/solo.py"


def test_a_folder_inside_that_a_pth_file_adds_is_taken_once(venv: Venv) -> None:
    venv.write({"egg/alpha.py": "", "a.pth": f"./egg\n{venv.site}/egg\n"})
    captured = venv.taken()
    assert captured.manifest.sites == (SITE, f"{SITE}/egg")
    assert _paths(captured) == {f"{SITE}/egg/alpha.py"}


def test_what_a_pth_file_runs_stays(venv: Venv, project: Path) -> None:
    venv.write({"hook.py": "", "h.pth": f"import hook; hook.run()\n{project}/src\n"})
    captured = venv.taken()
    assert captured.new_contents == {f"{SITE}/h.pth": b"import hook; hook.run()\n"}
    assert f"{SITE}/h.pth" in _paths(captured)


def test_another_environment_that_is_added_keeps_its_packages_apart(
    make_venv: Callable[..., Venv],
) -> None:
    venv, other = make_venv(), make_venv("other")
    venv.install("alpha", "2.0")
    other.install("alpha", "1.0")
    other.install("beta", "1.0")
    venv.write({"o.pth": f"{other.site}\n"})
    captured = venv.taken()
    assert captured.manifest.sites == (SITE, ONE)
    assert captured.manifest.packages == (("alpha", "2.0"), ("beta", "1.0"))
    assert {"bin/alpha", "bin/beta"} <= _paths(captured)
    assert captured.sources["bin/alpha"] == f"{venv.path}/bin/alpha"


def test_the_packages_of_the_system_follow_those_of_a_venv_that_inherits_them(
    make_venv: Callable[..., Venv],
) -> None:
    venv = make_venv()
    assert ask(venv.python).sites == (str(venv.site),)
    config = venv.path / "pyvenv.cfg"
    config.write_text(config.read_text().replace("= false", "= true"))
    asked = ask(venv.python)
    # Its interpreter knows as much of it, and runs none of its `.pth` files.
    without = ask(venv.python, os.path.realpath(venv.python))
    assert isinstance(asked, InterpreterFacts)
    assert isinstance(without, InterpreterFacts)
    assert replace(without, base=asked.base) == asked
    layout = lay_out(asked)
    assert layout.sites[:2] == [SITE, ONE]
    assert layout.roots[0].path == str(venv.site)
    assert layout.roots[1].real.startswith(os.path.realpath(sys.base_prefix))


SETUPTOOLS = """
from __future__ import annotations
MAPPING: dict[str, str] = {{'beta': '{0}/src/beta', 'solo': '{0}/src/solo', 'gone': '/nowhere'}}
NAMESPACES: dict[str, list[str]] = {{}}
raise RuntimeError("this must not be run")
"""
EDITABLES = """
from editables.redirector import RedirectingFinder as F
F.install()
F.map_module('beta', '{0}/src/beta/__init__.py')
F.map_module('solo', '{0}/src/solo.py')
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("__editable___beta_1_0_finder", SETUPTOOLS),
        ("_editable_impl_beta", EDITABLES),
    ],
)
def test_editable_packages_behind_a_finder_are_taken_without_it(
    venv: Venv, project: Path, name: str, text: str
) -> None:
    venv.install("alpha")
    line = f"import {name}; {name}.install()\n" if "finder" in name else f"import {name}\n"
    venv.write({f"{name}.py": text.format(project), "b.pth": line})
    captured = venv.taken()
    assert captured.manifest.sites == (SITE, ONE)
    paths = {path for path in _paths(captured) if path.startswith(ONE)}
    assert paths == {f"{ONE}/beta/__init__.py", f"{ONE}/beta/part.py", f"{ONE}/solo.py"}
    assert not any(path.endswith((f"{name}.py", ".pth")) for path in _paths(captured))


def test_of_a_project_what_is_no_code_is_left_out(venv: Venv, project: Path) -> None:
    (project / ".gitignore").write_text("data/\n*.so\n_version.py\n*.tmp\n")
    (project / ".sgpuignore").write_text("!kept.tmp\n")
    left_out = (".git/x", ".env", "x.tmp", "own/pyvenv.cfg", "own/lib.py", "src/beta/run.log")
    for name in (*left_out, "kept.tmp"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("x")
    # What git ignores and an import needs.
    for name in ("src/beta/fast.so", "src/beta/_version.py"):
        (project / name).write_text("x")
    venv.write({"p.pth": f"{project}\n"})
    paths = {path.removeprefix(f"{ONE}/") for path in _paths(venv.taken())}
    assert paths == {
        "src/beta/__init__.py",
        "src/beta/part.py",
        "src/beta/fast.so",
        "src/beta/_version.py",
        "src/solo.py",
        "kept.tmp",
    }


def test_a_project_that_holds_the_environment_does_not_hold_itself(
    make_venv: Callable[..., Venv], tmp_path: Path
) -> None:
    venv = make_venv("project/env")
    (tmp_path / "project/mine.py").write_text("")
    venv.install("alpha")
    venv.write({"p.pth": f"{tmp_path}/project\n"})
    assert {path for path in _paths(venv.taken()) if path.startswith(ONE)} == {f"{ONE}/mine.py"}


def test_links_that_stay_inside_stay_links(venv: Venv) -> None:
    venv.write({"alpha/lib.so.1": "x", "beta/__init__.py": ""})
    (venv.site / "alpha/lib.so").symlink_to("lib.so.1")
    (venv.site / "gamma").symlink_to(venv.site / "beta")
    assert _links(venv.taken()) == {f"{SITE}/alpha/lib.so": "lib.so.1", f"{SITE}/gamma": "beta"}


def test_of_links_that_lead_out_the_content_is_taken(venv: Venv, project: Path) -> None:
    venv.write({"alpha/__init__.py": ""})
    (venv.site / "alpha/one.py").symlink_to(project / "src/solo.py")
    (venv.site / "beta").symlink_to(project / "src/beta")
    captured = venv.taken()
    assert _links(captured) == {}
    assert {f"{SITE}/alpha/one.py", f"{SITE}/beta/part.py"} <= _paths(captured)


def test_links_that_lead_round_end(venv: Venv, project: Path) -> None:
    (project / "src/back").symlink_to(project)
    (project / "src/beta/home").symlink_to(venv.site)
    (venv.site / "out").symlink_to(project / "src")
    captured, said = venv.look()
    assert "link_circular" in said
    assert f"{SITE}/out/back/src/beta/part.py" in _paths(captured)
    assert _links(captured)[f"{SITE}/out/beta/home"] == "../.."


def test_links_to_nothing_are_left_out(venv: Venv) -> None:
    venv.write({"alpha/__init__.py": "", "alpha/__pycache__/x.txt": ""})
    (venv.site / "alpha/gone").symlink_to("nowhere")
    (venv.site / "alpha/cache").symlink_to("__pycache__")
    captured, said = venv.look()
    assert set(said) == {"link_dangling"}
    assert _paths(captured) == {f"{SITE}/alpha/__init__.py"}


def test_a_project_of_too_many_files_is_named(
    venv: Venv, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sgpu_decl.environments.captured import file_walk

    monkeypatch.setattr(file_walk, "MOST_OF_PROJECT", 3)
    venv.write({"p.pth": f"{project}\n"})
    captured, said = venv.look()
    assert captured is None
    assert os.fspath(project) in said["environment_too_many_files"]


def _mine(captured: Captured | None) -> dict[str, Any]:
    """The modules of the package `beta`, with where they lie now."""
    return {path: source for path, source in captured.sources.items() if "/beta/" in path}


def test_an_editable_install_of_scikit_build_core_is_taken_with_what_was_built(
    venv: Venv, project: Path
) -> None:
    # The last line of the hook that 1.1 writes; 0.5 to 0.12 name the file `_NAME_editable.py`.
    call = (
        f"install({{'beta': '{project}/src/beta/__init__.py', "
        f"'beta.part': '{project}/src/beta/part.py'}}, {{'beta.made': 'beta/made.py'}}, "
        f"{{'beta': ['{project}/src/beta', 'beta']}}, ['beta'], None, False, True, [], [], '')\n"
    )
    for hook in ("_editable_skbc_beta", "_beta_editable"):
        venv.write({f"{hook}.py": call, f"{hook}.pth": f"import {hook}\n", "beta/made.py": "x = 1"})
        captured = venv.taken()
        assert _mine(captured) == {
            f"{SITE}/beta/__init__.py": f"{project}/src/beta/__init__.py",
            f"{SITE}/beta/part.py": f"{project}/src/beta/part.py",
            f"{SITE}/beta/made.py": f"{venv.site}/beta/made.py",
        }
        assert captured.new_contents == {}
        assert f"{SITE}/{hook}.py" not in _paths(captured)
        (venv.site / f"{hook}.py").unlink()
        (venv.site / f"{hook}.pth").unlink()


def test_an_editable_install_of_meson_python_is_taken_by_the_plan_of_the_build(
    venv: Venv, project: Path
) -> None:
    build = project / "build/cp311"
    (build / "meson-info").mkdir(parents=True)
    (build / "made.py").write_text("x = 1")
    plan = {
        "targets": {f"{build}/made.py": {"destination": "{py_platlib}/beta/made.py"}},
        "python": {
            f"{project}/src/beta/__init__.py": {"destination": "{py_purelib}/beta/__init__.py"}
        },
        "data": {f"{project}/data/big.bin": {"destination": "{datadir}/big.bin"}},
    }
    (build / "meson-info/intro-install_plan.json").write_text(json.dumps(plan))
    hook = "_beta_editable_loader"
    venv.write(
        {
            f"{hook}.py": f"def init():\n    finder = MesonpyMetaFinder('beta', {{'beta'}}, "
            f"'{build}', ['/usr/bin/ninja'], False)\n",
            "beta-editable.pth": f"import {hook}; {hook}.init()",
        }
    )
    captured = venv.taken()
    assert _mine(captured) == {
        f"{SITE}/beta/__init__.py": f"{project}/src/beta/__init__.py",
        f"{SITE}/beta/made.py": f"{build}/made.py",
    }
    assert captured.new_contents == {}


def test_an_unknown_finder_of_a_live_tree_is_a_warning(venv: Venv, project: Path) -> None:
    venv.write(
        {"finder.py": f"ROOT = {str(project)!r}\ndef run(): pass\n", "f.pth": "import finder\n"}
    )
    _, said = venv.look()
    assert f"`{venv.site}/f.pth` runs code that names `{project}`" in said["editable_not_taken"]
    venv.write({"f.pth": f"import sys; sys.path.insert(0, {str(project)!r})\n"})
    assert "editable_not_taken" in venv.look()[1]
    venv.write({"f.pth": f"import finder\n{project}\n"})  # it is taken by another line
    assert venv.look()[1] == {}


def test_an_editable_install_without_any_file_is_a_warning(venv: Venv, project: Path) -> None:
    direct = {"url": project.as_uri(), "dir_info": {"editable": True}}
    venv.install("beta", files={"beta/__init__.py": ""})
    venv.write({"beta-1.0.dist-info/direct_url.json": json.dumps(direct)})
    _, said = venv.look()
    assert f"`beta` is installed in editable mode from `{project}`" in said["editable_not_taken"]
    venv.write({"b.pth": f"{project}/src\n"})
    assert "editable_not_taken" not in venv.look()[1]
