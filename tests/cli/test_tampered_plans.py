"""A saved plan that was changed is refused; one with a seal of an older sgpu is read."""

import json
from pathlib import Path

import pytest

from sgpu_decl.model.jsonable import canonical, digest
from tests.cli.conftest import Shell
from tests.support import COMMAND_RUN


@pytest.fixture
def plan(sgpu: Shell) -> Path:
    sgpu.write("run.yaml", COMMAND_RUN)
    sgpu.done("plan", "--out", "run.plan")
    return sgpu.folder / "run.plan"


def test_what_was_changed_is_refused_and_nothing_is_launched(sgpu: Shell, plan: Path) -> None:
    plan.write_text(plan.read_text().replace("hello", "hullo"))
    refused = sgpu.exits(1, "apply", "run.plan", "-o", "json")
    assert [one["code"] for one in refused.json["error"]["diagnostics"]] == ["plan_edited"]
    assert "sgpu plan --out" in refused.json["error"]["hint"]
    assert not (sgpu.folder / ".sgpu" / "default" / "runs").exists()


def test_a_plan_with_a_seal_is_read(sgpu: Shell, plan: Path) -> None:
    plan.write_text(canonical({**json.loads(plan.read_text()), "seal": "hmac-sha256:00"}))
    sgpu.done("apply", "run.plan")


def test_a_plan_of_a_folder_that_is_no_project_makes_none(
    sgpu: Shell, plan: Path, tmp_path: Path
) -> None:
    """A path in a plan decides nothing: state would be made where it leads."""
    elsewhere, away = tmp_path / "elsewhere", tmp_path / "away"
    elsewhere.mkdir()
    away.mkdir()
    made = {**json.loads(plan.read_text()), "project": str(elsewhere)}
    del made["checksum"]
    plan.write_text(canonical({**made, "checksum": digest(canonical(made))}))
    assert "[other_project]" in sgpu.exits(3, "apply", str(plan), cwd=away).err
    assert list(elsewhere.iterdir()) == []
    assert list(away.iterdir()) == []


@pytest.mark.parametrize("target", [(), ("-t", "prod"), ("-t", "dev")])
def test_the_field_sealed_is_refused_with_the_way_out(sgpu: Shell, target: tuple[str, ...]) -> None:
    sgpu.write(
        "sgpu.yml", "project: {name: p}\ntargets: {dev: {}, prod: {sealed: true}}\nruns: {}\n"
    )
    refused = sgpu.exits(1, "plan", *target)
    assert "error[unknown_key]: unknown key `sealed`" in refused.err
    assert "hint: remove it: saved plans have no seals any more" in refused.err
