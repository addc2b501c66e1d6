"""The first hour of a newcomer: the tutorial and the cells of a notebook, typed as they stand,
print what the pages show: on this machine, on a Ray cluster and in an emulated workspace. And the
hour of somebody who has installed the wheel and brings a script of their own."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from sgpu_decl.testing.ray_cluster import RayCluster
from tests.docs.pages import script
from tests.ray_versions import NEWEST_CLUSTER
from tests.support import PATIENCE
from tests.wheel import build_wheel, install

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
    newcomer = Newcomer(folder=tmp_path / "fit")
    script("terminal_pictures").write_tutorial(newcomer.folder, "\n### ")
    _, _, there = (DOCS / "tutorial.md").read_text().partition(ELSEWHERE)
    _, *places = re.split(r"^### .* (\w+)$", there, flags=re.MULTILINE)
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


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Types lines into a shell whose environment has the wheel."""

    folder: Path
    programs: Path

    def type(self, line: str, *, code: int = 0) -> str:
        """Run a line of bash; return all that it prints."""
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = f"{self.programs}:{environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env={**environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def edit(self, name: str, before: str, after: str) -> None:
        text = (self.folder / name).read_text()
        assert text.count(before) == 1, f"`{before}` in:\n{text}"
        (self.folder / name).write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel. What the wheel needs is not downloaded: the
    environment sees the packages of this one, but not the source tree."""
    folder = tmp_path_factory.mktemp("clean")
    programs = install(build_wheel(folder), folder / "env", "--no-deps")
    paths = {"base": str(folder / "env"), "platbase": str(folder / "env")}
    site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    (site / "dependencies.pth").write_text(f"{Path(click.__file__).parents[1]}\n")
    return programs


BY_MONTH = """\
name: by-month
gpus: 1
type: CPU
resume: auto
mlflow: {enabled: false}
command: |
  for month in 11 12 13; do
    [ -s "${SGPU_PREVIOUS_OUTPUT_DIR:-.}/$month" ] && continue
    python months.py 2024 $month > "$SGPU_OUTPUT_DIR/$month"
    echo "made $month"
  done
"""


@pytest.mark.packaging
@pytest.mark.expensive
def test_an_installed_sgpu_takes_a_script_of_others_from_init_to_a_notebook(
    tmp_path: Path, programs: Path
) -> None:
    """The script is `calendar.py` of the standard library, which reads its arguments by argparse:
    `--months` says how many stand side by side."""
    shell = Shell(folder=tmp_path, programs=programs)
    where = shell.type("which sgpu; python -c 'import sgpu_decl; print(sgpu_decl.__file__)'")
    assert all(line.startswith(str(programs.parent)) for line in where.splitlines()), where
    shell.type("""cp "$(python -c 'import calendar; print(calendar.__file__)')" months.py""")

    assert "wrote run.yaml" in shell.type("sgpu init --from months.py")
    assert "  - --months=3 # integer\n" in (tmp_path / "run.yaml").read_text()
    shell.edit("run.yaml", "entrypoint:", "mlflow: {enabled: false}\nentrypoint:")
    assert "months#1 succeeded" in shell.type("sgpu apply -y")
    assert "      January" in shell.type("sgpu logs months")

    shell.type("sed 's/^name: months/name: sweep/' run.yaml > sweep.yaml")
    shell.edit("sweep.yaml", "--months=3", "--months=${matrix.months}")
    shell.type("echo 'matrix: {months: [1, 2, 6]}' >> sweep.yaml")
    assert "3 runs: 3 succeeded" in shell.type("sgpu apply -y sweep.yaml")
    table = [line.split() for line in shell.type("sgpu results sweep").splitlines()]
    assert table[0] == ["months", "attempt", "state", "time"]
    assert [row[:3] for row in table[1:4]] == [[n, "#1", "succeeded"] for n in ("1", "2", "6")]
    wide = shell.type("""sgpu logs 'sweep["months=6"]'""")
    assert re.search("January +February +March +April +May +June", wide)

    (tmp_path / "by-month.yaml").write_text(BY_MONTH)
    failed = shell.type("sgpu apply -y by-month.yaml", code=5)
    for line in ("made 11\n", "made 12\n", "in formatmonthname\n", "by-month#1 failed"):
        assert line in failed
    shell.edit("by-month.yaml", "11 12 13", "11 12 1")
    resumed = shell.type("sgpu apply -y by-month.yaml")
    assert "info[resumes]: run.by-month: it finds the output of `by-month#1`" in resumed
    assert re.findall("^made .*", resumed, re.MULTILINE) == ["made 1"]
    history = shell.type("sgpu show by-month").partition("history:\n")[2]
    assert re.search("#2 succeeded.*; reason: the config changed; changed: command", history)

    shell.type("sgpu run -y --gpus 2 --type CPU --name leap -- python months.py 2024 2")
    assert shell.type("sgpu logs leap --rank 1").count(" 29") == 1

    cells, shown = BLOCK.findall((DOCS / "how-to" / "notebooks.md").read_text())[:2]
    (tmp_path / "notebook").mkdir()
    (tmp_path / "notebook" / "sgpu.yml").write_text(
        "project: {name: cells}\nfunctions: {mlflow: {enabled: false}}\n"
    )
    (tmp_path / "notebook" / cells[1]).write_text(cells[2])
    printed = shell.type(f"cd notebook && python {cells[1]}")
    assert _missing(shown[2], printed) == [], printed
