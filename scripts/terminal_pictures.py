"""Draw what `sgpu` prints as pictures of a terminal, docs/images/*.svg, for README and pages.

    python scripts/terminal_pictures.py [NAME ...]

Each is a real session on a pseudo-terminal. That of the README runs in a copy of `examples/hello`.
The plans of the tutorial are those of its own files: on this machine, on one whose GPUs a stand-in
for NVML tells of, on a Ray cluster whose nodes declare GPUs, and in an emulated workspace. Paths
and addresses of this machine, its Python and durations are replaced, so that they tell nothing.
What `sgpu top` shows of a run on eight GPUs is drawn by its own code, from values made here.

tests/docs/test_pictures.py finds pictures that are out of date.
"""

import fcntl
import html
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
TUTORIAL = ROOT / "docs" / "tutorial.md"
NVML_STANDIN = ROOT / "tests" / "cli" / "nvml_standin.c"
ELSEWHERE = "\n### "
"""What begins the first of the sections of the tutorial about other machines."""
WIDTH = 92
CHARACTER_WIDTH = 12.2  # of a picture
PROMPT = "\x1b[1;32m$\x1b[0m \x1b[1m{}\x1b[0m\n"
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
TWO_GPUS = ";".join(["NVIDIA A10G:24696061952"] * 2)
RAY_ADDRESS = "http://ray.example.com:8265"
WORKSPACE = "https://example.cloud.databricks.com"

# The frame and the text, without the web fonts of rich's own template.
SVG = """\
<svg class="{unique_id}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@dataclass(frozen=True)
class Terminal:
    """Runs commands in a folder, as somebody who has used sgpu on no machine before."""

    folder: Path
    environ: Mapping[str, str]

    @classmethod
    def below(cls, folder: Path) -> "Terminal":
        """A terminal whose project and whose homes of sgpu lie below a folder."""
        hidden = ("CUDA_VISIBLE_DEVICES", "COLUMNS", "NO_COLOR")
        strange = ("SGPU_", "DATABRICKS_", "MLFLOW_", "RAY_")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in hidden and not name.startswith(strange)
        }
        homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("CACHE", "DATA", "STATE")}
        return cls(folder / "project", {**kept, **homes})

    def also(self, **variables: str) -> "Terminal":
        """The same terminal with more variables."""
        return replace(self, environ={**self.environ, **variables})

    def sgpu(self, *arguments: str) -> str:
        """Run `sgpu` on a pseudo-terminal of `WIDTH` columns; return what it prints in colours."""
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
        with subprocess.Popen(
            [sys.executable, "-m", "sgpu_decl", *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=terminal,
            stderr=terminal,
        ) as process:
            os.close(terminal)
            printed = b""
            while True:
                try:
                    block = os.read(controller, 65536)
                except OSError:  # Linux ends the output of a closed terminal with EIO
                    break
                if not block:
                    break
                printed += block
        os.close(controller)
        if process.returncode not in (0, 1):
            raise SystemExit(printed.decode())
        return left_on_screen(printed.decode().replace("\r\n", "\n"))

    def typed(self, *arguments: str) -> str:
        """The same, after a prompt with the command."""
        return PROMPT.format(" ".join(("sgpu", *arguments))) + self.sgpu(*arguments)

    def off_terminal(self, *arguments: str) -> str:
        """Run `sgpu` as a program that reads its output does; return what it prints, in plain
        lines."""
        return subprocess.run(
            [sys.executable, "-m", "sgpu_decl", *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        ).stdout


def session(terminal: Terminal) -> str:
    """The session of the README: an apply, a change, a mistake."""
    left = shutil.ignore_patterns(".sgpu")
    shutil.copytree(ROOT / "examples" / "hello", terminal.folder, ignore=left)
    run = terminal.folder / "run.yaml"
    shown = [PROMPT.format("sgpu apply -y run.yaml --rank all")]
    shown.append(terminal.off_terminal("apply", "-y", "run.yaml", "--rank", "all"))
    shown.append(
        "\n" + PROMPT.format("sed -i 's/greeting: hello/greeting: good morning/' run.yaml")
    )
    run.write_text(run.read_text().replace("greeting: hello", "greeting: good morning"))
    shown.append(terminal.typed("plan", "run.yaml"))
    shown.append("\n" + PROMPT.format("sed -i 's/gpus: 4/gpu: 4/' run.yaml"))
    run.write_text(run.read_text().replace("gpus: 4", "gpu: 4"))
    shown.append(terminal.typed("plan", "run.yaml"))
    return "".join(shown)


def plan_cpu(terminal: Terminal) -> str:
    """The first plan of the tutorial."""
    write_tutorial(terminal.folder, "\n$ sgpu plan\n")
    return terminal.typed("plan")


def plan_gpus(terminal: Terminal) -> str:
    """The plan on a box with two GPUs, of which the real `nvidia-ml-py` asks a stand-in."""
    write_tutorial(terminal.folder, ELSEWHERE)
    library = terminal.folder.parent / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, NVML_STANDIN], check=True)
    box = terminal.also(LD_LIBRARY_PATH=str(library.parent), SGPU_TEST_GPUS=TWO_GPUS)
    return box.typed("plan", "-t", "box")


def plan_ray(terminal: Terminal) -> str:
    """The plan on a Ray cluster whose two nodes declare one GPU each."""
    from sgpu_decl.testing.ray_cluster import ray_cluster

    write_tutorial(terminal.folder, ELSEWHERE)
    with ray_cluster(nodes=2, cpus=4, gpus=1, gpu_type="H100") as cluster:
        there = terminal.also(RAY_API_SERVER_ADDRESS=cluster.url)
        shown = there.typed("plan", "-t", "ray", "--set", "type=GPU")
        return shown.replace(cluster.url, RAY_ADDRESS)


def plan_databricks(terminal: Terminal) -> str:
    """The plan in an emulated workspace."""
    from sgpu_decl.testing.workspace import WorkspaceServer

    write_tutorial(terminal.folder, ELSEWHERE)
    with WorkspaceServer(terminal.folder.parent / "workspace") as server:
        there = terminal.also(
            DATABRICKS_HOST=server.url,
            DATABRICKS_TOKEN=server.token(),
            DATABRICKS_CONFIG_FILE=str(terminal.folder.parent / "databrickscfg"),
        )
        shown = there.typed("plan", "-t", "databricks").replace(server.url, WORKSPACE)
        return re.sub(r"user-[0-9a-f]{8}@example\.com", "me@example.com", shown)


def top(_: Terminal) -> str:
    """A frame of `sgpu top`: eight ranks, of which one waits for its data."""
    from sgpu_decl.model.address import Address
    from sgpu_decl.model.attempt import AttemptRef, AttemptState
    from sgpu_decl.model.attempt_details import RunProgress
    from sgpu_decl.model.attempt_view import AttemptView, RankView
    from sgpu_decl.model.rank_activity import RankActivity, WatchedRun
    from sgpu_decl.views.top_frame import run_frame

    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    late = 5
    ranks = [
        RankActivity(
            rank=rank,
            step=1200,
            cpu=(104, 103, 101, 104, 102, 31, 103, 102)[rank],
            memory=5400 + 12 * rank,
            gpu=11 if rank == late else 97 - rank % 3,
            gpu_memory=62_000 + 130 * rank,
            gpu_room=81_559,
            last_line="waiting for shard 88" if rank == late else "step 1200 loss 1.83",
            written_at=now - timedelta(seconds=41 if rank == late else 2),
            differs="GPU 11 %, others 96 %" if rank == late else None,
        )
        for rank in range(8)
    ]
    view = AttemptView(
        ref=AttemptRef(Address.parse("run.train"), 8),
        backend="local",
        state=AttemptState.RUNNING,
        started_at=now - timedelta(seconds=724),
        ranks=tuple(RankView(rank=one.rank, node_rank=0, state="running") for one in ranks),
        progress=RunProgress(
            step=1200, total=3000, percent=40.0, seconds_left=1080, metrics={"loss": 1.83}
        ),
    )
    run = WatchedRun(
        view=view, gpus=8, gpu_type="H100", limit_seconds=21_600, told=True, measured_at=now,
        ranks=tuple(ranks),
    )  # fmt: skip
    log = ["step 1198 loss 1.84", "step 1199 loss 1.83", "step 1200 loss 1.83"]
    log += [f"waiting for shard 88 ({seconds} s)" for seconds in (10, 20, 30, 40)]
    console = Console(width=WIDTH, file=StringIO(), force_terminal=True)
    with console.capture() as drawn_text:
        for line in run_frame(run, log, now=now, width=WIDTH, height=21, chosen=late):
            console.print(line)
    return PROMPT.format("sgpu top train") + drawn_text.get()


@dataclass(frozen=True)
class Picture:
    """`title` is what a reader hears who sees no pictures."""

    title: str
    record: Callable[[Terminal], str]


PICTURES: Mapping[str, Picture] = {
    "session": Picture("A session of sgpu", session),
    "plan-cpu": Picture("The plan of a run of two ranks on CPUs", plan_cpu),
    "plan-gpus": Picture("The plan of the same run on a box with two GPUs", plan_gpus),
    "plan-ray": Picture("The plan of the same run on a Ray cluster with GPUs", plan_ray),
    "plan-databricks": Picture("The plan of the same run on Databricks", plan_databricks),
    "top": Picture("sgpu top with eight ranks, one of which differs from the others", top),
}


def write_tutorial(folder: Path, until: str) -> None:
    """Write the files of the tutorial as a reader has them who got to a text of the page."""
    folder.mkdir()
    page, found, _ = TUTORIAL.read_text().partition(until)
    if not found:
        raise SystemExit(f"{TUTORIAL} no longer has {until!r}")
    for language, name, text in BLOCK.findall(page):
        file = folder / (name or "run.yaml")
        if language == "diff":
            (before,) = re.findall(r"^-(.*\n)", text, flags=re.MULTILINE)
            (after,) = re.findall(r"^\+(.*\n)", text, flags=re.MULTILINE)
            file.write_text(file.read_text().replace(before, after))
        elif name or language == "yaml":
            file.write_text(text)


def left_on_screen(printed: str) -> str:
    """What a terminal shows in the end: a bar of progress erases itself, if it comes at all."""
    shown = [""]
    for piece in re.split(r"(\n|\r|\x1b\[2K|\x1b\[1A)", printed):
        if piece == "\n":
            shown.append("")
        elif piece == "\x1b[2K":  # erase the line
            shown[-1] = ""
        elif piece == "\x1b[1A":  # go up
            shown.pop()
        elif piece != "\r":
            shown[-1] += piece
    return "\n".join(shown)


def without_machine(text: str) -> str:
    """The session without what is true of one moment and one machine alone."""
    text = re.sub(
        r"Python 3[\d.]+, `[^`]+`", "Python 3.11.2, `/home/me/demo/.venv/bin/python`", text
    )
    text = re.sub(r"succeeded (just now|\d+ m?s ago)", "succeeded 2 s ago", text)
    return re.sub(r"after [\d.]+ m?s", "after 0.1 s", text)


def drawn(name: str, folder: Path) -> str:
    """The picture of that name as it is now; `folder` is an empty one to work in."""
    picture = PICTURES[name]
    text = without_machine(picture.record(Terminal.below(folder)))
    console = Console(width=WIDTH, record=True, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text.rstrip("\n")))
    svg = console.export_svg(
        title="sgpu", code_format=SVG.replace("TITLE", picture.title), unique_id="sgpu"
    )
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def lines(picture: str) -> list[str]:
    """The text of a picture, line by line; each piece of a line says where it begins."""
    pieces = re.findall(
        r'<text [^>]*?x="([\d.]+)"[^>]*sgpu-line-(\d+)\)">(.*?)</text>', picture, flags=re.DOTALL
    )
    shown: dict[str, str] = {}
    for x, number, words in pieces:
        before = shown.get(number, "").ljust(round(float(x) / CHARACTER_WIDTH))
        shown[number] = before + html.unescape(words).replace("\xa0", " ")
    return [line.rstrip() for line in shown.values()]


def main() -> int:
    """Draw the named pictures, or all, and say where they are."""
    for name in sys.argv[1:] or PICTURES:
        if name not in PICTURES:
            raise SystemExit(f"there is no picture `{name}`, but {', '.join(PICTURES)}")
        with tempfile.TemporaryDirectory() as folder:
            picture = drawn(name, Path(folder))
        target = IMAGES / f"{name}.svg"
        target.write_text(picture)
        sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
