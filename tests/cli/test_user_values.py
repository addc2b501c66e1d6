"""`${user}` in values: who plans, and where it is refused."""

import pytest

from sgpu_decl.model.target import short_name
from sgpu_decl.storing.state_store import user_name
from tests.cli.conftest import Shell

ME = short_name(user_name())
PROJECT = """\
project: {{name: demo}}
{head}
variables: {{place: "/data/${{user}}"}}
runs:
  train:
    gpus: 1
    type: CPU
    mlflow: {{enabled: false}}
    tags: {{owner: "by-${{user}}"}}
    env: {{variables: {{OUT: "${{var.place}}"}}}}
    command: 'user=shell; echo "$OUT ${{user}}"'
targets: {{dev: {{mode: development}}, prod: {{mode: production}}}}
"""


def test_the_user_of_this_machine_is_in_values_and_not_in_text_for_a_shell(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", PROJECT.format(head=""))
    resolved = sgpu.data("validate", "-t", "dev")["resolved"]["runs"][0]["spec"]
    assert resolved["tags"] == {"owner": "by-${user}"}  # who that is, is asked by a plan
    fields = {one["path"]: one["after"] for one in sgpu.data("plan")["changes"][0]["fields"]}
    assert fields["tags.owner"] == f"by-{ME}"
    assert fields["env.variables.OUT"] == f"/data/{ME}"
    assert "${user}" in fields["command"]
    sgpu.done("apply", "-y")
    assert f"/data/{ME} shell" in sgpu.done("logs", "train").out
    assert sgpu.data("plan")["summary"]["no_op"] == 1


@pytest.mark.parametrize(
    ("head", "words", "why"),
    [
        ("", ("-t", "prod"), "the target has `mode: production`"),
        (
            "state: {kind: folder, path: /nowhere}",
            ("-t", "default"),
            "several users share the state",
        ),
    ],
)
def test_what_several_users_apply_does_not_depend_on_who_plans(
    sgpu: Shell, head: str, words: tuple[str, ...], why: str
) -> None:
    sgpu.write("sgpu.yml", PROJECT.format(head=head))
    err = sgpu.exits(1, "validate", *words).err
    assert f"error[user_in_production]: `tags.owner` has `${{user}}`, and {why}" in err
    assert err.count("error[user_in_production]") == 2
    sgpu.done("validate", "-t", "dev")


def test_the_backend_says_who_the_user_is(sgpu: Shell) -> None:
    block = '{kind: ray, address: "http://head:8265", storage: "/shared/${user}"}'
    sgpu.write("run.yaml", f"name: a\ngpus: 1\ntype: CPU\ncommand: x\nbackend: {block}\n")
    assert "error[user_in_backend]" in sgpu.exits(1, "validate").err
