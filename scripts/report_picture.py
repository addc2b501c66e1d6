"""Draw the picture of a report, docs/images/report.png, with Chromium.

    python scripts/report_picture.py

It is the page of a real run whose second attempt fails. What its eight ranks used over six hours is
made, so that the picture shows GPUs on a machine without them.
"""

import json
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sgpu_decl.agent.attempt.attempt_files import stamp  # noqa: E402
from tests.docs.browser import chromium, open_tab  # noqa: E402
from tests.long_series import write_long_attempt  # noqa: E402
from tests.support import until  # noqa: E402

RUN = """\
name: train
gpus: 8
type: CPU
timeout: 12h
mlflow: {enabled: false}
entrypoint: train.py:main
args: {batch_size: 16}
"""
CODE = """\
import os, time
def main(batch_size):
    time.sleep(2)
    if batch_size > 16 and os.environ["RANK"] == "5":
        raise RuntimeError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "79.15 GiB of which 1.10 GiB is free."
        )
    time.sleep(2 if batch_size > 16 else 0)
"""
HOURS = 6
UNDRAWN = "document.querySelectorAll('.plot:not(:has(svg))').length"


def main() -> int:
    program = chromium()
    if program is None:
        raise SystemExit("there is no Chromium on the PATH")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder = Path(scratch) / "project"
        folder.mkdir()
        (folder / "train.py").write_text(CODE)
        for batch_size in (16, 32):
            (folder / "run.yaml").write_text(RUN.replace("16", str(batch_size)))
            sgpu(folder, "apply", "-y")
        for number in (1, 2):
            attempt = folder / f".sgpu/default/runs/train/{number}"
            write_long_attempt(attempt, ranks=8, seconds=HOURS * 3600)
            outcome = json.loads((attempt / "outcome.json").read_text())
            started = datetime.fromisoformat(outcome["ended_at"]) - timedelta(hours=HOURS)
            outcome["started_at"] = stamp(started.timestamp())
            (attempt / "outcome.json").write_text(json.dumps(outcome))
        page = folder / "report.html"
        sgpu(folder, "report", "train", "-o", page.name)
        page.write_text(page.read_text().replace(str(folder), "/home/ann/project"))
        with open_tab(program, Path(scratch) / "profile") as tab:
            tab.show(width=1180, height=1480)
            tab.call("Emulation.setScrollbarsHidden", hidden=True)
            tab.open(page.as_uri())
            until(lambda: tab.run(UNDRAWN) == 0)
            tab.picture(ROOT / "docs" / "images" / "report.png")
    return 0


def sgpu(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "sgpu_decl", *words], cwd=folder, check=False)


if __name__ == "__main__":
    raise SystemExit(main())
