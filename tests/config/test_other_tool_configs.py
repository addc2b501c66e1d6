"""A whole file of another tool is named as that, once, and no file of ours ever is."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.config.conftest import outcome
from tests.docs.pages import PAGES, ROOT, blocks

# The file as its tool takes it, what it is called, and words of what to do.
FILES = {
    "a dstack task": (
        ("type: task\nname: train\nnodes: 2\ncommands: [python train.py]\n"
        "resources: {gpu: 'H100:8'}\n"), "dstack.md",
    ),
    "a dstack dev-environment": ("type: dev-environment\nide: vscode\n", "dstack.md"),
    "a Databricks bundle": (
        "bundle: {name: b}\ninclude: [resources/*.yml]\ntargets: {dev: {default: true}}\n",
        "databricks-bundles.md",
    ),
    "a part of a Databricks bundle": (
        "resources: {jobs: {nightly: {name: nightly, tasks: []}}}\n", "databricks-bundles.md",
    ),
    "a config of accelerate": (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n",
        "accelerate.md",
    ),
    "a config of Axolotl": (
        ("base_model: NousResearch/Llama-3.2-1B\ndatasets: [{path: d, type: alpaca}]\n"
        "micro_batch_size: 2\n"), "trainers.md",
    ),
    "a config of LitGPT": (
        ("checkpoint_dir: checkpoints/x\nout_dir: out/lora\ndevices: 1\n"
        "data: {class_path: litgpt.data.Alpaca2k}\ntrain: {micro_batch_size: 1}\n"),
        "trainers.md",
    ),
    "a config of torchtune": (
        "output_dir: /tmp/o\nmodel: {_component_: torchtune.models.llama3_2.llama3_2_1b}\n",
        "trainers.md",
    ),
    "a config of LLaMA-Factory": (
        "model_name_or_path: meta-llama/M\nstage: sft\nfinetuning_type: lora\n", "trainers.md",
    ),
    "a sweep of W&B": (
        ("program: train.py\nmethod: bayes\nname: s\nproject: p\ncommand: [python]\n"
        "parameters: {lr: {min: 0.1, max: 1}}\n"), "wandb-sweeps.md",
    ),
    "a Kubernetes Job": (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec: {}\n", "kubernetes.md",
    ),
    "a file of Kubernetes": (
        "apiVersion: v1\nkind: Service\n---\napiVersion: batch/v1\nkind: Job\n",
        "kubernetes.md",
    ),
    "a cluster of `ray up`": (
        "cluster_name: c\nmax_workers: 2\nprovider: {type: aws}\n", "docs/ray-backend.md",
    ),
    "a file of Docker compose": (
        "name: x\nservices: {train: {image: pytorch/pytorch}}\n", "docs/how-to/containers.md",
    ),
    "a GitHub workflow": (
        "name: ci\non: [push]\njobs: {test: {runs-on: ubuntu-latest, steps: []}}\n",
        "docs/how-to/ci.md",
    ),
    "an environment of conda": (
        "name: x\nchannels: [conda-forge]\ndependencies: [python=3.12]\n", "snapshot: true",
    ),
    "a config of DeepSpeed": (
        '{"zero_optimization": {"stage": 2}, "train_batch_size": 8}', "`args`",
    ),
    "a batch script of Slurm": (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --partition=default\nsrun python train.py\n",
        "slurm.md",
    ),
    "a shell script": ("#!/usr/bin/env bash\ntorchrun train.py\n", "bash other.yaml"),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_a_whole_file_of_another_tool_is_named_once_with_its_page(what: str) -> None:
    text, words = FILES[what]
    loaded, (found,) = outcome(text, "other.yaml")
    assert loaded is None
    assert found.code == "other_tool_file"
    assert found.summary == f"`other.yaml` is {what}, not a run or project file"
    assert str(found.place) == "other.yaml:1:1"
    assert words in (found.hint or "")


def test_the_pages_that_hints_name_are_there() -> None:
    for text, _ in FILES.values():
        _, (found,) = outcome(text, "other.yaml")
        pages = [word for word in (found.hint or "").split("`") if word.startswith("docs/")]
        assert all((ROOT / page).is_file() for page in pages), found.hint


THEIRS = {".github", "databricks.yml", "resources"}
"""Files and folders of examples that other tools read."""


def _ours() -> Iterator[tuple[str, str]]:
    for folder in ("examples", "templates", "sgpu_decl"):
        for path in (ROOT / folder).rglob("*.y*ml"):
            if not THEIRS & {*path.parts} and ".gitlab-ci" not in path.name:
                yield str(path), path.read_text()
    for line in (Path(__file__).parent / "golden" / "specs.jsonl").read_text().splitlines():
        yield "specs.jsonl", json.loads(line)["text"]
    for page in PAGES:
        yield from ((str(page), text) for language, text in blocks(page) if language == "yaml")


@pytest.mark.parametrize("left_out", ["", "gpus", "entrypoint", "project", "runs"])
def test_no_file_of_ours_is_one_of_another_tool_even_if_it_lacks_a_key(left_out: str) -> None:
    for file, text in _ours():
        mistaken = text.replace(f"{left_out}:", f"{left_out}s:") if left_out else text
        _, found = outcome(mistaken, "run.yaml")
        assert "other_tool_file" not in {one.code for one in found}, file


@pytest.mark.parametrize("text", ["PK\x03", "PK", '{"a": 1}', "[1]", "a: 1\n"])
def test_a_file_that_is_no_plan_and_not_yaml_by_its_name_is_told_as_that(text: str) -> None:
    for file in ("x.plan", "x.json", "plan"):
        loaded, (found,) = outcome(text, file)
        assert loaded is None
        assert found.code == "bad_plan"
        assert found.summary == f"`{file}` is not a saved plan, and not a run or project file"
    _, others = outcome(text, "x.yaml")
    assert "bad_plan" not in {one.code for one in others}


def test_a_run_file_with_a_mistake_is_read_whatever_its_name_is() -> None:
    for text in ("name: a\ngpus: [1\n", '{"name": "a", "gpus": 1,,}', "gpus: 0\n"):
        _, found = outcome(text, "run.conf")
        assert not {one.code for one in found} & {"bad_plan", "other_tool_file"}
