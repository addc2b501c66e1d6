"""`sgpu validate`: every target, and all that a plan finds by the file and the code alone."""

from collections.abc import Callable

import pytest

from tests.cli.conftest import Shell

RUN = "name: a\ngpus: 1\ntype: CPU\nentrypoint: a.py:main\nargs: {lr: 1}\n"
Told = tuple[int, list[tuple[str, str, int, str]]]
"""The exit code; code, severity, line and summary of each diagnostic."""

MAIN = "def main(lr, steps=1): pass\n"


@pytest.fixture
def told(sgpu: Shell) -> Callable[..., Told]:
    """`told(text)` writes a run file beside its code and validates it: its exit code, and the
    diagnostics as code, severity, place and summary."""

    def validate(text: str, *options: str, file: str = "run.yaml") -> Told:
        sgpu.write("a.py", MAIN)
        sgpu.write(file, text)
        before = {path for path in sgpu.folder.parent.rglob("*") if path.is_dir()}
        answer = sgpu.here("validate", "-o", "json", *options)
        assert {path for path in sgpu.folder.parent.rglob("*") if path.is_dir()} == before
        found = (answer.json.get("data") or answer.json["error"])["diagnostics"]
        return answer.code, [
            (item["code"], item["severity"], item["line"], item["summary"]) for item in found
        ]

    return validate


def test_every_target_is_checked(told: Callable[..., Told], sgpu: Shell) -> None:
    text = RUN + "targets:\n  dev: {gpus: 2}\n  prod:\n    timeout: soon\n    args: {lr: 2}\n"
    code, found = told(text)
    assert code == 1
    assert found == [
        ("bad_duration", "error", 9,
         "`timeout` must be a duration, not `soon` (target `prod`)"),
    ]  # fmt: skip
    assert told(text, "-t", "dev") == (0, [])
    assert told(text, "-t", "prod")[1][0][3] == "`timeout` must be a duration, not `soon`"
    assert told(text.replace("soon", "1h")) == (0, [])
    assert "is valid: 1 run; checked for `dev`, `prod`" in sgpu.here("validate").out


def test_what_is_wrong_for_all_is_told_once(told: Callable[..., Told]) -> None:
    code, found = told(RUN + "timeout: soon\ntargets: {dev: {gpus: 2}, prod: {gpus: 3}}\n")
    assert code == 1
    assert [item[3] for item in found] == ["`timeout` must be a duration, not `soon`"]


def test_an_unknown_key_of_a_target_is_told_once(told: Callable[..., Told]) -> None:
    code, found = told(RUN + "targets:\n  prod:\n    gpu: 2\n")
    assert (code, [item[:3] for item in found]) == (1, [("unknown_key", "error", 8)])
    shared = "project: {name: p}\nruns:\n  r: {gpus: 1, type: CPU, entrypoint: a.py:main}\n"
    shared += "targets:\n  prod: {backend: databricks}\n"
    code, found = told(shared, file="sgpu.yml")
    assert (code, [item[:3] for item in found]) == (1, [("unknown_key", "error", 5)])


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (RUN.replace("lr: 1", "lr: 1, epochs: 2"), "argument_unknown", 5),
        (RUN + "matrix: {seed: [1]}\n", "argument_unknown", 6),
        (RUN.replace("lr: 1", ""), "argument_missing", 5),
        (RUN.replace("a.py:main", "a.py:man"), "function_missing", 4),
        (RUN + "pool: p\n", "unsupported_field", 6),
        (RUN.replace("gpus: 1", "gpus: 5000"), "too_many_ranks", 2),
        (RUN + "targets: {p: {backend: databricks, type: H100, gpus: 12}}\n", "bad_gpu_count", 6),
        (RUN + "targets: {p: {backend: databricks}}\n", "no_such_machines", 3),
        (RUN + "targets: {p: {backend: databricks, type: A10, timeout: 8d}}\n",
         "timeout_too_long", 6),
    ],
)  # fmt: skip
def test_what_a_plan_knows_without_this_machine(
    told: Callable[..., Told], text: str, code: str, line: int
) -> None:
    exit_code, found = told(text)
    assert [(item[0], item[1], item[2]) for item in found] == [(code, "error", line)]
    assert exit_code == 1


def test_what_only_this_machine_knows_is_left_to_the_plan(
    told: Callable[..., Told], sgpu: Shell
) -> None:
    text = (
        RUN.replace("CPU", "H100") + "env: {secrets: {A: env:NOT_SET_HERE}, python: /no/python}\n"
    )
    assert told(text) == (0, [])
    sgpu.exits(1, "plan")


def test_a_field_that_the_backend_of_a_target_lacks_is_an_error(
    told: Callable[..., Told],
) -> None:
    code, found = told(RUN + "targets: {cluster: {pool: p, backend: ray}}\n")
    assert code == 1
    assert [item[:2] for item in found] == [("unsupported_field", "error")]
    assert all(item[3].endswith("(target `cluster`)") for item in found)


def test_a_later_cell_of_a_matrix_is_checked_as_the_first(told: Callable[..., Told]) -> None:
    code, found = told(
        "name: a\ngpus: 1\ntype: A10\ncommand: x\nbackend: databricks\ntimeout: '${matrix.t}'\n"
        "matrix: {t: [1h, 8d]}\n"
    )
    assert (code, [item[0] for item in found]) == (1, ["timeout_too_long"])


def test_a_variable_that_a_target_misspells_is_told(sgpu: Shell) -> None:
    sgpu.write(
        "run.yaml",
        "name: a\ngpus: 1\ntype: CPU\ncommand: 'true'\nvariables: {batch_size: 1}\n"
        "targets: {big: {variables: {batchsize: 64}}, own: {variables: {nodes: 2}}}\n",
    )
    found = sgpu.data("validate")
    told = [item for item in found["diagnostics"] if item["code"] == "unknown_variable"]
    assert [(item["severity"], item["line"], item["hint"]) for item in told] == [
        ("warning", 6, "did you mean `batch_size`?")
    ]


def test_what_only_targets_declare_is_counted(sgpu: Shell) -> None:
    sgpu.write("a.py", MAIN)
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\nruns:\n  a: {gpus: 1, type: CPU, command: ['true']}\n"
        "targets:\n  dev: {default: true}\n"
        "  prod:\n"
        "    runs: {c: {gpus: 1, type: A10, command: ['true'], backend: databricks}}\n"
        "    jobs: {nightly: {run: c, schedule: 0 0 2 * * ?}}\n",
    )
    answer = sgpu.here("validate")
    assert answer.out == "sgpu.yml is valid: 2 runs and 1 job; checked for `dev`, `prod`\n", answer
    data = sgpu.here("validate", "-o", "json").json["data"]
    assert (data["runs"], data["jobs"]) == (["run.a", "run.c"], ["job.nightly"])
    assert sgpu.here("validate", "-t", "dev").out == (
        "sgpu.yml is valid: 1 run; checked for `dev`\n"
    )


def test_scripts_get_the_values_of_a_target(sgpu: Shell) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\n"
        "variables: {lr: 0.1}\n"
        "defaults: {run: {type: CPU, timeout: 1h, env: {secrets: {TOKEN: 'env:TOKEN'}}}}\n"
        "runs:\n"
        "  a: {gpus: 1, command: 'train ${var.lr} ${target.name}'}\n"
        "  b: {gpus: 1, command: x, targets: [dev]}\n"
        "targets: {dev: {}, prod: {runs: {a: {gpus: 8}}, variables: {lr: 0.2}}}\n",
    )
    data = sgpu.done("validate", "-t", "prod", "-o", "json").json["data"]
    assert data["resolved"] == {
        "project": "p",
        "target": "prod",
        "mode": "production",
        "runs": [
            {
                "address": "run.a",
                "spec": {
                    "command": "train 0.2 prod",
                    "env": {"secrets": {"TOKEN": "env:TOKEN"}},
                    "gpus": 8,
                    "timeout": "1h",
                    "type": "CPU",
                },
            }
        ],
        "jobs": [],
        "left_out": ["run.b"],
    }
