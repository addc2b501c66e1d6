"""What leads out of the folder of packages, or into it: .pth files, editable installs, links."""

import os
import sys

import pytest

from sgpu_decl.environments.captured.interpreter import ask
from sgpu_decl.environments.captured.layout import lay_out

SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
ONE = SITE.replace("site-packages", "site-1")


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    for name in ("src/beta/__init__.py", "src/beta/part.py", "data/big.bin", "src/solo.py"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def _paths(captured):
    return {file.path for file in captured.manifest.files}


def _links(captured):
    return {it.path: it.content for it in captured.manifest.files if it.kind == "l"}


def test_a_folder_that_a_pth_file_adds_is_a_place_of_its_own(venv, project):
    venv.install("alpha")
    venv.write({"a.pth": f"# mine\n\n{project}/src\n/nowhere/at/all\n", "beta/__init__.py": "own"})
    captured = venv.taken()
    assert captured.manifest.sites == (SITE, ONE)
    assert {f"{ONE}/beta/part.py", f"{ONE}/solo.py", f"{SITE}/beta/__init__.py"} <= _paths(captured)
    assert f"{SITE}/a.pth" not in _paths(captured)
    assert captured.sources[f"{ONE}/solo.py"] == f"{project}/src/solo.py"


def test_a_folder_inside_that_a_pth_file_adds_is_taken_once(venv):
    venv.write({"egg/alpha.py": "", "a.pth": f"./egg\n{venv.site}/egg\n"})
    captured = venv.taken()
    assert captured.manifest.sites == (SITE, f"{SITE}/egg")
    assert _paths(captured) == {f"{SITE}/egg/alpha.py"}


def test_what_a_pth_file_runs_stays(venv, project):
    venv.write({"hook.py": "", "h.pth": f"import hook; hook.run()\n{project}/src\n"})
    captured = venv.taken()
    assert captured.written == {f"{SITE}/h.pth": b"import hook; hook.run()\n"}
    assert f"{SITE}/h.pth" in _paths(captured)


def test_another_environment_that_is_added_keeps_its_packages_apart(make_venv):
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


def test_the_packages_of_the_system_follow_those_of_a_venv_that_inherits_them(make_venv):
    venv = make_venv()
    assert ask(venv.python).sites == (str(venv.site),)
    config = venv.path / "pyvenv.cfg"
    config.write_text(config.read_text().replace("= false", "= true"))
    layout = lay_out(ask(venv.python))
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
def test_editable_packages_behind_a_finder_are_taken_without_it(venv, project, name, text):
    venv.install("alpha")
    line = f"import {name}; {name}.install()\n" if "finder" in name else f"import {name}\n"
    venv.write({f"{name}.py": text.format(project), "b.pth": line})
    captured = venv.taken()
    assert captured.manifest.sites == (SITE, ONE)
    paths = {path for path in _paths(captured) if path.startswith(ONE)}
    assert paths == {f"{ONE}/beta/__init__.py", f"{ONE}/beta/part.py", f"{ONE}/solo.py"}
    assert not any(path.endswith((f"{name}.py", ".pth")) for path in _paths(captured))


def test_of_a_project_what_is_no_code_is_left_out(venv, project):
    (project / ".gitignore").write_text("data/\n*.so\n_version.py\n*.tmp\n")
    for name in (".git/x", ".env", "x.tmp", "own/pyvenv.cfg", "own/lib.py", "src/beta/run.log"):
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
    }


def test_a_project_that_holds_the_environment_does_not_hold_itself(make_venv, tmp_path):
    venv = make_venv("project/env")
    (tmp_path / "project/mine.py").write_text("")
    venv.install("alpha")
    venv.write({"p.pth": f"{tmp_path}/project\n"})
    assert {path for path in _paths(venv.taken()) if path.startswith(ONE)} == {f"{ONE}/mine.py"}


def test_links_that_stay_inside_stay_links(venv):
    venv.write({"alpha/lib.so.1": "x", "beta/__init__.py": ""})
    (venv.site / "alpha/lib.so").symlink_to("lib.so.1")
    (venv.site / "gamma").symlink_to(venv.site / "beta")
    captured = venv.taken()
    assert _links(captured) == {f"{SITE}/alpha/lib.so": "lib.so.1", f"{SITE}/gamma": "beta"}


def test_of_links_that_lead_out_the_content_is_taken(venv, project):
    venv.write({"alpha/__init__.py": ""})
    (venv.site / "alpha/one.py").symlink_to(project / "src/solo.py")
    (venv.site / "beta").symlink_to(project / "src/beta")
    captured = venv.taken()
    assert _links(captured) == {}
    assert {f"{SITE}/alpha/one.py", f"{SITE}/beta/part.py"} <= _paths(captured)


def test_links_that_lead_round_end(venv, project):
    (project / "src/back").symlink_to(project)
    (project / "src/beta/home").symlink_to(venv.site)
    (venv.site / "out").symlink_to(project / "src")
    captured, said = venv.look()
    assert "link_circular" in said
    assert f"{SITE}/out/back/src/beta/part.py" in _paths(captured)
    assert _links(captured)[f"{SITE}/out/beta/home"] == "../.."


def test_links_to_nothing_are_left_out(venv):
    venv.write({"alpha/__init__.py": "", "alpha/__pycache__/x.txt": ""})
    (venv.site / "alpha/gone").symlink_to("nowhere")
    (venv.site / "alpha/cache").symlink_to("__pycache__")
    captured, said = venv.look()
    assert set(said) == {"link_dangling"}
    assert _paths(captured) == {f"{SITE}/alpha/__init__.py"}


def test_a_project_of_too_many_files_is_named(venv, project, monkeypatch):
    from sgpu_decl.environments.captured import walking

    monkeypatch.setattr(walking, "MOST_OF_PROJECT", 3)
    venv.write({"p.pth": f"{project}\n"})
    captured, said = venv.look()
    assert captured is None
    assert os.fspath(project) in said["environment_too_many_files"]
