"""A run on a cluster that does not answer any more."""

import copy
import json

import pytest

from tests.cli.conftest import Shell

GONE = "http://127.0.0.1:9"  # the port of `discard`, where nothing listens
RUN = "name: hello\ngpus: 1\ntype: CPU\ncommand: 'true'\nmlflow: {enabled: false}\n"


@pytest.fixture
def orphaned(sgpu: Shell) -> Shell:
    """`away#1` was running on a cluster, by a state that another machine made; `hello#1` ran
    here."""
    sgpu.write("run.yaml", RUN)
    assert sgpu.here("apply", "-y").code == 0
    state = json.loads(sgpu.here("state", "pull").out)
    away = copy.deepcopy(state["resources"][0])
    away |= {"address": "run.away", "backend": "ray", "owner": "away.yaml"}
    away["spec"]["backend"] = {"kind": "ray", "address": GONE}
    place = {"address": GONE, "session": "one", "folder": "/tmp/sgpu/runs/x/away/1-abc"}
    away["attempts"][0] |= {
        "backend": "ray",
        "state": "running",
        "ended_at": None,
        "exit_code": None,
        "token": "sgpu1-" + "q" * 52,
        "reference": json.dumps(place),
    }
    state["resources"].append(away)
    sgpu.write("state.json", json.dumps(state))
    assert sgpu.here("state", "push", "state.json").code == 0
    (sgpu.folder / "state.json").unlink()
    backend = f"backend: {{kind: ray, address: '{GONE}'}}\n"
    sgpu.write("away.yaml", RUN.replace("hello", "away") + backend)
    return sgpu


def test_it_is_shown_as_recorded_beside_the_others(orphaned: Shell) -> None:
    (away, hello) = orphaned.here("status", "-o", "json").json["data"]["runs"]
    assert (away["state"], hello["state"]) == ("running", "succeeded")
    assert f"`{GONE}` does not answer" in away["unavailable"]
    assert orphaned.here("plan", "run.yaml").code == 0


@pytest.mark.parametrize("words", [("cancel", "away"), ("destroy", "-y", "away"), ("wait", "away")])
def test_whoever_cannot_stop_it_hears_how_to_let_go_of_it(
    orphaned: Shell, words: tuple[str, ...]
) -> None:
    refused = orphaned.here(*words)
    assert refused.code == 1
    assert "`sgpu state rm run.away` lets go of the run" in refused.err
    assert orphaned.here("state", "rm", "away").code == 0
    assert orphaned.here(*words[:-1], "hello").code == 0


def test_an_apply_that_cannot_follow_what_it_attached_to_does_not_end_well(orphaned: Shell) -> None:
    applied = orphaned.here("apply", "-y", "away.yaml")
    assert applied.code == 1
    assert "error[launched_elsewhere]: `away#1` cannot be asked from here: " in applied.err
    assert "`sgpu state rm run.away` lets go of the run" in applied.err
    assert orphaned.here("apply", "-y", "--detach", "away.yaml").code == 0
    answer = orphaned.here("apply", "-y", "away.yaml", "-o", "json").json
    assert answer["error"]["code"] == "launched_elsewhere"
    assert answer["data"]["attempts"] == ["away#1"]
