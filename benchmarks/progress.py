"""How wrong the remaining time is that sgpu shows for programs that nobody changed for it.

The programs run beside each other for a minute and a half; they mostly wait. Once a second, from a
tenth of the way on, the time that was said to remain is compared with the one that remained. The
monitor looks once a second and tells whole seconds: of a short program, they would be measured.
"""

import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring import Row
from ranks import launch_ranks

from sgpu_decl.agent.attempt.monitor_files import monitored
from sgpu_decl.agent.system.locks import held
from sgpu_decl.rendering.spec import Entry

__all__ = ["progress"]

PROGRAMS = Path(__file__).resolve().parents[1] / "tests/programs/launched/steps"
STEPS = 1000
PAUSE = 0.09  # seconds
KNOWN = (
    ("trainer", "Hugging Face's Trainer", "transformers"),
    ("lit", "Lightning's Trainer", "pytorch_lightning"),
    ("bar", "a bar of tqdm", "tqdm"),
    ("lines", "lines like nanoGPT's", "math"),
)


def progress(scratch: Path) -> Iterator[Row]:
    """The largest error of each program, as a share of the time that its steps took."""
    started = {}
    for name, _, module in KNOWN:
        if find_spec(module) is None:
            continue
        folder = scratch / f"progress-{name}"
        shutil.copytree(PROGRAMS, folder / "code")
        words = ("--max_steps", str(STEPS), "--pause", str(PAUSE), "--ended", str(folder / "ended"))
        launch_ranks(folder, Entry(kind="script", path=f"{name}.py", args=words), 1)
        started[name] = folder
    looks: dict[str, list[tuple[float, dict[str, Any]]]] = {name: [] for name in started}
    running = dict(started)
    while running:
        time.sleep(1)
        for name, folder in list(running.items()):
            seen = monitored(str(folder)).get("progress")
            if seen is not None:
                looks[name].append((time.monotonic(), seen))
            if not held(str(folder / "supervisor.lock")):
                del running[name]
    for name, what, _ in KNOWN:
        if name not in started:
            continue
        ended = float((started[name] / "ended").read_text())
        errors = [
            abs(seen["seconds_left"] - (ended - at)) / (STEPS * PAUSE)
            for at, seen in looks[name]
            if at < ended and (seen["percent"] or 0) >= 10 and seen["seconds_left"] is not None
        ]
        worst = max(errors, default=1.0)
        yield Row(
            what=f"remaining time of {what}, largest error of {len(errors)} looks",
            took=f"{100 * worst:.1f} %",
            against="a tenth of the whole time",
            ratio=10 * worst,
            limit=1.0,
        )
