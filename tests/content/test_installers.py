"""What installers do in a tree, root or not: the real ones, on a wheel that lies beside them."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.content.hydration import whole
from sgpu_decl.content.tree_start import REFUSAL, _arguments_of_pip, changes

TINY = {"tiny.py": "x = 1\n"}


def pip_itself() -> dict[str, bytes]:
    """The files of the pip that made this environment."""
    try:
        files = importlib.metadata.files("pip") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("there is no pip here")
    return {
        str(path): Path(path.locate()).read_bytes()
        for path in files
        if not str(path).startswith("..") and path.suffix != ".pyc"
    }


def run(*argv: object, **env: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [str(word) for word in argv],
        env={**kept, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.expensive
def test_pip_refuses_to_change_a_tree_and_says_what_to_do(
    make_environment: Any, pack_wheel: Any, tmp_path: Path, say: Any
) -> None:
    main = "#!python\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
    tree = make_environment(pip_itself(), scripts={"bin/pip": main}).hydrate()
    python, wheel = tree / "bin/python", pack_wheel("tiny", "1.0", TINY)
    for argv in (
        (python, "-m", "pip", "install", wheel),
        (python, "-X", "utf8", "-Im", "pip", "-q", "install", "--break-system-packages", wheel),
        (tree / "bin/pip", "install", "--root-user-action=ignore", wheel),
        (tree / "bin/pip", "uninstall", "-y", "pip"),
    ):
        refused = run(*argv)
        assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", REFUSAL)
    own = tmp_path / "own"
    own.mkdir()
    shown = run(python, "-m", "pip", "list")
    assert (shown.returncode, "pip" in shown.stdout) == (0, True)
    done = run(python, "-m", "pip", "install", "--target", own, wheel)
    assert done.returncode == 0, done.stderr
    assert say(tree, "import tiny; print(json.dumps(tiny.__file__))", SGPU_SITE=str(own)) == str(
        own / "tiny.py"
    )
    assert whole(str(tree))


def test_uv_refuses_to_change_a_tree_and_says_what_to_do(
    make_environment: Any, pack_wheel: Any, tmp_path: Path
) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("there is no uv here")
    tree, wheel = make_environment({}).hydrate(), pack_wheel("tiny", "1.0", TINY)
    offline = {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}
    install = (uv, "pip", "install", "--python", tree / "bin/python", wheel)
    refused = run(*install, **offline)
    assert refused.returncode != 0
    assert "declare the package in `env.dependencies`" in refused.stderr
    assert whole(str(tree))
    done = run(*install, "--target", tmp_path / "own", **offline)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "own/tiny.py").exists()


def test_where_there_is_no_pip_that_of_the_machine_is_not_taken(make_environment: Any) -> None:
    tree = make_environment({}).hydrate()
    refused = run("pip", "install", "anything", PATH=f"{tree}/bin:{os.environ['PATH']}")
    assert (refused.returncode, refused.stderr) == (1, REFUSAL)


def test_what_is_pip_and_what_only_looks_like_it() -> None:
    for line, arguments in (
        ("python -m pip install x", ["install", "x"]),
        ("python -Im pip list", ["list"]),
        ("python -W ignore --check-hash-based-pycs always -m pip list", ["list"]),
        ("/t/bin/python /t/bin/pip3.11 install x", ["install", "x"]),
        ("python pipeline.py install", []),
        ("python -c pip install", []),
        ("python -m pipx install", []),
        ("python train.py -m pip install", []),
        ("python", []),
    ):
        assert _arguments_of_pip(line.split()) == arguments


def test_what_changes_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (
        "install x",
        "-q install x",
        "--log f uninstall x",
        "install --root-user-action=i x",
    ):
        assert changes(words.split())
    for words in (
        "list",
        "help install",
        "install -t d x",
        "install --target=d x",
        "install -h",
        "",
    ):
        assert not changes(words.split())
    monkeypatch.setenv("PIP_TARGET", "/own")
    assert not changes(["install", "x"])
