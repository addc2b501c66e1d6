"""What a plan asks of the machine does not grow with the runs that ask for the same."""

import importlib.machinery
import os
from collections import Counter
from typing import Any

import pytest

from tests.cli.conftest import Shell

RUN = "  r{n}: {{gpus: 1, type: CPU, entrypoint: 't.py:main', args: {{n: {n}}}, tags: {{n: t}}}}\n"


def questions(sgpu: Shell, monkeypatch: pytest.MonkeyPatch, count: int) -> Counter[str]:
    """How often a plan of so many tracked runs looks for a package, and resolves a path."""
    asked: Counter[str] = Counter()
    find, resolve = importlib.machinery.PathFinder.find_spec, os.path.realpath

    def found(name: str, *rest: Any) -> Any:
        asked[name] += name in ("mlflow", "psutil")
        return find(name, *rest)

    def resolved(path: Any, **rest: Any) -> str:
        asked["paths"] += 1
        return resolve(path, **rest)

    sgpu.write("sgpu.yml", "project: {name: p}\nruns:\n" + "".join(map(_run, range(count))))
    with monkeypatch.context() as patched:
        patched.setattr(importlib.machinery.PathFinder, "find_spec", found)
        patched.setattr(os.path, "realpath", resolved)
        sgpu.done("plan", "-o", "json")
    return asked


def _run(number: int) -> str:
    return RUN.format(n=number)


def test_packages_of_this_machine_are_looked_for_once(
    sgpu: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    sgpu.write("t.py", "def main(n):\n    return n\n")
    few, many = (questions(sgpu, monkeypatch, count) for count in (3, 23))
    assert many["mlflow"] <= few["mlflow"]
    assert many["psutil"] <= few["psutil"]
    assert many["paths"] - few["paths"] <= 3 * 20
