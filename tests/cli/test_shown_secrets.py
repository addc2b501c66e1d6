"""A secret that a user wrote literally, wherever that is possible: no command shows it."""

import pytest

from tests.cli.conftest import Answer, Shell

CANARY = "CANARYcanary12345678"
PROJECT = f"""\
project: {{name: leak}}
variables: {{who: {{default: nobody}}}}
runs:
  text:
    gpus: 1
    type: CPU
    description: with glpat-{CANARY}
    command: |
      set -x
      echo git+https://{CANARY}@host.invalid/x >&2
      echo curl https://hooks.slack.com/services/T0000/B0000/{CANARY}
      WANDB_API_KEY={CANARY} python train.py --token {CANARY} "Authorization: Bearer {CANARY}"
    tags: {{hook: "https://discord.com/api/webhooks/12/{CANARY}", DB_PASSWORD: {CANARY}}}
    env:
      variables: {{A: sk-proj-{CANARY}, DB_PASSWORD: {CANARY}, AWS: "IQoJb3JpZ2lu{CANARY * 3}"}}
    parameters: {{google: "AIza{CANARY * 2}", api_key: {CANARY}}}
    mlflow: {{tracking_uri: "http://{CANARY}@127.0.0.1:9", enabled: false}}
  words:
    gpus: 1
    type: CPU
    command: [python, train.py, --password, {CANARY}, "https://host.invalid/x?access_token={CANARY}"]
    mlflow: {{enabled: false}}
  function:
    gpus: 1
    type: CPU
    entrypoint: train.py:main
    args: {{who: "${{var.who}}", api_key: {CANARY}, url: "az://box/x?sig={CANARY}"}}
    mlflow: {{enabled: false}}
  sweep:
    gpus: 1
    type: CPU
    entrypoint: train.py:main
    args: {{who: "${{matrix.who}}"}}
    matrix: {{who: [xoxb-1234567890-{CANARY}, npm_{CANARY}{CANARY[4:]}]}}
    mlflow: {{enabled: false}}
"""
TRAIN = f"""\
import sys
def main(who, api_key="", url=""):
    raise ValueError(f"refused: pypi-AgEI{CANARY} {{who}}")
if __name__ == "__main__":
    sys.exit("cannot read https://{CANARY}@host.invalid/x")
"""
LOOKS = (
    "validate", "plan", "plan -o json", "plan -o markdown", "plan -o github", "plan --blame",
    "plan --files", "plan --set runs.text.description=glpat-CANARYcanary12345678",
    "plan --var who=npm_CANARYcanary12345678ANARYcanary12345678", "graph", "graph -o json",
    "show saved.plan", "show saved.plan -o json",
)  # fmt: skip
READS = (
    "show text", "show text -o json", "show words", "show function", "show function -o json",
    "logs text --rank all", "logs function", "logs text -o json", "status", "status -o json",
    "status text", "state list", "state show run.text", "state show run.function -o json",
    "diff text words", "diff text words -o json", "results sweep", "results sweep -o json",
    "results sweep -o csv", "state log", "wait text", "cancel text", "fetch text",
    "plan", "gc --dry-run", "doctor",
)  # fmt: skip


def without(answer: Answer, command: str) -> Answer:
    shown = f"{answer.out}\n{answer.err}".replace(command, "")
    # a word that is cut may leave some letters of it
    assert CANARY[:6] not in shown, command
    return answer


@pytest.mark.expensive
def test_no_command_shows_a_secret_that_the_file_holds(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", PROJECT)
    sgpu.write("train.py", TRAIN)
    assert without(sgpu.here("plan", "--out", "saved.plan"), "plan").code == 0
    for command in LOOKS:
        without(sgpu.here(*command.split()), command)
    assert without(sgpu.here("apply", "-y", "--json-into", "events.jsonl"), "apply").code == 5
    assert CANARY[:6] not in (sgpu.folder / "events.jsonl").read_text()
    for command in READS:
        without(sgpu.here(*command.split()), command)

    sgpu.write("sgpu.yml", PROJECT.replace("12345678", "12345679"))
    for command in ("plan", "plan -o json", "plan -o markdown", "apply -y -o json"):
        without(sgpu.here(*command.split()), command)


REFUSED = {
    "index": f'env: {{dependencies: ["--index-url https://{CANARY}@host.invalid/simple", six]}}',
    "git": f'env: {{dependencies: ["six @ git+https://{CANARY}@host.invalid/x"]}}',
    "direct": f'env: {{dependencies: ["six @ https://host.invalid/x.whl?token={CANARY}"]}}',
    "ray": f"backend: {{kind: ray, address: 'http://{CANARY}@host.invalid:8265'}}",
    "storage": f"backend: {{kind: ray, address: 'http://127.0.0.1:9', storage: 's3://{CANARY}@b/x'}}",
    "type": f"retry: sk-ant-{CANARY}",
    "key": f"glpat-{CANARY}: 1",
    "tracking": f"mlflow: {{tracking_uri: 'https://{CANARY}@[host'}}",
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_refused_shows_none_either(sgpu: Shell, line: str) -> None:
    tracked = "" if "mlflow" in line else "mlflow: {enabled: false}\n"
    sgpu.write("run.yaml", f"name: r\ngpus: 1\ntype: CPU\ncommand: [echo]\n{tracked}{line}\n")
    for command in ("plan", "plan -o json", "plan -o github"):
        without(sgpu.here(*command.split()), command)


def test_the_state_of_a_project_names_no_user_of_its_server(sgpu: Shell) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: leak}\nruns: {}\n"
        f"state: {{kind: object, url: 's3://{CANARY}@bucket/x'}}\n",
    )
    without(sgpu.here("plan"), "plan")
    without(sgpu.here("status"), "status")
