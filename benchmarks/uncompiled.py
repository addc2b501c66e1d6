"""The first apply of a run in an environment of which nothing is compiled, beside `cp -a` of it."""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measuring import Measurement, Row, measure

__all__ = ["uncompiled"]

FILES = 7_000
PACKAGES = 70
IMPORTED = 5  # packages
ROUNDS = 3
BODY = "def function(x):\n    return [x + 1, {'x': x}]\n" * 150  # 7 kB
IMPORTS = "".join(
    f"import package{package}.module{module}\n"
    for package in range(IMPORTED)
    for module in range(FILES // PACKAGES)
)
RUN = """name: one
gpus: 1
type: CPU
env: {{python: {python}, snapshot: true}}
entrypoint: train.py
mlflow: {{enabled: false}}
"""


def uncompiled(scratch: Path, sgpu: str) -> Iterator[Row]:
    """Each round has an environment, stores and caches of its own. What the next apply takes, and
    the import of what its rank imports, is no part of the figure."""
    firsts: list[Measurement] = []
    copies, imports = [], []
    for number in range(ROUNDS):
        home, folder, environment = (
            scratch / f"uncompiled-{name}{number}" for name in ("home", "project", "environment")
        )
        python = _write_environment(environment, number)
        folder.mkdir()
        (folder / "run.yaml").write_text(RUN.format(python=python))
        (folder / "train.py").write_text(IMPORTS)
        copies.append(measure(("cp", "-a", environment, f"{environment}-copy"), scratch).seconds)
        imports.append(measure((python, "-B", "train.py"), folder).seconds)
        apply = ("env", f"XDG_DATA_HOME={home}/data", f"XDG_CACHE_HOME={home}/cache", sgpu, "apply",
                 "-y", "run.yaml")  # fmt: skip
        first = measure(apply, folder)
        again = measure((*apply, "--rerun", "run.one"), folder).seconds
        beyond = first.seconds - again - imports[-1]
        firsts.append(Measurement(seconds=beyond, memory=first.memory))
    mine, peer = Measurement.median(firsts), statistics.median(copies)
    yield Row(
        what=f"first apply with {FILES:,} uncompiled files, beyond the next",
        took=str(mine),
        against=f"cp -a, {peer:.2f} s, beside an import of {statistics.median(imports):.2f} s, "
        f"n={ROUNDS}",
        ratio=mine.seconds / peer,
        limit=2,
    )


def _write_environment(folder: Path, number: int) -> str:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for inner in range(PACKAGES):
        package = site / f"package{inner}"
        package.mkdir()
        for module in range(FILES // PACKAGES):
            (package / f"module{module}.py").write_text(f"# {number} {inner} {module}\n{BODY}")
    return str(folder / "bin/python")
