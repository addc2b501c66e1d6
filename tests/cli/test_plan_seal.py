"""Sealed plans: `SGPU_PLAN_KEY`, and targets with `sealed: true`."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sgpu_decl.model.jsonable import canonical, digest
from tests.cli.conftest import Shell

PROJECT = """project: {name: p}
targets:
  prod: {sealed: true}
  dev: {}
runs:
  a: {gpus: 1, type: CPU, command: 'env | grep -c PLAN_KEY || true', mlflow: {enabled: false}}
"""
KEY = "correct horse"


@pytest.fixture
def shell(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", PROJECT)
    return sgpu


def having(shell: Shell, key: str | None) -> Shell:
    environ = {name: value for name, value in shell.environ.items() if name != "SGPU_PLAN_KEY"}
    return replace(shell, environ=environ if key is None else {**environ, "SGPU_PLAN_KEY": key})


def saved(shell: Shell, key: str | None, target: str = "prod") -> None:
    answer = having(shell, key).here("plan", "-t", target, "--out", "a.plan")
    assert answer.code == 0, answer.err


def refused(shell: Shell, key: str | None) -> tuple[str, str]:
    """The code and the text of a refusal."""
    answer = having(shell, key).here("apply", "a.plan", "-o", "json")
    assert answer.code == 1, answer.out
    error = answer.json["error"]
    codes = [finding["code"] for finding in error["diagnostics"]] or [error["code"]]
    assert not (shell.folder / ".sgpu" / "prod" / "runs").exists()
    return codes[0], answer.out


def edited(shell: Shell, **keys: Any) -> None:
    """Change a saved plan as somebody would who knows of the checksum."""
    file = shell.folder / "a.plan"
    plan = {**json.loads(file.read_text()), **keys}
    seal, _ = plan.pop("seal", None), plan.pop("checksum")
    text = canonical(plan)
    plan["checksum"] = digest(text)
    file.write_text(canonical(plan if seal is None else {**plan, "seal": seal}))


def test_a_sealed_plan_is_applied_where_the_key_is_the_same_and_no_rank_finds_it(
    shell: Shell,
) -> None:
    saved(shell, KEY)
    text = (shell.folder / "a.plan").read_text()
    assert '"seal":"hmac-sha256:' in text
    assert KEY not in text
    applied = having(shell, KEY).here("apply", "a.plan")
    assert applied.code == 0, applied.err
    log = shell.here("logs", "a", "-t", "prod").out
    assert log.strip().endswith("0")


def test_a_plan_without_a_seal_is_refused_by_a_sealed_target_alone(shell: Shell) -> None:
    saved(shell, None)
    code, text = refused(shell, KEY)
    assert (code, "this plan has no seal" in text) == ("unsealed_plan", True)
    saved(shell, None, target="dev")
    assert having(shell, KEY).here("apply", "a.plan").code == 0


@pytest.mark.parametrize("key", [None, ""])
def test_a_machine_without_the_key_cannot_check_a_seal(shell: Shell, key: str | None) -> None:
    saved(shell, KEY)
    code, text = refused(shell, key)
    assert (code, "is not set here" in text) == ("unsealed_plan", True)
    saved(shell, key)
    assert "seal" not in json.loads((shell.folder / "a.plan").read_text())


def test_another_key_or_another_plan_is_a_wrong_seal_for_any_target(shell: Shell) -> None:
    saved(shell, KEY)
    assert refused(shell, "another")[0] == "bad_seal"
    edited(shell, config_digest=digest("another"))
    assert refused(shell, KEY)[0] == "bad_seal"
    saved(shell, KEY, target="dev")
    assert refused(shell, "another")[0] == "bad_seal"
    edited(shell, tool_version="0")
    assert refused(shell, KEY)[0] == "bad_seal"


@pytest.mark.parametrize(
    "head", ["sealed: true\n", "sealed: ${var.seal}\nvariables: {seal: {default: false}}\n"]
)
def test_the_top_of_the_file_seals_all_targets(shell: Shell, head: str) -> None:
    saved(shell, None, target="dev")
    shell.write("sgpu.yml", head + PROJECT)
    assert refused(shell, KEY)[0] == "unsealed_plan"
    shell.write("sgpu.yml", head + PROJECT.replace("dev: {}", "dev: {sealed: false}"))
    assert having(shell, KEY).here("apply", "a.plan").code == 0


def test_an_apply_without_a_saved_plan_needs_no_seal(shell: Shell) -> None:
    assert shell.here("apply", "-y", "-t", "prod").code == 0


def test_the_seal_is_chosen_by_the_file_alone(shell: Shell) -> None:
    refused = shell.here("plan", "-t", "prod", "--set", "sealed=false")
    assert refused.code == 1
    assert "the file or a target says it" in refused.err
    shell.write("more.yml", "targets: {prod: {sealed: false}}\n")
    shell.write("sgpu.yml", "include: [more.yml]\n" + PROJECT)
    refused = shell.here("plan", "-t", "prod")
    assert "belongs to the root file" in refused.err
