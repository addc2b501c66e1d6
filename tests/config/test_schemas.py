import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.plain_values import Conversion
from sgpu_decl.config.schemas import describe, documents, text_of, write
from sgpu_decl.distribution import shipped_folder
from sgpu_decl.errors import NotFound
from sgpu_decl.text.yaml_reader import load

ROOT = Path(__file__).parents[2]
RUN = "name: a\ngpus: 1\ntype: CPU\ncommand: [x]\n"


def problems(kind: str, text: str) -> list[str]:
    document, found = load(text, "run.yaml")
    assert document is not None
    assert found == ()
    value = Conversion().plain(document.root, None)
    validator = jsonschema.Draft202012Validator(documents()[kind])
    return [error.message for error in validator.iter_errors(value)]


@pytest.mark.parametrize("name", ["run", "project", "plan", "state", "events", "stream"])
def test_the_published_schema_is_current_and_valid(name: str) -> None:
    schema = documents()[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    published = shipped_folder("schemas") / f"{name}.v1.schema.json"
    assert published.read_text() == text_of(schema), "run `sgpu schema --write`"
    assert schema["$id"] == f"urn:sgpu:schema:{name}.v1"


def test_writing_puts_every_schema_into_a_folder(tmp_path: Path) -> None:
    files = write(tmp_path / "schemas")
    assert [file.name for file in files] == [f"{name}.v1.schema.json" for name in documents()]


def test_every_field_that_users_write_has_a_description() -> None:
    def fields(node: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(node, dict):
            for name, below in node.get("properties", {}).items():
                yield f"{path}.{name}", below
            for key, value in node.items():
                yield from fields(value, f"{path}.{key}")
        elif isinstance(node, list):
            for item in node:
                yield from fields(item, path)

    for kind in ("run", "project"):
        for path, field in fields(documents()[kind], kind):
            assert field.get("description"), path


@pytest.mark.parametrize(
    "file", sorted(ROOT.glob("examples/*/run.yaml")), ids=lambda p: p.parent.name
)
def test_every_example_is_valid(file: Path) -> None:
    assert problems("run", file.read_text()) == []


@pytest.mark.parametrize(
    "file", sorted(ROOT.glob("examples/*/plan.json")), ids=lambda p: p.parent.name
)
def test_every_golden_plan_fits_the_schema_of_plans(file: Path) -> None:
    varying = {"tool_version": "0", "created_at": "2026-01-01T00:00:00Z", "lineage": "l"}
    plan = varying | json.loads(file.read_text())
    validator = jsonschema.Draft202012Validator(documents()["plan"])
    assert [error.message for error in validator.iter_errors(plan)] == []


@pytest.mark.parametrize(
    "text",
    [
        RUN,
        RUN + "env: {python: 3.10, variables: {A: true, B: 1}}\ntimeout: 90\nray: true\n",
        RUN.replace("1", "${var.n}", 1) + "variables: {n: 1, m: {default: 2, description: x}}\n",
        RUN
        + "retry: {max: '${var.a}', on: '${var.b}', backoff: '${var.c}'}\nbackend: '${var.d}'\n",
        RUN + "launch: {warm: [torch]}\n",
        RUN + "backend: {kind: ray, resources_per_rank: {CPU: 4, memory: 16GB}}\n",
        RUN + "targets:\n  a: {command: null, entrypoint: a.py, gpus: 2}\n  b:\n",
        RUN.replace("CPU", "gpu_8xH100").replace("1", "8", 1),
        RUN + "matrix: {a: [1, x, true, 1.5]}\nenv: {secrets: {A: env:A, B: s/k, C: file:/x}}\n",
    ],
)
def test_what_reading_accepts_the_schema_accepts(text: str) -> None:
    assert problems("run", text) == []


@pytest.mark.parametrize(
    "text",
    [
        RUN + "gpu: 1\n",
        "name: a\n",
        RUN.replace("gpus: 1", "gpus: 0"),
        RUN.replace("CPU", "X99"),
        RUN + "timeout: soon\n",
        RUN + "env: {variabels: {}}\n",
        RUN + "backend: slumr\n",
        RUN + "backend: {kind: local, host: a.example}\n",
        RUN.replace("CPU", "H1000"),
        RUN + "targets: {a: {gpu: 1}}\n",
        RUN + "targets: {a/b: {}}\n",
        RUN + "targets: {default: {}}\n",
    ],
)
def test_what_reading_refuses_the_schema_refuses(bad: Callable[..., Any], text: str) -> None:
    assert bad(text)
    assert problems("run", text)


def test_a_project_is_valid(good: Callable[..., Loaded]) -> None:
    text = (
        "project: {name: p}\nruns: {a: {gpus: 1, type: CPU, command: x, env: e}}\n"
        "environments: {e: {snapshot: true}}\n"
        "targets: {big: {runs: {a: {gpus: 8}}}}\njobs: {j: {run: a}}\n"
    )
    good(text)
    assert problems("project", text) == []
    assert problems("project", text.replace("gpus: 8", "gpu: 8"))
    assert problems("project", text.replace("gpus: 1", "name: a, gpus: 1"))


def test_a_field_is_described() -> None:
    found = describe("run.env.variables")
    assert (found.path, found.type) == ("run.env.variables", "mapping of text")
    assert "as written" in found.description
    assert describe("run.grace").default == "30s"
    assert describe("run.retry.on").default == "[infra]"
    assert describe("run.gpus").required
    assert "gpus" in [child.path.rpartition(".")[2] for child in describe("run").children]
    assert describe("project.runs.train.gpus").type == "whole number"
    assert all(child.description for child in describe("run").children)


@pytest.mark.parametrize(
    ("path", "hint"),
    [("run.gpu", "`run.gpus`"), ("runs", "`run`"), ("run.env.secret", "`run.env.secrets`")],
)
def test_an_unknown_field_names_the_nearest(path: str, hint: str) -> None:
    with pytest.raises(NotFound) as caught:
        describe(path)
    assert hint in (caught.value.hint or "")


def test_schemas_are_json() -> None:
    for schema in documents().values():
        assert json.loads(text_of(schema)) == schema
