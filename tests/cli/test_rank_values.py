"""Plans of code that logs another value in each rank into the MLflow run that ranks share."""

import pytest

from tests.cli.conftest import Shell

HEAD = "import os\nimport mlflow\nimport torch.distributed as dist\n"
RANK = 'rank = int(os.environ["RANK"])\n'
IN_MAIN = "def main():\n    {}\nif __name__ == '__main__':\n    main()\n"
LOGGED = {
    "a statement": RANK + 'mlflow.log_param("seed", 100 + rank)\n',
    "in a function": RANK + IN_MAIN.format('mlflow.log_param("seed", 100 + rank)'),
    "a mapping": 'mlflow.log_params({"lr": 0.1, "rank": os.environ["RANK"]})\n',
    "a library": 'mlflow.log_param("seed", 100 + dist.get_rank())\n',
    "another name": RANK + 'from mlflow import log_param as note\nnote("seed", rank)\n',
    "below a run": 'with mlflow.start_run():\n    mlflow.log_param("r", os.getenv("RANK"))\n',
}
HARMLESS = {
    "the rank in the name": RANK + 'mlflow.log_param(f"seed_{rank}", 100 + rank)\n',
    "the same value": RANK + 'mlflow.log_param("seed", 100)\n',
    "rank 0 alone": RANK + 'if rank == 0:\n    mlflow.log_param("seed", rank)\n',
    "others leave": RANK
    + IN_MAIN.format('if rank:\n        return\n    mlflow.log_param("seed", rank)'),
    "a rank of a matrix": 'rank = 8\nmlflow.log_param("lora_rank", rank)\n',
    "a run of its own": RANK
    + 'with mlflow.start_run(nested=True):\n    mlflow.log_param("seed", rank)\n',
    "another library": RANK + 'log.log_param("seed", rank)\n',
    "a decorator": RANK + '@once\ndef note():\n    mlflow.log_param("seed", rank)\nnote()\n',
}


def found(sgpu: Shell, code: str, gpus: int = 2, more: str = "") -> list[tuple[str, str]]:
    sgpu.write("train.py", HEAD + code)
    sgpu.write("run.yaml", f"name: a\ngpus: {gpus}\ntype: CPU\nentrypoint: train.py\n{more}")
    checks = sgpu.checks(id="rank_value_logged")
    return [(check["severity"], check["address"]) for check in checks]


@pytest.mark.parametrize("code", LOGGED.values(), ids=LOGGED)
def test_a_value_of_each_rank_is_found(sgpu: Shell, code: str) -> None:
    assert found(sgpu, code) == [("warning", "run.a")]


def test_it_is_found_where_ranks_share_a_run(sgpu: Shell) -> None:
    code = LOGGED["a statement"]
    assert found(sgpu, code.replace("log_param", "set_tag")) == [("info", "run.a")]
    assert found(sgpu, code, gpus=1) == []
    assert found(sgpu, code, more="mlflow: {enabled: false}\n") == []


@pytest.mark.parametrize("code", HARMLESS.values(), ids=HARMLESS)
def test_other_values_are_not(sgpu: Shell, code: str) -> None:
    assert found(sgpu, code) == []
