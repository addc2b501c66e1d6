"""A run on a cluster that does not answer any more."""

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell

GONE = "http://127.0.0.1:9"  # the port of `discard`, where nothing listens
RUN = "name: hello\ngpus: 1\ntype: CPU\ncommand: 'true'\nmlflow: {enabled: false}\n"


TOKEN = "sgpu1-" + "q" * 52
LAUNCHED = {"address": GONE, "session": "one", "folder": "/tmp/sgpu/runs/x/away/1-abc"}
LETS_GO = "`sgpu state rm run.away` removes the run from the state and stops nothing"


def recorded(
    sgpu: Shell,
    *names: str,
    backend: str = "ray",
    reference: Any = LAUNCHED,
    state: str = "running",
) -> Shell:
    """Runs were launched elsewhere, by a state that another machine made; `hello#1` ran here."""
    sgpu.write("run.yaml", RUN)
    sgpu.done("apply", "-y")
    pulled = json.loads(sgpu.here("state", "pull").out)
    for number, name in enumerate(names):
        away = copy.deepcopy(pulled["resources"][0])
        away |= {"address": f"run.{name}", "backend": backend, "owner": f"{name}.yaml"}
        block = f"backend: {{kind: ray, address: '{GONE}'}}\n" if backend == "ray" else ""
        away["spec"] |= {"backend": {"kind": "ray", "address": GONE}} if block else {}
        away["attempts"][0] |= {
            "backend": backend,
            "state": state,
            "ended_at": None if state == "running" else away["attempts"][0]["ended_at"],
            "exit_code": None if state == "running" else 0,
            "token": f"{TOKEN[:-1]}{number}" if number else TOKEN,
            "reference": json.dumps(reference),
        }
        pulled["resources"].append(away)
        sgpu.write(f"{name}.yaml", RUN.replace("hello", name) + block)
    sgpu.write("state.json", json.dumps(pulled))
    sgpu.done("state", "push", "state.json")
    (sgpu.folder / "state.json").unlink()
    return sgpu


def remembered(sgpu: Shell, **facts: Any) -> Path:
    """What the machine that launched `away#1` knows of it."""
    marker = {"address": GONE, "session": "one", "token": TOKEN}
    text = json.dumps({"v": 1, "token": TOKEN, "marker": marker, **facts})
    return sgpu.write(".sgpu/default/runs/away/1/launch.json", text)


@pytest.fixture(params=["another", "this"])
def orphaned(sgpu: Shell, request: pytest.FixtureRequest) -> Shell:
    """`away#1` was running on a cluster when that was heard of last. Another machine launched it,
    or this one, which has seen more of it than the state says."""
    recorded(sgpu, "away")
    if request.param == "this":
        note = remembered(sgpu, seen={"state": "running", "started_at": "2026-01-01T00:00:00Z"})
        os.utime(note, (1767226000, 1767226000))
    return sgpu


def test_it_is_shown_as_recorded_beside_the_others(orphaned: Shell) -> None:
    (away, hello) = orphaned.data("status")["runs"]
    assert (away["state"], hello["state"]) == ("running", "succeeded")
    assert f"`{GONE}` does not answer" in away["unavailable"]
    orphaned.done("plan", "run.yaml")


def test_whoever_cannot_reach_it_hears_how_to_let_go_of_it(orphaned: Shell) -> None:
    for words in ("cancel", "destroy -y", "logs", "logs -f", "results", "fetch", "stacks"):
        refused = orphaned.here(*words.split(), "away")
        assert refused.code == 1, words
        assert f"`{GONE}` does not answer" in refused.err, words
        assert LETS_GO in refused.err, words
    planned = orphaned.here("plan", "away.yaml", "--rerun", "away", "--on-active", "replace").out
    for text in (planned, orphaned.here("destroy", "away").out):
        assert "`away#1` was running as far as is known, without a GPU" in text
    assert "whether it takes the run" in planned
    assert "a launch there would fail" in planned


def test_whoever_waits_for_it_hears_that_nothing_answers(orphaned: Shell) -> None:
    waited = orphaned.exits(1, "wait", "away", "--timeout", "0s")
    assert f"`{GONE}` does not answer" in waited.err
    assert LETS_GO in waited.err


def test_it_is_let_go_of_and_launched_again(orphaned: Shell) -> None:
    orphaned.done("state", "rm", "away")
    (change,) = orphaned.data("plan", "away.yaml")["changes"]
    assert (change["action"], change["attempt"], change["unavailable"]) == ("create", 2, None)


@pytest.mark.parametrize("orphaned", ["this"], indirect=True)
def test_how_long_it_took_is_what_was_seen(orphaned: Shell) -> None:
    shown = orphaned.here("status").out
    assert re.search(r"away#1 .* ago +6 m 40 s +as last recorded .* ago: ", shown), shown


def test_a_plan_says_that_nobody_knows_whether_it_runs(orphaned: Shell) -> None:
    planned = orphaned.done("plan", "away.yaml", "--out", "run.plan")
    for text in (planned.out, orphaned.here("show", "run.plan").out):
        assert "= run.away  leave away#1 alone, no new GPUs" in text
        assert "because: away#1 was running as far as is known, and cannot be asked now" in text
        assert "is running already" not in text
    said = planned.out + planned.err
    assert "info[attempt_not_visible]: run.away: `away#1` cannot be asked now, recorded at" in said
    assert LETS_GO in said

    data = orphaned.data("plan", "away.yaml")
    (change,) = data["changes"]
    assert (change["action"], change["reason"]) == ("adopt", "already_running")
    assert f"`{GONE}` does not answer" in change["unavailable"]
    assert "away#1 is left as it is: " in orphaned.done("apply", "-y", "--detach", "run.plan").err


def test_a_change_of_it_is_refused_with_the_way_out(orphaned: Shell) -> None:
    refused = orphaned.exits(1, "plan", "away.yaml", "--set", "command=echo")
    assert "error[active_run]: `away#1` counts as active" in refused.err
    assert f"reached. If it is gone for good, {LETS_GO}" in refused.err


def test_a_plan_of_many_says_it_once(sgpu: Shell) -> None:
    names = ("a", "b", "c", "d", "e")
    recorded(sgpu, *names)
    runs = "".join(
        f"  {name}: {{gpus: 1, type: CPU, command: 'true', mlflow: {{enabled: false}}, "
        f"backend: {{kind: ray, address: '{GONE}'}}}}\n"
        for name in names
    )
    sgpu.write("sgpu.yml", f"project: {{name: p}}\nruns:\n{runs}")
    (check,) = sgpu.checks("sgpu.yml", id="attempt_not_visible")
    assert check["summary"].startswith("`a#1`, `b#1` and 3 more cannot be asked now")
    assert sgpu.here("status").err.count("and stops nothing; so for the others") == 1


def test_a_run_of_another_machine_is_no_run_that_goes_on(sgpu: Shell) -> None:
    place = {"host": "elsewhere", "id": "0" * 32, "project": "/home/ann/p"}
    recorded(sgpu, "away", backend="local", reference=place)
    planned = sgpu.done("plan", "away.yaml")
    assert "was running as far as is known" in planned.out
    assert LETS_GO in planned.out + planned.err
    assert LETS_GO in sgpu.here("status").err
    assert "it was launched on elsewhere" in sgpu.exits(1, "top", "away", "--once").err
    assert "as last recorded: it was launched on elsewhere" in sgpu.done("top", "--once").out


def test_an_apply_that_cannot_follow_what_it_attached_to_does_not_end_well(orphaned: Shell) -> None:
    applied = orphaned.exits(1, "apply", "-y", "away.yaml")
    assert f"`{GONE}` does not answer" in applied.err
    assert LETS_GO in applied.err
    orphaned.done("apply", "-y", "--detach", "away.yaml")


@pytest.mark.parametrize("orphaned", ["another"], indirect=True)
def test_such_an_apply_names_what_it_attached_to(orphaned: Shell) -> None:
    answer = orphaned.here("apply", "-y", "away.yaml", "-o", "json").json
    assert (answer["error"]["code"], answer["error"]["retryable"]) == ("launched_elsewhere", True)
    assert answer["data"]["attempts"] == ["away#1"]


def test_a_finished_run_is_destroyed_though_nothing_can_be_deleted_there(sgpu: Shell) -> None:
    recorded(sgpu, "away", state="succeeded")
    ranks = [{"rank": 0, "node_rank": 0, "state": "succeeded", "exit_code": 0, "signal": None}]
    remembered(sgpu, ended={"attempt": 1, "state": "succeeded", "ranks": ranks, "brought": 0})

    for command in ("logs", "fetch"):
        refused = sgpu.exits(1, command, "away")
        assert "If that is gone for good, so are the files that were not fetched" in refused.err
    destroyed = sgpu.done("destroy", "-y", "away")
    assert "what was staged for `away#1` was not deleted: " in destroyed.err
    assert "`sgpu gc` deletes it once that answers" in destroyed.err
