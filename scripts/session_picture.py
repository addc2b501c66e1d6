"""Record a real session of `sgpu` as a picture: docs/images/session.svg, which the README shows.

    python scripts/session_picture.py [OUTPUT]

It copies `examples/hello`, runs the commands there on a pseudo-terminal, and draws what they print.
Paths of this machine, its Python and durations are replaced, so that they tell nothing.
"""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "session.svg"
WIDTH = 92
PROMPT = "\x1b[1;32m$\x1b[0m \x1b[1m{}\x1b[0m\n"

# The frame and the text, without the web fonts of rich's own template.
SVG = """\
<svg class="{unique_id}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>A session of sgpu</title>
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


def on_terminal(folder: Path, *arguments: str) -> str:
    """Run `sgpu` on a pseudo-terminal of `WIDTH` columns; return what it prints, with colours."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    command = [sys.executable, "-m", "sgpu_decl", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=terminal, stderr=terminal) as process:
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
    return printed.decode().replace("\r\n", "\n")


def off_terminal(folder: Path, *arguments: str) -> str:
    """Run `sgpu` as a program that reads its output does; return what it prints, in plain lines."""
    command = [sys.executable, "-m", "sgpu_decl", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout


def record(folder: Path) -> str:
    """Run the session in a copy of the example; return the text with its colours."""
    run = folder / "run.yaml"
    session = [PROMPT.format("sgpu apply -y run.yaml --logs all")]
    session.append(off_terminal(folder, "apply", "-y", "run.yaml", "--logs", "all"))
    session.append(
        "\n" + PROMPT.format("sed -i 's/greeting: hello/greeting: good morning/' run.yaml")
    )
    run.write_text(run.read_text().replace("greeting: hello", "greeting: good morning"))
    session.append(PROMPT.format("sgpu plan run.yaml"))
    session.append(on_terminal(folder, "plan", "run.yaml"))
    session.append("\n" + PROMPT.format("sed -i 's/gpus: 4/gpu: 4/' run.yaml"))
    run.write_text(run.read_text().replace("gpus: 4", "gpu: 4"))
    session.append(PROMPT.format("sgpu plan run.yaml"))
    session.append(on_terminal(folder, "plan", "run.yaml"))
    return "".join(session)


def without_machine(text: str) -> str:
    """The session without what is true of one moment and one machine alone."""
    text = re.sub(
        r"Python 3[\d.]+, `[^`]+`", "Python 3.11.2, `/home/me/demo/.venv/bin/python`", text
    )
    return re.sub(r"after [\d.]+ m?s", "after 0.1 s", text)


def draw(text: str) -> str:
    """The picture of a terminal that shows `text`."""
    console = Console(width=WIDTH, record=True, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text.rstrip("\n")))
    picture = console.export_svg(title="sgpu", code_format=SVG, unique_id="sgpu")
    return "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"


def main() -> int:
    """Write the picture, and say where."""
    target = Path(sys.argv[1]) if sys.argv[1:] else PICTURE
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "hello"
        shutil.copytree(ROOT / "examples" / "hello", folder, ignore=shutil.ignore_patterns(".sgpu"))
        text = record(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(draw(without_machine(text)))
    sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
