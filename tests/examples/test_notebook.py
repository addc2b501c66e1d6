"""The notebook is the script in cells, and both train when they are executed."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "examples/notebook"
MOST_LINES = 30  # of output, in the whole notebook
Copied = Callable[[str], Any]  # gives an Example of conftest.py
needs = pytest.mark.skipif(
    not all(map(find_spec, ("torch", "mlflow", "nbclient", "ipykernel"))),
    reason="torch, mlflow, nbclient or ipykernel is missing",
)


def cells(script: str) -> list[dict[str, Any]]:
    """The cells of a script, which begin with `# %%`; what comes before the first is left out."""
    found: list[dict[str, Any]] = []
    for number, part in enumerate(re.split(r"^# %%", script, flags=re.MULTILINE)[1:]):
        head, _, text = part.partition("\n")
        cell: dict[str, Any] = {"cell_type": "code", "id": f"cell-{number}", "metadata": {}}
        if head == " [markdown]":
            cell["cell_type"] = "markdown"
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        else:
            cell |= {"execution_count": None, "outputs": []}
        found.append(cell | {"source": text.strip().splitlines(keepends=True)})
    return found


def test_the_notebook_is_the_script_in_cells_without_outputs(example: Copied) -> None:
    notebook = {
        "cells": cells((SOURCE / "fsdp.py").read_text()),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    example("notebook").golden("fsdp.ipynb", text)


@pytest.mark.expensive
@needs
@pytest.mark.torch
@pytest.mark.mlflow
def test_the_notebook_trains_in_a_kernel(
    example: Copied, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import nbformat
    from nbclient import NotebookClient

    item = example("notebook")
    for name, value in item.environ.items():
        monkeypatch.setenv(name, value)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    notebook = nbformat.read(item.folder / "fsdp.ipynb", as_version=4)
    nbformat.validate(notebook)
    NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(item.folder)}},
        startup_timeout=900,
        timeout=900,
        iopub_timeout=900,  # by default it goes on after 4 s, without the outputs
        raise_on_iopub_timeout=True,
    ).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    told = "".join(output.get("text", "") for output in outputs)
    assert "sgpu: train#1 succeeded" in told
    assert "unseen sequences are told apart" in told
    assert told.count("\n") <= MOST_LINES

    values = [result["value"] for result in item.data("results", "train")["results"]]
    assert [value["rank"] for value in values] == [0, 1]
    assert all(value["loss"][-1] < value["loss"][0] / 2 for value in values)

    from mlflow import MlflowClient

    link = item.data("show", "train")["links"]["mlflow"]
    run = MlflowClient(link["tracking_uri"]).get_run(link["run_id"])
    assert {"loss", "loss/rank_0", "loss/rank_1"} <= set(run.data.metrics)
    assert run.info.status == "FINISHED"


@needs
@pytest.mark.torch
@pytest.mark.mlflow
@pytest.mark.expensive
def test_the_script_trains_as_the_notebook_does(example: Copied) -> None:
    item = example("notebook")
    done = subprocess.run(
        [sys.executable, "fsdp.py"],
        cwd=item.folder,
        env={**os.environ, **item.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses = re.findall(r"^rank ([01]): loss ([\d.]+) to ([\d.]+)$", done.stdout, re.MULTILINE)
    assert [rank for rank, _, _ in losses] == ["0", "1"]
    assert all(float(last) < float(first) / 2 for _, first, last in losses)
    assert len((done.stdout + done.stderr).splitlines()) <= MOST_LINES
