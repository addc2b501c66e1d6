"""A saved plan launches on the cluster that it was made for, and sends nothing to another one."""

import copy
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.backends.ray.answers import Answers, answering, recorded
from tests.cli.conftest import Answer, Shell

SECRET = "correct-horse"
RUN = """\
name: train
type: CPU
gpus: 1
entrypoint: train.py:main
mlflow: {enabled: false}
env: {secrets: {WORD: "env:WORD"}}
backend: {kind: ray, storage: ROOT}
"""
TAKEN: dict[str, Any] = {"/api/packages/gcs/*": {}, "/api/jobs/": {}}
"""What a cluster answers that takes a job."""


def cluster_of(version: str) -> dict[str, Any]:
    return {**copy.deepcopy(recorded(version)), **TAKEN}


@pytest.fixture
def cluster() -> Iterator[Answers]:
    with answering(cluster_of("2.60.0")) as answers:
        yield answers


@pytest.fixture
def other() -> Iterator[Answers]:
    with answering(cluster_of("2.49.1")) as answers:
        yield answers


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    folder, storage = tmp_path / "project", tmp_path / "storage"
    folder.mkdir()
    storage.mkdir()
    names = {
        f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("DATA", "CACHE", "STATE")
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    shell = Shell(folder, {**environ, **names, "HOME": str(tmp_path), "WORD": SECRET})
    shell.write("train.py", "def main():\n    pass\n")
    shell.write("run.yaml", RUN.replace("ROOT", str(storage)))
    return shell


def at(shell: Shell, url: str, *arguments: str) -> Answer:
    """A command where `RAY_ADDRESS` leads to a cluster."""
    return replace(shell, environ={**shell.environ, "RAY_ADDRESS": url}).here(*arguments)


def saved(shell: Shell, cluster: Answers) -> None:
    assert at(shell, cluster.url, "plan", "--out", "a.plan").code == 0
    cluster.requests.clear()


def apply(shell: Shell, url: str) -> Answer:
    return at(shell, url, "apply", "--detach", "a.plan", "-o", "json")


def changing(answers: Answers) -> list[str]:
    """The requests that changed something."""
    return [request for request, _ in answers.requests if not request.startswith("GET ")]


def test_a_saved_plan_is_launched_on_its_cluster(shell: Shell, cluster: Answers) -> None:
    saved(shell, cluster)

    assert apply(shell, cluster.url).code == 0
    assert "POST /api/jobs/" in changing(cluster)


def test_a_plan_of_a_cluster_that_does_not_answer_says_that_it_is_not_complete(
    shell: Shell,
) -> None:
    answer = at(shell, "http://127.0.0.1:1", "plan", "--out", "a.plan")
    assert answer.code == 0
    assert "This plan is not complete: " in answer.out
    assert "apply exactly this with `sgpu apply a.plan`" in answer.err
    data = at(shell, "http://127.0.0.1:1", "plan", "-o", "json").json["data"]
    assert (data["complete"], data["applyable"]) == (False, True)


def test_a_saved_plan_is_refused_where_another_cluster_is_meant(
    shell: Shell, cluster: Answers, other: Answers
) -> None:
    saved(shell, cluster)

    refused = apply(shell, other.url)

    assert refused.code == 3
    error = refused.json["error"]
    assert error["code"] == "other_cluster"
    assert f"cluster at `{cluster.url}`" in error["message"]
    assert f"lead to `{other.url}`" in error["message"]
    assert error["hint"].startswith("plan again; or set `RAY_ADDRESS`")
    assert (other.requests, cluster.requests) == ([], [])
    assert at(shell, cluster.url, "status", "-o", "json").json["data"]["runs"] == []


def test_a_saved_plan_is_refused_where_its_address_leads_to_another_cluster(
    shell: Shell, cluster: Answers
) -> None:
    """So it does with a forwarded port, on another machine, and after `ray stop; ray start`."""
    saved(shell, cluster)
    cluster.by_path |= cluster_of("2.49.1")

    refused = apply(shell, cluster.url)

    assert (refused.code, refused.json["error"]["code"]) == (3, "other_cluster")
    assert changing(cluster) == []
    assert at(shell, cluster.url, "apply", "-y", "--detach").code == 0


def test_a_tracking_uri_that_is_malformed_where_a_plan_is_applied_is_refused(
    shell: Shell, cluster: Answers
) -> None:
    file = shell.folder / "run.yaml"
    file.write_text(file.read_text().replace("mlflow: {enabled: false}\n", ""))
    saved(shell, cluster)
    shell.environ["MLFLOW_TRACKING_URI"] = "http://[server"

    refused = apply(shell, cluster.url)

    assert (refused.code, refused.json["error"]["code"]) == (1, "bad_tracking_uri")
    assert changing(cluster) == []


def test_nothing_is_sent_in_the_clear_to_a_cluster_that_asks_for_no_token_any_more(
    shell: Shell,
) -> None:
    """The plan was made when it did."""
    shell.environ["RAY_AUTH_TOKEN"] = "t-1"
    with answering(cluster_of("2.60.0"), token="t-1") as secured:
        # An address of this machine that is not one of loopback.
        url = secured.url.replace("127.0.0.1", "0.0.0.0")
        assert at(shell, url, "plan", "--out", "a.plan").code == 0
        secured.token = None
        secured.requests.clear()

        refused = apply(shell, url)

        assert (refused.code, refused.json["error"]["code"]) == (1, "ray_insecure")
        assert "`insecure: true`" in refused.json["error"]["hint"]
        assert changing(secured) == []
        assert not any(SECRET.encode() in body for _, body in secured.bodies)
