"""What the benchmarks plan and apply: files of many runs, and states that remember them.

python workloads.py FILE    fills the state of FILE's project, see `remember_as_succeeded`
"""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

__all__ = [
    "blocks",
    "fragments",
    "matrix",
    "real_blocks",
    "real_matrix",
    "remember_apart",
    "remember_as_succeeded",
    "terraform_blocks",
    "terraform_count",
    "terraform_state",
]


def blocks(folder: Path, count: int) -> Path:
    """Write a project of `count` separate runs, each with four variables and three tags."""
    return _write(folder / "sgpu.yml", "project: {name: bench}\n" + _runs(range(count)))


def fragments(folder: Path, count: int, files: int) -> Path:
    """Write the project of `blocks` with its runs in as many included files."""
    each = count // files
    for number in range(files):
        runs = _runs(range(number * each, (number + 1) * each))
        _write(folder / "runs" / f"{number:03}.yml", runs)
    return _write(folder / "sgpu.yml", "project: {name: bench}\ninclude: [runs/*.yml]\n")


def _runs(numbers: range) -> str:
    lines = ["runs:"]
    for number in numbers:
        lines += [
            f"  r{number:05}:",
            "    gpus: 1",
            "    type: CPU",
            f'    command: ["true", "{number}"]',
            "    timeout: 5m",
            "    mlflow: {enabled: false}",
            f'    env: {{variables: {{SEED: "{number}", LR: "0.001", DATA: /data, MODE: train}}}}',
            f'    tags: {{team: vision, stage: sweep, number: "{number}"}}',
        ]
    return "\n".join(lines) + "\n"


def matrix(folder: Path, count: int) -> Path:
    """Write one run with a matrix of `count` cells."""
    return _write(
        folder / "run.yaml",
        "name: many\n"
        "gpus: 1\n"
        "type: CPU\n"
        'command: ["true", "${matrix.n}"]\n'
        f"matrix: {{n: {list(range(count))}}}\n"
        "timeout: 5m\n"
        "mlflow: {enabled: false}\n",
    )


_PROGRAMS = {
    "train.py": """\
import argparse
import json
import os

import yaml

from models.net import Net
from prompts import system


def main(lr: float, seed: int, data: str = "/data", epochs: int = 1) -> dict[str, float]:
    with open("config.yaml") as file:
        settings = yaml.safe_load(file)
    print(os.environ["MODE"], system(), settings, json.dumps({"lr": lr, "seed": seed}))
    return {"loss": Net(seed).loss(lr) / epochs}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    main(options.lr, options.seed, epochs=options.epochs)
""",
    "models/__init__.py": "",
    "models/net.py": """\
import math
import random


class Net:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def loss(self, lr: float) -> float:
        return math.exp(-lr) * self.random.random()
""",
    "prompts.py": """\
from pathlib import Path


def system() -> str:
    return Path("prompts/system.md").read_text()
""",
    "prompts/system.md": "Answer briefly.\n",
    "config.yaml": "layers: 2\n",
    "prepare.sh": "set -eu\nmkdir -p out\n",
    "README.md": "A sweep.\n",
    "tests/test_net.py": "from models.net import Net\n\ndef test(): assert Net(1).loss(0.1) > 0\n",
}
# What starts a run: a function, a script, a program and a line of a shell, in turn.
_STARTS = (
    ("entrypoint: train.py:main", "args: {{lr: 0.001, seed: {seed}, epochs: 3}}"),
    ("entrypoint: train.py", 'args: ["--lr", "0.001", "--seed", "{seed}"]'),
    ('command: ["python", "train.py", "--lr", "0.001", "--seed", "{seed}"]',),
    ('command: "bash prepare.sh && python train.py --lr $LR --seed $SEED --epochs 3"',),
)


def real_blocks(folder: Path, count: int) -> Path:
    """Write a project of `count` runs as people write them: tracked, of programs that are here."""
    lines = ["project: {name: bench}", "runs:"]
    for number in range(count):
        starts = _STARTS[number % len(_STARTS)]
        lines += [
            f"  r{number:05}:",
            "    gpus: 1",
            "    type: CPU",
            *(f"    {line.format(seed=number)}" for line in starts),
            "    timeout: 5m",
            "    mlflow: {experiment: sweep}",
            f'    env: {{variables: {{SEED: "{number}", LR: "0.001", DATA: /data, MODE: train}}}}',
            f'    tags: {{team: vision, stage: sweep, number: "{number}"}}',
        ]
    return _real(folder / "sgpu.yml", "\n".join(lines) + "\n")


def real_matrix(folder: Path, count: int) -> Path:
    """Write one run as people write it, with a matrix of `count` cells by two axes."""
    seeds = 10
    return _real(
        folder / "run.yaml",
        "name: many\n"
        "gpus: 1\n"
        "type: CPU\n"
        "command: bash prepare.sh && python train.py --lr ${matrix.lr} --seed ${matrix.seed}\n"
        f"matrix: {{lr: {[at / 10_000 for at in range(1, count // seeds + 1)]},"
        f" seed: {list(range(seeds))}}}\n"
        "timeout: 5m\n"
        "mlflow: {experiment: sweep}\n"
        'env: {variables: {LR: "${matrix.lr}", DATA: /data, MODE: train}}\n'
        "tags: {team: vision, stage: sweep}\n",
    )


def _real(file: Path, text: str) -> Path:
    for name, program in _PROGRAMS.items():
        _write(file.parent / name, program)
    return _write(file, text)


def remember_apart(file: Path) -> None:
    """Call `remember_as_succeeded` in a process of its own: a child's peak memory counts from its
    parent's."""
    subprocess.run([sys.executable, __file__, file], check=True)


def remember_as_succeeded(file: Path) -> None:
    """Fill the project's state as if every run of `file` had been applied and had succeeded."""
    from sgpu_decl.api import Location, Session
    from sgpu_decl.applying.launch_records import launch_of, resource_of
    from sgpu_decl.model.attempt import AttemptState
    from sgpu_decl.model.state import Intent
    from sgpu_decl.planning.project import Project

    location = Location(file=file, project=file.parent)
    with Session.open(location) as session:
        plan = session.plan().plan
    now = datetime.now(UTC)
    store = Project(location, here=file.parent).states
    with store.lock("bench", lineage=plan.lineage) as writer:
        for change in plan.changes:
            launch = launch_of(plan, change)
            intent = Intent(
                token=launch.token,
                address=change.address,
                owner=file.name,
                action="create",
                attempt=launch.ref.number,
                plan_id="bench",
                created_at=now,
                launch=launch,
            )
            assert intent.attempt_record is not None
            attempt = replace(
                intent.attempt_record,
                state=AttemptState.SUCCEEDED,
                started_at=now,
                ended_at=now,
                exit_code=0,
            )
            writer.begin(intent)
            writer.launched(intent, resource_of(change, last=attempt), attempt)


def terraform_blocks(folder: Path, count: int) -> None:
    """Write as many `terraform_data` resources, with an input of the same fields."""
    text = "".join(
        f'resource "terraform_data" "r{number:05}" {{\n'
        f'  input = {{ gpus = 1, type = "CPU", command = ["true", "{number}"], timeout = "5m",\n'
        f'    variables = {{ SEED = "{number}", LR = "0.001", DATA = "/data", MODE = "train" }},\n'
        f'    tags = {{ team = "vision", stage = "sweep", number = "{number}" }} }}\n'
        "}\n"
        for number in range(count)
    )
    _write(folder / "main.tf", text)


def terraform_count(folder: Path, count: int) -> None:
    """Write one `terraform_data` resource with a `count`: the peer of a matrix."""
    text = (
        'resource "terraform_data" "many" {\n'
        f"  count = {count}\n"
        '  input = { gpus = 1, type = "CPU", command = ["true", tostring(count.index)],'
        ' timeout = "5m" }\n'
        "}\n"
    )
    _write(folder / "main.tf", text)


def terraform_state(folder: Path, count: int, *, counted: bool) -> None:
    """Write the state that an apply of `terraform_blocks` or `terraform_count` leaves."""
    if counted:
        instances = [{"index_key": at, **_instance(_input(at))} for at in range(count)]
        resources = [_resource("many", instances)]
    else:
        resources = [
            _resource(f"r{at:05}", [_instance({**_input(at), **_more_input(at)})])
            for at in range(count)
        ]
    state = {
        "version": 4,
        "terraform_version": "1.5.0",
        "serial": 1,
        "lineage": "00000000-0000-0000-0000-000000000000",
        "outputs": {},
        "resources": resources,
        "check_results": None,
    }
    _write(folder / "terraform.tfstate", json.dumps(state))


def _resource(name: str, instances: list[dict[str, object]]) -> dict[str, object]:
    return {
        "mode": "managed",
        "type": "terraform_data",
        "name": name,
        "provider": 'provider["terraform.io/builtin/terraform"]',
        **({"each": "list"} if name == "many" else {}),
        "instances": instances,
    }


def _input(number: int) -> dict[str, object]:
    return {"command": ["true", str(number)], "gpus": 1, "timeout": "5m", "type": "CPU"}


def _more_input(number: int) -> dict[str, object]:
    """What a block has beside the input of a cell."""
    variables = {"DATA": "/data", "LR": "0.001", "MODE": "train", "SEED": str(number)}
    return {
        "variables": variables,
        "tags": {"number": str(number), "stage": "sweep", "team": "vision"},
    }


def _type_of(value: object) -> object:
    """A type as terraform writes it beside a value."""
    if isinstance(value, dict):
        return ["object", {name: _type_of(item) for name, item in value.items()}]
    if isinstance(value, list):
        return ["tuple", [_type_of(item) for item in value]]
    return "string" if isinstance(value, str) else "number"


def _instance(value: dict[str, object]) -> dict[str, object]:
    typed = {"value": value, "type": _type_of(value)}
    return {
        "schema_version": 0,
        "attributes": {
            "id": "00000000-0000-0000-0000-000000000000",
            "input": typed,
            "output": typed,
            "triggers_replace": None,
        },
        "sensitive_attributes": [],
    }


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


if __name__ == "__main__":
    remember_as_succeeded(Path(sys.argv[1]))
