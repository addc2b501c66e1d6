"""`sgpu doctor probe`: what nodes of a workspace are like, measured by runs."""

import json
import os
import re
import signal
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace import Effect, ExecutionSettings, Fault, WorkspaceServer
from sgpu_decl.testing.workspace.executing.records import RunRecords
from tests.cli.conftest import Answer, Shell
from tests.sampling import strided
from tests.support import PATIENCE

Probe = Callable[..., Answer]


@pytest.fixture
def shell(project: Path) -> Shell:
    return Shell(project, dict(os.environ))


@pytest.fixture
def probe(project: Path) -> Probe:
    """Probes, and answers in JSON. The workspace is that of the environment when it is called: a
    fixture that comes later may name another one."""

    def run(*more: str) -> Answer:
        shell = Shell(project, dict(os.environ))
        return shell.here("doctor", "probe", "-y", "-o", "json", *more)

    return run


@pytest.fixture
def client(token: str) -> Any:
    from databricks.sdk import WorkspaceClient

    return WorkspaceClient()


@pytest.fixture
def waiting(
    tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkspaceServer]:
    """A workspace in which no A10 ever comes free."""
    settings = ExecutionSettings(capacity={"GPU_1xA10": 0})
    with WorkspaceServer(tmp_path / "waiting", execution=settings) as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", server.new_token())
        yield server


def findings(answer: Answer) -> dict[str, dict[str, Any]]:
    return {item["check"]: item for item in answer.json["data"]["findings"]}


def left(server: WorkspaceServer) -> list[str]:
    """What is left in the workspace of the user: files, folders, runs."""
    tenant = server.tenants.of_token(os.environ["DATABRICKS_TOKEN"])
    home = tenant.folder / "Workspace" / "Users" / tenant.user_name
    found = [str(path.relative_to(home)) for path in home.rglob("*")]
    return [*found, *(f"run {item.run_id}" for item in RunRecords(tenant).all())]


def submitted(server: WorkspaceServer) -> bool:
    """Whether the user has launched a run in this workspace."""
    asked = server.recording.all(server.tenants.of_token(os.environ["DATABRICKS_TOKEN"]).key)
    return any(item.path.endswith("/runs/submit") for item in asked)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's client and what it needs, as they are installed here, as wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    waiting, made = ["mlflow-skinny"], set[str]()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in made:
            continue
        made.add(name)
        found = distribution(name)
        needs = map(Requirement, found.requires or ())
        waiting += [
            need.name
            for need in needs
            if need.marker is None or need.marker.evaluate({"extra": ""})
        ]
        tag = re.findall(r"^Tag: (.*)$", found.read_text("WHEEL") or "", re.MULTILINE)[0]
        stem = name.replace("-", "_")
        with zipfile.ZipFile(folder / f"{stem}-{found.version}-{tag}.whl", "w") as wheel:
            for file in found.files or ():
                if not str(file).startswith("..") and file.suffix != ".pyc":
                    wheel.write(str(file.locate()), str(file))
    return folder


@pytest.fixture
def index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv finds these wheels, and no others."""
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(wheels / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")


@pytest.mark.expensive
@pytest.mark.mlflow
@pytest.mark.usefixtures("index")
def test_a_locked_environment_logs_to_the_run(probe: Probe, server: WorkspaceServer) -> None:
    answer = probe("--only", "tree", "--base", "gpu-6")

    found = findings(answer)["node-mlflow-tree"]
    assert (found["verdict"], found["found"]) == ("ok", True), found
    assert os.environ["DATABRICKS_TOKEN"] not in answer.out + answer.err
    assert left(server) == []


def test_a_locked_environment_that_cannot_be_made_here_is_said(
    probe: Probe, server: WorkspaceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")

    found = findings(probe("--only", "tree", "--base", "gpu-6"))["node-mlflow-tree"]

    assert found["verdict"] == "warn"
    assert "found" not in found
    assert "was not tried" in found["text"]
    assert not submitted(server)
    assert left(server) == []


@pytest.mark.expensive
@pytest.mark.mlflow
def test_the_emulator_is_as_expected_and_nothing_is_left(
    probe: Probe, server: WorkspaceServer, index: None
) -> None:
    answer = probe("--limit", "8s")  # of which a slow machine takes some to start a command

    found = findings(answer)
    assert answer.code == 0, answer.out
    measured = {name: item for name, item in found.items() if "assumption" in item}
    assert {
        "submit-fields", "node-bash-source", "node-python", "node-system-calls", "node-variables",
        "back-writable", "upload-visible-seconds", "back-visible-seconds", "node-credentials",
        "node-mlflow", "log-delay-seconds", "log-line-bytes", "user-failure-code",
        "cancel-sends-term", "cancel-grace-seconds", "timeout-per-attempt",
    } <= set(measured)  # fmt: skip
    for name in (
        "node-bash-source", "back-writable", "node-credentials", "cancel-sends-term",
        "timeout-per-attempt",
    ):  # fmt: skip
        assert found[name]["found"] is True, (name, found[name])
    assert not [item for item in found["node-variables"]["found"] if item.startswith("DATABRICKS_")]
    assert found["user-failure-code"]["found"] == "RUN_EXECUTION_ERROR"
    assert "CLIENT_ERROR" in found["user-failure-code"]["text"]
    assert os.environ["DATABRICKS_TOKEN"] not in answer.out + answer.err
    assert left(server) == []


@pytest.mark.expensive
def test_a_grace_is_measured_to_the_second(
    probe: Probe, server: WorkspaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "profile", Profile({"cancel-grace-seconds": 9.9}))

    found = findings(probe("--only", "hold"))["cancel-grace-seconds"]

    assert (found["verdict"], found["found"]) == ("ok", 10)


@pytest.mark.expensive
@pytest.mark.torch
def test_two_nodes_are_measured_together(probe: Probe, server: WorkspaceServer) -> None:
    found = findings(probe("--nodes", "2", "--only", "gang", "--limit", "3s"))

    assert [found[item]["found"] for item in ("node-address", "node-ports", "node-gloo")] == [
        True
    ] * 3
    assert found["failed-node-stops-others"]["found"] is True
    assert "there is no GPU" in found["node-nccl"]["text"]
    assert left(server) == []


ALL_BUT_PIDFDS = tuple(
    name for name in Profile().texts("node-system-calls") if name != "pidfd_open"
)
FOLLOWS = {
    "ai-base-python": {"node-credentials", "node-mlflow"},
    "node-credentials": {"node-mlflow"},
    "node-variables": {"node-mlflow"},
    "node-address": {"node-ports"},
}
"""What else does not hold then."""
VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NUM_NODES")
BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("fail", {"user-failure-code": "INTERNAL_ERROR"}),
    ("hold", {"cancel-sends-term": False}),
    ("retried --limit 3s", {"timeout-per-attempt": False}),
    (
        "report --secret keys/one",
        {
            "node-bash-source": False,
            "node-system-calls": ALL_BUT_PIDFDS,
            "node-secrets": False,
            "node-index": False,
            "log-line-bytes": 1000,
        },
    ),
    ("tree --base gpu-6", {"node-mlflow-tree": False}),
    ("report --base ai-5", {"ai-base-python": False}),
    ("report", {"back-writable": False}),
    ("report", {"node-variables": VARIABLES}),
    ("report", {"node-credentials": False}),
    ("report", {"node-mlflow": False}),
    ("gang --nodes 2 --limit 3s", {"node-address": False}),
    ("gang --nodes 2 --limit 3s", {"node-ports": False}),
    ("gang --nodes 2 --limit 3s", {"node-gloo": False, "failed-node-stops-others": False}),
]
"""A run of a probe, and what does not hold in a workspace, with the value that the probe finds."""


@pytest.mark.expensive
@pytest.mark.mlflow
@pytest.mark.parametrize(
    ("only", "broken"),
    strided(BROKEN, 3),
    ids=[f"{only.split()[0]}-{next(iter(item))}" for only, item in strided(BROKEN, 3)],
)
def test_an_assumption_that_does_not_hold_is_found(
    probe: Probe,
    server: WorkspaceServer,
    monkeypatch: pytest.MonkeyPatch,
    client: Any,
    index: None,
    only: str,
    broken: dict[str, Any],
) -> None:
    monkeypatch.setattr(server, "profile", Profile(broken))
    if "--secret" in only:
        client.secrets.create_scope("keys")
        client.secrets.put_secret("keys", "one", string_value="sesame")

    found = findings(probe("--only", *only.split()))

    for id_, value in broken.items():
        expected = sorted(value) if isinstance(value, tuple) else value
        assert found[id_]["found"] == expected, id_
        assert found[id_]["expected"] != expected
    allowed = {*broken, "cancel-grace-seconds", "node-index"}.union(
        *(FOLLOWS.get(id_, set()) for id_ in broken)
    )
    measured = {name: item for name, item in found.items() if "assumption" in item}
    assert {name for name, item in measured.items() if item["verdict"] != "ok"} <= allowed
    assert left(server) == []


@pytest.mark.expensive
def test_one_run_is_repeated_and_what_others_found_stays(
    probe: Probe, shell: Shell, server: WorkspaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "profile", Profile({"user-failure-code": "INTERNAL_ERROR"}))
    first = probe("--only", "fail", "--only", "hold")
    monkeypatch.setattr(server, "profile", Profile())

    second = probe("--only", "fail")

    assert "launches 2 runs" in first.err
    assert "launches 1 run," in second.err
    assert findings(first)["user-failure-code"]["found"] == "INTERNAL_ERROR"
    assert "cancel-sends-term" not in findings(second)
    report = shell.here("doctor", "report").out
    assert "user-failure-code: expected RUN_EXECUTION_ERROR, found RUN_EXECUTION_ERROR" in report
    assert report.count("user-failure-code") == 1
    assert "cancel-sends-term" in report


@pytest.mark.expensive
def test_a_repeated_run_takes_back_all_that_it_found_before(
    probe: Probe, shell: Shell, server: WorkspaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe("--only", "hold")
    assert "cancel-grace-seconds" in shell.here("doctor", "report").out
    monkeypatch.setattr(server, "profile", Profile({"cancel-sends-term": False}))

    second = probe("--only", "hold")

    assert findings(second)["cancel-sends-term"]["run"] == "hold"
    assert "cancel-grace-seconds" not in shell.here("doctor", "report").out


def test_a_probe_says_its_cost_and_launches_nothing_without_a_yes(
    shell: Shell, server: WorkspaceServer
) -> None:
    answer = shell.here("doctor", "probe")

    assert answer.code == 1
    assert f"{server.url}: the probe launches 5 runs, which use about" in answer.err
    assert "cannot ask for approval" in answer.err
    assert not submitted(server)


@pytest.mark.expensive
def test_a_probe_that_gets_no_gpu_is_given_up(probe: Probe, waiting: WorkspaceServer) -> None:
    answer = probe("--patience", "1s")

    assert answer.code == 1
    assert submitted(waiting)
    found = findings(answer)["probe-report"]
    assert "no GPU came in 1 s" in found["text"]
    assert "--patience 2h" in found["hint"]
    assert left(waiting) == []


@pytest.mark.expensive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_probe_that_is_interrupted_leaves_nothing(
    project: Path, waiting: WorkspaceServer, number: int
) -> None:
    shell = Shell(project, dict(os.environ))
    with shell.start("doctor", "probe", "-y") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting for a GPU" in line:
                break
        assert left(waiting) != []
        process.send_signal(number)
        _, told = process.communicate(timeout=PATIENCE)

    assert process.returncode == 130
    assert "what was made in the workspace is deleted" in told
    assert "goes on: see" not in told
    assert left(waiting) == []


def test_a_body_that_the_workspace_refuses_is_a_finding(
    probe: Probe, server: WorkspaceServer
) -> None:
    fault = Fault(
        pattern="POST /api/2.2/jobs/runs/submit",
        effect=Effect.STATUS,
        status_code=400,
        body={"error_code": "INVALID_PARAMETER_VALUE", "message": "no such field"},
    )
    server.faults.add(fault)

    found = findings(probe())["submit-fields"]

    assert (found["verdict"], found["found"]) == ("warn", False)
    assert "no such field" in found["text"]
    assert left(server) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "3"], "two nodes show all that more would"),
        (["--limit", "1s"], "`--limit` is at least 3s"),
        (["--secret", "scope"], "write `--secret SCOPE/KEY`"),
        (["--only", "gang"], "add `--nodes 2`"),
        (["--only", "hold", "--nodes", "2"], "add `--only gang`"),
        (["--only", "fail", "--limit", "3s"], "add `--only retried` or `--only gang`"),
        (["--only", "fail", "--secret", "a/b"], "add `--only report`"),
    ],
)
def test_wrong_options_are_refused(shell: Shell, options: list[str], said: str) -> None:
    answer = shell.here("doctor", "probe", *options)

    assert answer.code == 64
    assert said in answer.err


def test_a_base_that_tasks_cannot_choose_is_refused_first(probe: Probe) -> None:
    answer = probe("--base", "ai-4")

    assert answer.json["error"]["code"] == "unknown_base"


def test_this_machine_has_no_platform(shell: Shell) -> None:
    file = shell.folder / "run.yaml"
    file.write_text(file.read_text().replace("backend: databricks", "backend: local"))

    answer = shell.here("doctor", "probe", "-o", "json")

    assert answer.code == 1
    assert "has no platform" in json.loads(answer.out)["error"]["message"]
