"""`sgpu graph` as a user calls it."""

import os
from pathlib import Path

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.planner.project_graph import GraphNode, ProjectGraph
from sgpu_decl.views.graph_text import graph_mermaid
from tests.cli.conftest import Shell

PROJECT = """\
project: {name: demo}
environments:
  gpu: {snapshot: true}
runs:
  prepare: {gpus: 1, type: CPU, command: [echo, a], mlflow: {enabled: false}}
  train:
    gpus: 1
    type: CPU
    command: [echo, "${matrix.seed}"]
    env: gpu
    after: [prepare]
    matrix: {seed: [1, 2, 3]}
    mlflow: {enabled: false}
"""
MERMAID = """\
flowchart LR
  n0[("environment.gpu")]
  n1["run.prepare"]
  n2["run.train<br>3 runs"]
  n2 -->|uses| n0
  n2 -->|after| n1
"""


@pytest.fixture
def sgpu(tmp_path: Path) -> Shell:
    (tmp_path / "sgpu.yml").write_text(PROJECT)
    return Shell(tmp_path, dict(os.environ))


def test_the_graph_shows_what_each_uses(sgpu: Shell) -> None:
    assert sgpu.here("graph").out == MERMAID
    data = sgpu.data("graph")
    assert [(node["address"], node["cells"], node["actions"]) for node in data["nodes"]] == [
        ("environment.gpu", 1, {}),
        ("run.prepare", 1, {}),
        ("run.train", 3, {}),
    ]
    assert data["edges"] == [
        {"from": "run.train", "to": "environment.gpu", "relation": "uses"},
        {"from": "run.train", "to": "run.prepare", "relation": "after"},
    ]


def test_a_job_launches_its_run(sgpu: Shell) -> None:
    file = sgpu.folder / "sgpu.yml"
    file.write_text(f"{PROJECT}jobs:\n  nightly: {{run: prepare, schedule: 0 0 2 * * ?}}\n")
    out = sgpu.here("graph").out.splitlines()
    assert '  n3(["job.nightly"])' in out
    assert "  n3 -->|launches| n1" in out


def test_the_actions_of_a_plan_are_added_on_request(sgpu: Shell) -> None:
    (sgpu.folder / "sgpu.yml").write_text(PROJECT.replace("    env: gpu\n", ""))
    out = sgpu.here("graph", "--plan").out.splitlines()
    assert '  n0["run.prepare<br>create"]' in out
    assert '  n1["run.train<br>3 runs<br>3 create"]' in out
    sgpu.done("apply", "prepare", "-y")
    actions = {node["address"]: node["actions"] for node in sgpu.data("graph", "--plan")["nodes"]}
    assert actions == {"run.prepare": {"no_op": 1}, "run.train": {"create": 3}}
    (sgpu.folder / "sgpu.yml").write_text("project: {name: demo}\nruns: {}\n")
    assert sgpu.here("graph").out == "flowchart LR\n"
    assert '["run.prepare<br>forget"]' in sgpu.here("graph", "--plan").out


def test_a_file_with_mistakes_has_no_graph(sgpu: Shell) -> None:
    (sgpu.folder / "sgpu.yml").write_text(PROJECT.replace("after: [prepare]", "after: [prepar]"))
    assert "did you mean `prepare`?" in sgpu.exits(1, "graph").err


@pytest.mark.expensive
def test_a_plan_with_errors_is_drawn_and_refused(sgpu: Shell) -> None:
    refused = PROJECT.replace("type: CPU", "type: H100").replace("    env: gpu\n", "")
    (sgpu.folder / "sgpu.yml").write_text(refused)
    answer = sgpu.exits(1, "graph", "--plan")
    assert answer.out.startswith("flowchart LR\n")
    assert "error[plan_has_errors]" in answer.err


def test_what_a_language_would_obey_is_escaped() -> None:
    address = Address.run("a", 'x="<b>#\\')
    graph = ProjectGraph(nodes=(GraphNode(address=address),), edges=())
    assert 'n0["run.a[#34;x=#34;#60;b#62;#35;#92;#34;]"]' in graph_mermaid(graph)


def test_the_graph_shows_the_tasks_of_jobs_in_their_order(sgpu: Shell) -> None:
    tasks = "{read: {python: read.py}, train: {run: prepare, after: [read]}}"
    (sgpu.folder / "sgpu.yml").write_text(f"{PROJECT}jobs: {{nightly: {{tasks: {tasks}}}}}\n")
    edges = {
        (edge["from"], edge["relation"], edge["to"])
        for edge in sgpu.data("graph")["edges"]
        if edge["from"].startswith("job.")
    }
    assert edges == {
        ("job.nightly", "has", 'job.nightly["read"]'),
        ("job.nightly", "has", 'job.nightly["train"]'),
        ('job.nightly["train"]', "after", 'job.nightly["read"]'),
        ('job.nightly["train"]', "launches", "run.prepare"),
    }
