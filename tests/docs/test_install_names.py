"""What a text tells people to install is what it means: `sgpu` on PyPI is another project.

All text of the checkout is read but the tests: pages, hints, codes, templates, scripts, notebooks.
"""

import itertools
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator

import pytest

from sgpu_decl import __version__
from sgpu_decl.distribution import EXTRAS, FORMER_NAME, NAME, SOURCE
from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WHEEL = f"sgpu_decl-{__version__}-py3-none-any.whl"
OTHERS = {
    "cloudpickle": "functions and results of notebooks",
    "databricks-air": "the platform's own client",
    "databricks-sdk": "the Databricks backend",
    "debugpy": "the debugger of VS Code",
    "mlflow": "tracking",
    "nvidia-ml-py": "NVIDIA's own bindings of NVML",
    "obstore": "a state in a bucket",
    "optuna": "a search for hyperparameters",
    "psutil": "MLflow's system metrics",
    "psycopg": "a state in PostgreSQL",
    "ray": "Ray",
    "tensorboard": "TensorBoard",
    "torch": "training, and what writes for TensorBoard",
    "uv": "declared environments",
    "vl-convert-python": "the plots of a report",
    "wandb": "an example of a package",
}
"""Names of other projects that a text may install: each was looked at on PyPI."""
PLACEHOLDERS = {"PACKAGE", "X", "x", "…"}
_INSTALLS = re.compile(
    r"""(?:\bpip[23]?[ ]+|\bpipx[ ]+|\buv[ ]+(?:pip[ ]+|tool[ ]+)?|\bconda[ ]+)
        (?:install|download|wheel|add|inject|upgrade|run(?=[ ]+sgpu))[ ]+([^`\n|;&#(]*)
        | \buvx[ ]+([^`\n|;&#(]*)""",
    re.VERBOSE,
)
_TAKE_VALUES = {
    "-r", "--dest", "-d", "--wheel-dir", "-w", "--find-links", "-f", "--target", "--python",
    "--only-binary", "--index-url", "-i", "-c",
}  # fmt: skip
# `requires` of a project names this program, and nothing installs what it says.
_AS_REQUIREMENT = re.compile(
    r"""(?<!requires: )(?<!requires: ["'])(?<!requires: \\")"""
    r"(?<![\w./@-])sgpu(?:\[[a-z]|\s?(?:==|~=|>=|<=|!=)\s?\d)"
)


def _texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if not name.startswith("tests/") and path.is_file():
            yield name, path.read_text(encoding="utf-8", errors="replace")


def _requirements(text: str) -> Iterator[str]:
    """What the commands in a text install: names, files and folders."""
    text = re.sub(r"\\\n\s*", " ", text).replace("\\n", "\n").replace('\\"', '"')
    for found in _INSTALLS.finditer(text):
        rest = found[1] or found[2]
        try:
            words = shlex.split(rest)
        except ValueError:  # the quote of a string of Python ends behind the command
            words = re.split(r"[\s'\"]+", rest)
        for before, word in itertools.pairwise(["", *words]):
            bare = word if set(word) <= set("./") else word.strip("'\",").rstrip(".:)")
            if bare and before not in _TAKE_VALUES and not word.startswith("-"):
                yield bare


def _fault(word: str) -> str | None:
    """What is wrong with a word that pip is given."""
    place, _, extras = word.partition("[")
    unknown = set(filter(None, extras.rstrip("]").split(","))) - {*PROJECT["optional-dependencies"]}
    if place.endswith(".whl"):
        wrong = not place.endswith(WHEEL)
    elif place.startswith((".", "/")) or place == "CHECKOUT":  # a folder
        wrong = False
    else:
        name = re.split(r"[=<>~!@ ]", place)[0].lower().replace("_", "-")
        known = {*OTHERS, NAME} if SOURCE == NAME else {*OTHERS}
        return None if name in known or place in PLACEHOLDERS or "{" in place else word
    return word if wrong or unknown else None


def test_no_text_installs_a_name_that_is_not_meant() -> None:
    faults = [
        f"{file}: {fault}"
        for file, text in _texts()
        for word in _requirements(text)
        if (fault := _fault(word)) is not None
    ]
    assert faults == []


def test_no_text_has_the_other_project_as_a_requirement() -> None:
    faults = [
        f"{file}: {found[0]}" for file, text in _texts() for found in _AS_REQUIREMENT.finditer(text)
    ]
    assert faults == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install sgpu",
        "pip install --upgrade sgpu",
        "RUN python3 -m pip install -q 'sgpu[mlflow]'",
        "`pip download --dest wheels 'sgpu[env]' -r requirements.txt`",
        "%pip install sgpu\\n",
        "uv tool install sgpu",
        "uv add sgpu",
        "uvx sgpu plan",
        "pipx install sgpu",
        "pipx run sgpu",
        "pip install sgpu-decl==0.1.0",
        "pip install \\\n    sgpu",
        'hint="install it with `pip install sgpu-tools`"',
        "pip install dist/sgpu-0.1.0-py3-none-any.whl",
        "pip install '.[everything]'",
    ],
)
def test_a_wrong_name_is_noticed(text: str) -> None:
    assert [word for word in _requirements(text) if _fault(word)]


def test_a_right_source_is_taken() -> None:
    text = f"pip install {SOURCE}\npip install '{SOURCE}[ray]'\npip install 'dist/{WHEEL}[mlflow]'"
    assert list(map(_fault, _requirements(text))) == [None] * 3
    assert len(list(_requirements(text))) == 3


def test_the_project_has_the_name_that_the_code_says() -> None:
    assert NAME != FORMER_NAME == "sgpu"
    assert PROJECT["name"] == NAME
    assert {*PROJECT["scripts"]} == {"sgpu"}
    extras = PROJECT["optional-dependencies"]
    every = [*PROJECT["dependencies"], *itertools.chain(*extras.values())]
    assert [item for item in every if re.match(r"sgpu(?!-decl\[)", item)] == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_hints_name_the_requirements_of_an_extra(extra: str) -> None:
    said = [line.partition(";")[0] for line in PROJECT["optional-dependencies"][extra]]
    assert list(EXTRAS[extra]) == said
    assert {re.split(r"[\[<>=]", line)[0] for line in said} <= {*OTHERS}


def test_the_pages_of_mlflow_are_served_by_our_command() -> None:
    """It finds the store by itself, and prints what a machine that is reached by ssh needs."""
    named = [
        name
        for name, text in _texts()
        if name != "CHANGELOG.md" and re.search(r"\bui --backend-store-uri", text)
    ]
    assert not named
