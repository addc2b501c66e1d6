"""`plan --propose` and `apply --reviewed`: nothing starts that no plan has shown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.storing.stores import DATABRICKS, FOLDER, POSTGRES
from tests.cli.conftest import Shell
from tests.cli.test_git_references import git
from tests.cli.test_shared_state import where
from tests.shared_places import new_place
from tests.workspace_login import login

RUN = "  {}: {{gpus: 1, type: CPU, command: '{}', mlflow: {{enabled: false}}, grace: 500ms}}\n"
LINK = "https://github.com/team/p/pull/7"


def project(state: str = "", **runs: str) -> str:
    head = "project: {name: p}\ntargets: {prod: {}, dev: {}}\n" + state + "runs:\n"
    return head + "".join(RUN.format(name, command) for name, command in runs.items())


@pytest.fixture
def shell(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", project(a="true"))
    return sgpu


def proposed(shell: Shell, *options: str) -> None:
    answer = shell.done("plan", "-t", "prod", "--propose", *options)
    heal = "--heal " if "--heal" in options else ""
    assert f"with `sgpu apply {heal}--reviewed -t prod`" in answer.err


def applied(shell: Shell, *options: str) -> Any:
    return shell.here("apply", "-t", "prod", "--reviewed", *options)


def refusal(shell: Shell, *options: str) -> Any:
    """The error of an apply that goes beyond what was proposed."""
    answer = applied(shell, *options, "-o", "json")
    assert answer.code == 3, (answer.out, answer.err)
    error = answer.json["error"]
    assert error["code"] == "not_reviewed"
    return error


def summaries(error: Any) -> list[str]:
    return [finding["summary"] for finding in error["diagnostics"]]


def attempts(shell: Shell, name: str) -> int:
    answer = shell.here("show", name, "-t", "prod", "-o", "json")
    return len(answer.json["data"]["history"]) if answer.code == 0 else 0


@pytest.mark.parametrize(
    "kind",
    [FOLDER, *(pytest.param(kind, marks=pytest.mark.expensive) for kind in (POSTGRES, DATABRICKS))],
)
def test_what_one_clone_proposes_another_one_applies_once(
    kind: str, sgpu: Shell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = new_place(request, kind, tmp_path)
    state = f"state: {{kind: {kind}, {where(place)}}}\n"
    clones = []
    for name in ("planner", "applier"):
        (tmp_path / name).mkdir()
        environ = sgpu.environ | login()
        clones.append(replace(sgpu, folder=tmp_path / name, environ=environ))
        clones[-1].write("sgpu.yml", project(state, a="true"))
    planner, applier = clones
    assert summaries(refusal(applier)) == ["`run.a` (create) is in no proposal of the last 30 days"]
    proposed(planner, "--propose-link", LINK)
    assert applied(applier).code == 0
    assert applied(applier).code == 0
    assert attempts(applier, "a") == 1
    (again,) = summaries(refusal(applier, "--rerun", "run.a"))
    assert f"({LINK}) was carried out as `a#1`" in again
    *_, entry, _ = applier.here("state", "log", "-t", "prod", "-o", "json").json["data"]["entries"]
    assert (entry["links"], len(entry["proposals"])) == ([LINK], 1)
    assert (
        f"{LINK} (proposal {entry['proposals'][0][:8]})"
        in applier.done("state", "log", "-t", "prod").out
    )


def test_all_that_was_not_proposed_is_named_at_once_beside_what_was(shell: Shell) -> None:
    shell.write("train.py", "x = 1\n")
    proposed(shell, "--propose-link", LINK)
    shell.write("sgpu.yml", project(a="echo", b="true"))
    shell.write("train.py", "x = 2\n")
    shell.write("more.py", "")
    error = refusal(shell)
    first, second = summaries(error)
    assert error["message"] == (
        "2 of 2 changes are in no open proposal of the target `prod`: nothing was changed"
    )
    assert first.startswith("`run.a` (create) differs from what ")
    assert first.endswith(
        f'UTC ({LINK}): fields: `command` "true" -> "echo"; code: `more.py` (new), `train.py`'
    )
    assert second == "`run.b` (create) is in no proposal of the last 30 days"
    assert attempts(shell, "a") == attempts(shell, "b") == 0
    shown = applied(shell)
    assert shown.code == 3
    assert first in shown.err
    assert "sgpu plan --propose -t prod" in shown.err


def test_a_proposal_that_cannot_be_kept_is_the_one_answer_of_the_plan(shell: Shell) -> None:
    state = shell.folder / ".sgpu" / "prod"
    state.mkdir(parents=True)
    (state / "proposals").write_text("a file where the folder belongs")
    answer = shell.exits(1, "plan", "-t", "prod", "--propose", "-o", "json")
    assert answer.json["error"]["code"] == "state_unreachable"
    assert "data" not in answer.json


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_proposals_are_merged_and_applied_in_any_order(order: str, shell: Shell) -> None:
    both = {"a": "echo", "b": "echo"}
    shell.write("sgpu.yml", project(a="true", b="true"))
    proposed(shell)
    assert applied(shell).code == 0
    for name in "ab":  # two branches from the same commit
        shell.write("sgpu.yml", project(**{"a": "true", "b": "true", name: "echo"}))
        proposed(shell)
    for name in order:
        merged = {one: both[one] if one == name or order[0] == one else "true" for one in both}
        shell.write("sgpu.yml", project(**merged))
        answer = applied(shell)
        assert answer.code == 0, answer.err
    assert attempts(shell, "a") == attempts(shell, "b") == 2


def test_less_than_was_shown_is_fine_and_no_question_is_asked(shell: Shell) -> None:
    shell.write("sgpu.yml", project(a="true", b="true"))
    proposed(shell)
    shell.write("sgpu.yml", project(a="true"))
    answer = applied(shell, "--select", "a")
    assert answer.code == 0, answer.err
    assert attempts(shell, "a") == 1


def test_a_proposal_of_another_target_approves_nothing(shell: Shell) -> None:
    shell.done("plan", "-t", "dev", "--propose")
    assert summaries(refusal(shell)) == ["`run.a` (create) is in no proposal of the last 30 days"]


def test_the_same_launch_in_two_proposals_happens_once(shell: Shell) -> None:
    for _ in range(2):
        proposed(shell)
    assert applied(shell).code == 0
    refusal(shell, "--rerun", "run.a")
    proposed(shell, "--rerun", "run.a")
    assert applied(shell, "--rerun", "run.a").code == 0
    assert attempts(shell, "a") == 2


def test_a_replacement_that_was_shown_needs_nobody_who_types_a_name(shell: Shell) -> None:
    shell.write("sgpu.yml", project(a="sleep 600"))
    proposed(shell)
    assert applied(shell, "--detach").code == 0
    shell.write("sgpu.yml", project(a="true"))
    (first,) = summaries(refusal(shell, "--on-active", "replace"))
    assert ", which was carried out as `a#1`: `create` was shown; fields: `command` " in first
    proposed(shell, "--on-active", "replace")
    answer = applied(shell, "--on-active", "replace")
    assert answer.code == 0, answer.err
    assert attempts(shell, "a") == 2


def test_a_launch_that_waits_is_no_launch_beside_the_active_one(shell: Shell) -> None:
    """What waits in a proposal may not start at once; the other way round it does less."""
    shell.write("sgpu.yml", project(a="sleep 600"))
    proposed(shell)
    assert applied(shell, "--detach").code == 0
    shell.write("sgpu.yml", project(a="true"))
    proposed(shell, "--on-active", "queue")
    (first,) = summaries(refusal(shell, "--on-active", "parallel"))
    assert first.endswith("it starts beside an active attempt, which was not shown")
    proposed(shell, "--on-active", "parallel")
    queued = applied(shell, "--on-active", "queue", "--detach")
    assert queued.code == 0, queued.err
    shell.done("cancel", "a#1", "-t", "prod")
    shell.done("wait", "a#2", "-t", "prod")


def test_a_launch_that_waits_starts_once_there_is_nothing_to_wait_for(shell: Shell) -> None:
    shell.write("sgpu.yml", project(a="sleep 600"))
    proposed(shell)
    assert applied(shell, "--detach").code == 0
    shell.write("sgpu.yml", project(a="true"))
    proposed(shell, "--on-active", "queue")
    shell.done("cancel", "a", "-t", "prod")
    assert applied(shell, "--on-active", "parallel").code == 0


def test_a_plan_that_does_nothing_or_cannot_be_applied_proposes_nothing(shell: Shell) -> None:
    proposed(shell)
    assert applied(shell).code == 0
    idle = shell.done("plan", "-t", "prod", "--propose", "--detailed-exitcode")
    assert "nothing to propose" in idle.err
    shell.write("sgpu.yml", project(a="true").replace("gpus: 1", "gpus: 1, type: A10000"))
    shell.write("sgpu.yml", project(a="true").replace("true'", "true', pool: none-such"))
    kept = list((shell.folder / ".sgpu/prod/proposals").iterdir())
    shell.exits(1, "plan", "-t", "prod", "--propose")
    assert list((shell.folder / ".sgpu/prod/proposals").iterdir()) == kept


def test_a_proposal_before_the_first_apply_is_no_state(shell: Shell) -> None:
    proposed(shell)
    shell.done("status", "-t", "prod")
    assert shell.data("plan", "-t", "prod")["serial"] == 0


def test_a_damaged_proposal_approves_nothing(shell: Shell) -> None:
    proposed(shell)
    (file,) = (shell.folder / ".sgpu/prod/proposals").iterdir()
    file.write_bytes(file.read_bytes()[:-20])
    refusal(shell)


def test_without_a_link_the_commit_is_named(shell: Shell) -> None:
    shell.write(".gitignore", ".sgpu\n")
    git(shell.folder, "init", "-q")
    git(shell.folder, "add", ".")
    git(shell.folder, "commit", "-q", "-m", "first")
    proposed(shell)
    shell.write("sgpu.yml", project(a="echo"))
    (first,) = summaries(refusal(shell))
    assert f"(commit {git(shell.folder, 'rev-parse', 'HEAD')[:12]})" in first


def test_a_launch_before_a_crash_closes_the_proposal(shell: Shell) -> None:
    """Killed between the launch and its record: the attempt itself closes it."""
    log = shell.folder.parent / "launches.log"
    shell.write("sgpu.yml", project(a=f"echo launched >> {log}"))
    proposed(shell)
    step = "sgpu_decl.backends.local.local_launcher,LocalLauncher,launch,after,1"
    shell.kill_at(step, "apply", "-t", "prod", "--reviewed")
    shell.done("wait", "a", "-t", "prod")
    refusal(shell, "--rerun", "run.a")
    assert applied(shell).code == 0
    refusal(shell, "--rerun", "run.a")
    assert log.read_text() == "launched\n"


def test_what_a_person_cancelled_is_drift_that_an_apply_heals_once_it_was_shown(
    shell: Shell,
) -> None:
    shell.write("sgpu.yml", project(a="exec sleep 60"))
    proposed(shell)
    assert applied(shell, "--detach").code == 0
    shell.done("cancel", "a", "-t", "prod")
    unchanged = applied(shell)
    assert (unchanged.code, "No changes" in unchanged.out) == (0, True)
    shown = shell.done("plan", "-t", "prod", "--heal", "-o", "markdown")
    assert "| create | `run.a` | the last attempt was cancelled by a person (`a#1`" in shown.out
    assert "was carried out as `a#1`" in summaries(refusal(shell, "--heal"))[0]
    proposed(shell, "--heal")
    assert applied(shell, "--heal", "--detach").code == 0
    assert attempts(shell, "a") == 2
    shell.done("cancel", "a", "-t", "prod")
    (again,) = summaries(refusal(shell, "--heal"))
    assert "was carried out as `a#2`" in again


def test_drift_is_told_by_the_exit_code_and_in_markdown(shell: Shell) -> None:
    proposed(shell)
    assert applied(shell).code == 0
    shell.done("plan", "-t", "prod", "--detailed-exitcode", "-o", "markdown")
    shell.done("state", "rm", "run.a", "-t", "prod")
    alarm = shell.exits(2, "plan", "-t", "prod", "--detailed-exitcode", "-o", "markdown")
    assert "run.a" in alarm.out
    assert json.loads(shell.here("plan", "-t", "prod", "-o", "json").out)["data"]["summary"][
        "create"
    ]
