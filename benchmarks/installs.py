"""The packages of an environment installed by uv from its warm cache: what capturing an environment
and making a tree of it stand beside. Wheels hold no bytecode, and uv compiles none here."""

import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from measuring import Measurement, measure

__all__ = ["installed"]

ROUNDS = 3
WHEEL = "Wheel-Version: 1.0\nGenerator: benchmark\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def installed(scratch: Path, interpreter: Path, uv: str) -> Measurement:
    """Install all packages of a virtual environment into fresh ones, by links into uv's cache where
    the file system can; the first of them fills the cache."""
    (site,) = interpreter.parents[1].glob("lib/python*/site-packages")
    wheels = scratch / "wheels"
    wheels.mkdir()
    names = [_wheel(info, wheels) for info in sorted(site.glob("*-1.0.dist-info"))]
    environ = {"UV_CACHE_DIR": str(scratch / "uv-cache"), "UV_NO_CONFIG": "1"}
    rounds = []
    for number in range(ROUNDS + 1):
        venv = scratch / f"installed{number}"
        subprocess.run(
            [uv, "venv", "-q", "--python", interpreter, venv], check=True, env=os.environ | environ
        )
        rounds.append(measure(_install(uv, venv, wheels, names, environ), scratch))
    return Measurement.median(rounds[1:])


def _install(
    uv: str, venv: Path, wheels: Path, names: Sequence[str], environ: dict[str, str]
) -> tuple[str, ...]:
    set_to = [f"{name}={value}" for name, value in environ.items()]
    options = ["-q", "--offline", "--no-index", f"--find-links={wheels}"]
    return ("env", *set_to, uv, "pip", "install", *options, f"--python={venv}/bin/python", *names)


def _wheel(info: Path, folder: Path) -> str:
    """Pack one package as it lies in its site; return its name."""
    name = info.name.partition("-")[0]
    files = [path for path in (info.parent / name).rglob("*") if path.suffix != ".pyc"]
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        record = []
        for path in (*sorted(files), info / "METADATA"):
            if path.is_file():
                inner = path.relative_to(info.parent).as_posix()
                wheel.write(path, inner)
                record.append(f"{inner},,\n")
        wheel.writestr(f"{info.name}/WHEEL", WHEEL)
        record += [f"{info.name}/WHEEL,,\n", f"{info.name}/RECORD,,\n"]
        wheel.writestr(f"{info.name}/RECORD", "".join(record))
    return name
