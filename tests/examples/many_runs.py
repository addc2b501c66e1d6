"""The repository of a larger team: the files of the template `gitops`, with 40 runs and 6 jobs."""

import re
from pathlib import Path

RUNS, JOBS = 40, 6
LAUNCHED = 37
"""The runs that an apply launches. The other three are launched by jobs."""
MANAGED = LAUNCHED + JOBS

_TARGET = """\
# What is in the workspace, for every run.
targets:
  staging:
    defaults:
      run: {backend: '${var.workspace}', type: A10, env: gpu, permissions: '${var.viewers}'}
"""
_RUN = """\
runs:
  fit-{number:02}:
    description: Fit a line to the points of region {number}
    gpus: 1
    code: {{root: ../training}}
    entrypoint: train.py:main
    args: {{data: 'region-{number}', steps: 2, rate: 0.0{rate}}}
"""
_SCORE = """\
name: {name}
gpus: 1
entrypoint: score.py:main
args: {{slope: {slope}}}
"""
_JOB = """\
targets:
  staging:
    jobs:
      {name}: {{run: {run}, schedule: 0 0 {hour} * * ?, permissions: '${{var.viewers}}'}}
"""


def write_many_runs(folder: Path) -> None:
    """Add the runs and jobs to a repository that `sgpu init --template gitops` has written."""
    (folder / "targets/staging.yml").write_text(_TARGET)
    for number in range(LAUNCHED - 1):  # and `train`
        text = _RUN.format(number=number, rate=1 + number % 9)
        (folder / f"runs/fit-{number:02}.yml").write_text(text)
    root = folder / "sgpu.yml"
    one, every = "  - evaluation/run.yml\n", "  - evaluation/*.yml\n"
    default = "run: {timeout: 2h"
    text = root.read_text().replace(one, every).replace(default, f"{default}, type: CPU")
    root.write_text(text)
    for file in ("runs/train.yml", "evaluation/run.yml"):
        text = (folder / file).read_text().replace("gpus: 2", "gpus: 1")
        (folder / file).write_text(re.sub(r" *type: CPU\n", "", text))
    for name in ("score-low", "score-high"):
        slope = 2.5 if name == "score-low" else 3.5
        text = _SCORE.format(name=name, slope=slope)
        (folder / f"evaluation/{name}.yml").write_text(text)
    runs = ("evaluate", "score-low", "score-high")
    for number in range(JOBS - 1):  # and `nightly`
        name = f"watch-{number}"
        text = _JOB.format(name=name, run=runs[(number + 1) % 3], hour=number)
        (folder / f"jobs/{name}.yml").write_text(text)
