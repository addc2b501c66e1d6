"""The first hour of a newcomer: the tutorial and the cells of a notebook, typed as they stand,
print what the pages show: on this machine, on a Ray cluster and in an emulated workspace."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster
from tests.ray_versions import NEWEST_CLUSTER
from tests.support import PATIENCE

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
ELSEWHERE = "## The same run elsewhere"
"""The heading of what needs GPUs, a Ray cluster or a workspace."""


@dataclass(frozen=True, kw_only=True)
class Newcomer:
    """Types what the page shows, in an empty folder."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    typed: list[str] = field(default_factory=list)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def edit(self, name: str, diff: str) -> None:
        text = (self.folder / name).read_text()
        (before,) = re.findall(r"^-(.*\n)", diff, flags=re.MULTILINE)
        (after,) = re.findall(r"^\+(.*\n)", diff, flags=re.MULTILINE)
        assert text.count(before) == 1, f"{name} has no such line: {before}"
        self.write(name, text.replace(before, after))

    def type(self, session: str) -> None:
        """Run each command of a block, and compare what it prints."""
        for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            done = self.sgpu(command)
            printed = done.stdout + done.stderr
            assert _missing(shown, printed) == [], printed
            failed = "error[" in shown or ", 1 failed" in shown
            expected = 5 if failed and " apply " in command else 0
            assert done.returncode == expected, command

    def sgpu(self, command: str) -> "subprocess.CompletedProcess[str]":
        program, *words = shlex.split(command)
        assert program == "sgpu"
        done = self.python("-m", "sgpu_decl", *words)
        done.stdout = done.stdout.replace(str(self.folder), "/home/me/fit")
        done.stderr = done.stderr.replace(str(self.folder), "/home/me/fit")
        self.typed.append(command)
        return done

    def python(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **self.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


def _missing(shown: str, printed: str) -> list[str]:
    """The lines of the page that the command did not print. Output of ranks comes in any order."""
    lines = {*_lasting(printed).splitlines()}
    # States that may be over before anybody looks.
    quick = re.compile(r"\S+#\d+ (queued.*|starting|running)|\.\.\.")
    return [
        line
        for line in _lasting(shown).splitlines()
        if line and line not in lines and not quick.fullmatch(line)
    ]


def _lasting(text: str) -> str:
    """Without what is true of one moment, one machine or one Python alone."""
    text = re.sub(r"(just now|\d+ m?s ago|[\d.]+ m?s\b)", "<time>", text)
    text = re.sub(r"ranks use Python [^,]+, `[^`]+`", "ranks use Python", text)
    text = re.sub(r"(ValueError:) .*", r"\1", text)
    text = re.sub(r"http://127\.0\.0\.1:\d+", "<address>", text)
    return re.sub(r" +", " ", re.sub(r"^ *\^+$", "", text, flags=re.MULTILINE))


@pytest.mark.parametrize("page", ["tutorial.md", "how-to/order-of-runs.md"])
def test_a_page_prints_what_it_shows(tmp_path: Path, page: str) -> None:
    newcomer = Newcomer(folder=tmp_path)
    here, _, _ = (DOCS / page).read_text().partition(ELSEWHERE)
    for language, name, text in BLOCK.findall(here):
        if language == "diff":
            newcomer.edit(name, text)
        elif name:
            newcomer.write(name, text)
        elif not language:
            newcomer.type(text)
    assert len(newcomer.typed) == here.count("\n$ ") > 3


@pytest.fixture
def elsewhere(tmp_path: Path) -> "tuple[Newcomer, dict[str, list[str]]]":
    """Somebody who has written the script of the tutorial and the file with its targets, and the
    sessions that the tutorial shows for each place, by the last word of its heading."""
    newcomer = Newcomer(folder=tmp_path)
    here, _, there = (DOCS / "tutorial.md").read_text().partition(ELSEWHERE)
    for language, name, text in BLOCK.findall(here):
        if language == "diff" and name == "train.py":
            newcomer.edit(name, text)
        elif name == "train.py":
            newcomer.write(name, text)
    targets, *places = re.split(r"^### .* (\w+)$", there, flags=re.MULTILINE)
    ((_, _, run_file),) = BLOCK.findall(targets)
    newcomer.write("run.yaml", run_file)
    sessions = [[text for _, _, text in BLOCK.findall(place)] for place in places[1::2]]
    return newcomer, dict(zip(places[::2], sessions, strict=True))


def test_the_tutorial_on_a_box_shows_the_plan_or_that_there_is_no_gpu(
    elsewhere: "tuple[Newcomer, dict[str, list[str]]]",
) -> None:
    newcomer, sessions = elsewhere
    session, refused = sessions["GPUs"]
    command, _, shown = session.removeprefix("$ ").partition("\n")
    done = newcomer.sgpu(command)
    printed = done.stdout + done.stderr
    assert _missing(shown if done.returncode == 0 else refused, printed) == [], printed


@pytest.mark.ray
@pytest.mark.expensive
@NEWEST_CLUSTER
def test_the_tutorial_on_a_ray_cluster_prints_what_it_shows(
    elsewhere: "tuple[Newcomer, dict[str, list[str]]]", cluster: RayCluster
) -> None:
    newcomer, sessions = elsewhere
    newcomer.variables["RAY_API_SERVER_ADDRESS"] = cluster.url
    _, session = sessions["cluster"]
    newcomer.type(session)
    assert len(newcomer.typed) == 3


@pytest.mark.expensive
def test_the_tutorial_in_a_workspace_prints_what_it_shows(
    elsewhere: "tuple[Newcomer, dict[str, list[str]]]",
) -> None:
    newcomer, sessions = elsewhere
    start, session = sessions["Databricks"]
    command, *exported = start.removeprefix("$ ").splitlines()
    with subprocess.Popen(
        [sys.executable, "-m", "sgpu_decl", *shlex.split(command)[1:]],
        cwd=newcomer.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as workspace:
        assert workspace.stdout is not None
        try:
            for shown in exported:
                name, _, value = workspace.stdout.readline().strip().partition("=")
                assert shown.startswith(f"{name}=")
                newcomer.variables[name.removeprefix("export ")] = value
            newcomer.type(session)
        finally:
            workspace.terminate()
    assert len(newcomer.typed) == 3


def test_the_cells_of_a_notebook_print_what_the_page_shows(tmp_path: Path) -> None:
    newcomer = Newcomer(folder=tmp_path)
    newcomer.write("sgpu.yml", "project: {name: cells}\nfunctions: {mlflow: {enabled: false}}\n")
    cells, shown = BLOCK.findall((DOCS / "how-to" / "notebooks.md").read_text())[:2]
    newcomer.write(cells[1], cells[2])
    done = newcomer.python(cells[1])
    assert _missing(shown[2], done.stdout) == [], done.stdout + done.stderr
