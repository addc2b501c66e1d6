"""`sgpu doctor -t TARGET` of a Databricks workspace: free checks, held against a server that breaks
one assumption."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.databricks.conformance import workspace_checks
from sgpu_decl.model.assumptions import Measure, Profile, Value, assumptions
from sgpu_decl.testing.workspace import Capacity, Effect, Fault, Offers, WorkspaceServer
from sgpu_decl.testing.workspace.clock import ahead
from tests.cli.conftest import Answer, Shell
from tests.sampling import sampled
from tests.support import PATIENCE, require

require("databricks.sdk")

RUN = """\
name: a
gpus: 1
type: A10
command: "true"
targets:
  prod: {backend: databricks}
  volume: {backend: {kind: databricks, staging: /Volumes/main/default/files}}
"""
BROKEN: dict[str, Value] = {
    "read-limit": 5 << 20,
    "read-refusal": "MAX_NOTEBOOK_SIZE_EXCEEDED",
    "form-upload": False,
    "form-limit": 10 << 20,
    "raw-upload": False,
    "empty-form-upload": True,
    "empty-raw-upload": False,
    "size-listed": False,
    "command-on-volume": True,
    "code-on-volume": False,
    "unknown-api": "NOT_IMPLEMENTED",
    "compute-options": False,
    "accelerators": ("GPU_1xA10", "GPU_8xB300"),
    "capacities": False,
    "policies": False,
    "log-service": False,
    "validation": False,
    "validation-names-fields": False,
    "image-with-environment": False,
    "managed-base": False,
    "experiment-below-workspace": False,
    "priorities": ("BEST_EFFORT", "CRITICAL", "NORMAL"),
}
"""Every assumption that is measured for free, with another value than sgpu expects."""

Serve = Callable[..., Any]


@pytest.fixture
def serve(sgpu: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """`with serve(found)` is a workspace that this project's targets mean. All of it is measured,
    and answers soon enough, on however slow a machine."""
    monkeypatch.setattr(workspace_checks, "_LIMIT", PATIENCE)
    monkeypatch.setattr(workspace_checks, "PATIENCE", PATIENCE)
    sgpu.write("run.yaml", RUN)

    @contextmanager
    def serving(found: dict[str, Value] | None = None, **options: Any) -> Iterator[WorkspaceServer]:
        profile = Profile(found or {})
        with WorkspaceServer(tmp_path / "workspace", profile=profile, **options) as server:
            sgpu.environ["DATABRICKS_HOST"] = server.url
            sgpu.environ["DATABRICKS_TOKEN"] = server.token()
            sgpu.environ["DATABRICKS_CONFIG_FILE"] = str(tmp_path / "databrickscfg")
            yield server

    return serving


def findings(answer: Answer) -> list[dict[str, Any]]:
    return list(answer.json["data"]["findings"])


def differing(answer: Answer) -> dict[str, Any]:
    """The assumptions that were found to be wrong."""
    return {
        finding["assumption"]: finding["found"]
        for finding in findings(answer)
        if "assumption" in finding and finding["found"] != finding["expected"]
    }


def objects(server: WorkspaceServer) -> list[str]:
    """Files and folders of the user, in workspace and volumes."""
    folder = server.tenants.of_token(server.token()).folder
    return sorted(
        str(path.relative_to(folder))
        for tree in ("Workspace", "Volumes")
        for path in (folder / tree).glob("**/*")
    )


def test_a_workspace_that_is_as_expected_passes_and_keeps_nothing(
    sgpu: Shell, serve: Serve
) -> None:
    with serve() as server:
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
        left = [path for path in objects(server) if "doctor" in path or ".sgpu" in path]
    assert (answer.code, left) == (0, [])
    found = findings(answer)
    assert {item["verdict"] for item in found} == {"ok"}
    assert differing(answer) == {}
    measured = {item["assumption"] for item in found if "assumption" in item}
    free = {
        id_ for id_, assumption in assumptions().items() if assumption.measured_by is Measure.FREE
    }
    assert measured == free - {"form-limit"}  # which takes 450 MB to measure


def test_every_free_assumption_is_broken_once() -> None:
    free = {
        id_ for id_, assumption in assumptions().items() if assumption.measured_by is Measure.FREE
    }
    assert set(BROKEN) == free
    assert all(BROKEN[id_] != assumptions()[id_].expected for id_ in free)


@pytest.mark.parametrize("id_", sampled(sorted(BROKEN), quick=6))
def test_an_assumption_that_does_not_hold_is_found_and_no_other(
    sgpu: Shell, serve: Serve, id_: str
) -> None:
    broken = BROKEN[id_]
    with serve({id_: broken}):
        target = "volume" if id_ == "code-on-volume" else "prod"
        answer = sgpu.here("doctor", "-t", target, "-o", "json")
    wanted = list(broken) if isinstance(broken, tuple) else broken
    assert differing(answer) == {id_: wanted}
    assert answer.code == 0
    grades = {
        finding["verdict"] for finding in findings(answer) if finding.get("assumption") == id_
    }
    assert grades == {"ok" if assumptions()[id_].harmless else "warn"}


def test_the_profile_makes_the_emulator_what_was_measured(sgpu: Shell, serve: Serve) -> None:
    found: dict[str, Value] = {"read-limit": 5 << 20, "priorities": ("NORMAL",)}
    with serve(found):
        answer = sgpu.here("doctor", "-t", "prod", "--profile", "prod.yml")
    assert (answer.code, "profile: `prod.yml`" in answer.err) == (0, True)
    text = (sgpu.folder / "prod.yml").read_text()
    assert "# expected: 10485760\nread-limit: 5242880\n" in text
    assert sgpu.refusal("doctor", "-t", "prod", "--profile", "prod.yml") == (1, "exists")
    assert (sgpu.folder / "prod.yml").read_text() == text
    from sgpu_decl.doctor.profile_file import load_profile

    profile = load_profile(sgpu.folder / "prod.yml", "prod.yml")
    assert {id_: profile.found[id_] for id_ in found} == found


def test_a_profile_that_could_not_be_written_is_refused_before_the_workspace_is_asked(
    sgpu: Shell, serve: Serve
) -> None:
    with serve() as server:
        answer = sgpu.here("doctor", "-t", "prod", "--profile", "away/prod.yml", "-o", "json")
        asked = server.recording.all(server.tenants.of_token(server.token()).key)
    assert (answer.code, answer.json["error"]["code"]) == (1, "unwritable")
    assert "there is no folder `away`" in answer.json["error"]["message"]
    assert not asked


def test_a_report_of_a_target_that_is_not_there_names_those_that_are(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    answer = sgpu.exits(1, "doctor", "report", "-t", "prd")
    assert "there is no target `prd`" in answer.err
    assert "`prod`" in answer.err


def test_a_profile_in_its_place_keeps_what_a_probe_measured(sgpu: Shell, serve: Serve) -> None:
    place = sgpu.write(".sgpu/doctor/prod.yml", "node-credentials: true\nread-limit: 1\n")
    with serve():
        answer = sgpu.here("doctor", "-t", "prod")
    assert f"profile: `{place}`" in answer.err
    assert "node-credentials: true\n" in place.read_text()
    assert "read-limit: 10485760\n" in place.read_text()


@pytest.mark.parametrize("below", ["", "/new folder"])
def test_a_volume_is_checked_beside_the_folder_of_commands(
    sgpu: Shell, serve: Serve, below: str
) -> None:
    with serve() as server:
        text = (sgpu.folder / "run.yaml").read_text()
        sgpu.write("run.yaml", text.replace("default/files", f"default/files{below}"))
        answer = sgpu.here("doctor", "-t", "volume", "-o", "json")
        kept = ("doctor", ".sgpu", "new folder")
        left = [path for path in objects(server) if any(item in path for item in kept)]
    assert (answer.code, left) == (0, [])
    checks = [finding["check"] for finding in findings(answer)]
    assert checks.count("staging") == 2
    assert checks.count("deleting") == 2


def broken(pattern: str, status: int, code: str, message: str = "no") -> Fault:
    body = {"error_code": code, "message": message}
    return Fault(pattern=pattern, effect=Effect.STATUS, times=0, status_code=status, body={**body})


@pytest.mark.parametrize(
    ("pattern", "check"),
    [
        ("GET /api/2.0/preview/scim/v2/Me", "login"),
        ("POST /api/2.0/workspace/mkdirs", "staging"),
        ("POST /api/2.0/workspace/import*", "staging"),
        ("POST /api/2.0/workspace/delete", "staging"),
        ("GET /api/2.0/workspace/export", "staging"),
    ],
)
def test_what_is_forbidden_is_a_finding(
    sgpu: Shell, serve: Serve, pattern: str, check: str
) -> None:
    with serve() as server:
        server.faults.add(broken(pattern, 403, "PERMISSION_DENIED"))
        server.faults.add(broken("POST /api/2.0/workspace-files/*", 403, "PERMISSION_DENIED"))
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    assert (answer.code, answer.json["error"]["code"]) == (1, "checks_failed")
    failed = [finding for finding in findings(answer) if finding["verdict"] == "fail"]
    assert {item["check"] for item in failed} == {check}
    assert all(item["hint"] for item in failed)


def test_services_that_are_forbidden_are_warnings(sgpu: Shell, serve: Serve) -> None:
    with serve() as server:
        for path in ("/api/2.0/serverless-policies", "/api/2.0/secrets/*"):
            server.faults.add(broken(f"GET {path}", 403, "PERMISSION_DENIED"))
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    assert answer.code == 0
    warned = {finding["check"] for finding in findings(answer) if finding["verdict"] == "warn"}
    assert warned == {"policies", "secrets"}
    assert differing(answer) == {}


def test_a_token_that_is_not_known_is_a_finding(sgpu: Shell, serve: Serve) -> None:
    with serve({"wrong-token": 401}):
        sgpu.environ["DATABRICKS_TOKEN"] = "dapi-nobody"
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    [failed] = findings(answer)
    assert (failed["check"], failed["verdict"]) == ("login", "fail")
    assert "log in again" in failed["hint"]


@pytest.mark.expensive
def test_a_workspace_that_cannot_be_reached_is_a_finding(sgpu: Shell, serve: Serve) -> None:
    with serve():
        pass
    answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    [failed] = findings(answer)
    assert (failed["check"], failed["verdict"], answer.code) == ("login", "fail", 1)


def test_a_target_that_names_no_workspace_is_a_finding(sgpu: Shell, serve: Serve) -> None:
    with serve():
        del sgpu.environ["DATABRICKS_HOST"]
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    [failed] = findings(answer)
    assert (failed["check"], failed["verdict"], answer.code) == ("login", "fail", 1)
    assert "databricks auth login" in failed["hint"]


@pytest.mark.expensive
def test_a_workspace_that_falls_silent_is_given_up(
    sgpu: Shell, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        workspace_checks, "_BRIEF", replace(workspace_checks._BRIEF, silence=4.0)
    )  # of 10 s
    with serve() as server:
        pattern = "POST /api/2.0/ai-training/config:validate"
        server.faults.add(Fault(pattern=pattern, effect=Effect.DELAY, seconds=60, times=0))
        began = time.monotonic()
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
        took = time.monotonic() - began
        [failed] = [finding for finding in findings(answer) if finding["verdict"] == "fail"]
        left = [path for path in objects(server) if "doctor" in path]
    assert failed["check"] == "runs"
    assert took < 60  # the first answer did not come
    assert left == []
    assert "read-limit" in {finding["check"] for finding in findings(answer)}


@pytest.mark.expensive
def test_a_slow_login_is_a_warning(
    sgpu: Shell, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_checks, "PATIENCE", 0.5)  # of 7 s
    with serve() as server:
        pattern = "GET /api/2.0/preview/scim/v2/Me"
        server.faults.add(Fault(pattern=pattern, effect=Effect.DELAY, seconds=0.6))
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    warned = [finding["check"] for finding in findings(answer) if finding["verdict"] == "warn"]
    assert (answer.code, warned) == (0, ["login"])


@pytest.mark.expensive
def test_what_the_time_of_a_check_does_not_suffice_for_is_said(
    sgpu: Shell, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_checks, "_LIMIT", 6.0)  # of 30 s
    with serve() as server:
        server.faults.add(Fault(pattern="*", effect=Effect.DELAY, seconds=0.8, times=0))
        began = time.monotonic()
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
        took = time.monotonic() - began
    late = [
        finding["check"]
        for finding in findings(answer)
        if "not everything was measured" in finding["text"]
    ]
    assert "staging" in late
    assert took < 60


def test_clocks_that_differ_are_said(sgpu: Shell, serve: Serve) -> None:
    with serve(), ahead(3600):
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    [clock] = [finding for finding in findings(answer) if finding["check"] == "clock"]
    assert clock["verdict"] == "warn"
    assert re.search(r"3\d{3} s ahead of", clock["text"])


def test_a_target_of_this_machine_is_checked_as_this_machine(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN.replace("backend: databricks}", "gpus: 2}"))
    answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    assert "interpreter" in {finding["check"] for finding in findings(answer)}
    assert not (sgpu.folder / ".sgpu" / "doctor" / "prod.yml").exists()


def test_a_backend_that_has_nothing_to_measure_says_so(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN.replace("backend: databricks}", "backend: ray}"))
    answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
    [failed] = findings(answer)
    assert (failed["check"], failed["verdict"], answer.code) == ("backend", "fail", 1)
    assert "`ray`" in failed["text"]


def test_profile_without_a_platform_is_refused(sgpu: Shell) -> None:
    assert sgpu.refusal("doctor", "--profile", "x.yml") == (64, "usage")


def test_a_file_without_targets_is_checked_by_its_platform(sgpu: Shell, serve: Serve) -> None:
    with serve():
        sgpu.write("run.yaml", RUN.partition("targets")[0] + "backend: databricks\n")
        answer = sgpu.here("doctor", "--platform", "-o", "json")
        report = sgpu.here("doctor", "report")
    assert "login" in {finding["check"] for finding in findings(answer)}
    assert "read-limit" in report.out


def test_what_a_killed_check_left_is_deleted_later(sgpu: Shell, serve: Serve) -> None:
    with serve() as server:
        tenant = server.tenants.of_token(server.token())
        staging = tenant.tree("Workspace") / tenant.home.lstrip("/") / ".sgpu"
        now = int(time.time())
        old, fresh = (staging / f"doctor-{now - age}-0123abcd" for age in (7200, 60))
        for folder in (old, fresh):
            folder.mkdir(parents=True)
            (folder / "form").write_text("left")
        sgpu.done("doctor", "-t", "prod")
        assert (old.exists(), fresh.exists()) == (False, True)


def test_options_before_report_are_not_ignored(sgpu: Shell) -> None:
    for options in (("-t", "prod"), ("--project", "."), ("-o", "json")):
        answer = sgpu.exits(64, "doctor", *options, "report")
        assert "follow its name" in answer.out + answer.err


@pytest.mark.expensive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_removes_what_was_written(
    sgpu: Shell, serve: Serve, number: signal.Signals
) -> None:
    with serve() as server:
        pattern = "GET /api/2.0/workspace/export"
        server.faults.add(Fault(pattern=pattern, effect=Effect.DELAY, seconds=5))
        process = sgpu.start("doctor", "-t", "prod")
        with process:
            for line in process.stdout:
                if "empty-raw-upload" in line:
                    break
            assert any("doctor-" in path for path in objects(server))
            process.send_signal(number)
            _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, err
        assert not [path for path in objects(server) if "doctor" in path or ".sgpu" in path]


def test_a_report_has_no_names(sgpu: Shell, serve: Serve) -> None:
    """Names, hosts, ids and tokens are planted wherever a workspace can say something."""
    secret = "acme-rocket-7"
    offers = Offers(
        accelerators=("GPU_1xA10", f"GPU_{secret}"),
        capacities=(Capacity(id=secret, accelerator_type="GPU_1xA10", accelerator_count=8),),
        policies=(("0f0f0f0f-1111-2222-3333-444444444444", secret),),
    )
    found: dict[str, Value] = {
        "unknown-api": f"{secret.upper()}_NOT_FOUND", "priorities": ("NORMAL",),
        "read-refusal": f"CODE_{secret}", "read-limit": 1234567,
    }  # fmt: skip
    with serve(found, offers=offers) as server:
        message = (
            f"{secret} at https://adb-7405606.azuredatabricks.net for ada@example.org dapi1234"
        )
        for pattern in ("POST /api/2.0/workspace/delete", "GET /api/2.0/secrets/*"):
            server.faults.add(broken(pattern, 403, "PERMISSION_DENIED", message))
        checked = sgpu.here("doctor", "-t", "prod")
        report = sgpu.here("doctor", "report", "-t", "prod")
        host, token, user = server.url, server.token(), objects(server)
    assert secret in checked.out + checked.err
    assert report.code == 0
    planted = [
        secret, secret.upper(), "adb-", "azuredatabricks", "ada@", "example", "dapi", token,
        host.partition("://")[2], "127.0.0.1", "http", "/Workspace", "/tmp", str(sgpu.folder),
        "0f0f0f0f", "prod", "user-",
    ]  # fmt: skip
    assert user
    assert not [text for text in planted if text in report.out]
    assert "read-limit: expected 10485760, found 1234567, differs" in report.out
    assert "unknown-api: expected ENDPOINT_NOT_FOUND, found another text, differs" in report.out
    assert "found GPU_1xA10 and 1 more, differs" in report.out
    assert report.out.splitlines()[2].startswith("fail  staging")


def test_a_report_of_nothing_says_what_to_do(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    assert "sgpu doctor -t TARGET" in sgpu.exits(1, "doctor", "report", "-t", "prod").err


def test_the_answers_of_a_check_are_not_those_that_plans_remember(
    sgpu: Shell, serve: Serve
) -> None:
    with serve() as server:
        sgpu.here("plan", "-t", "prod")
        before = len(server.recording.as_json(server.tenants.of_token(server.token()).key))
        answer = sgpu.here("doctor", "-t", "prod", "-o", "json")
        requests = server.recording.as_json(server.tenants.of_token(server.token()).key)[before:]
    assert json.dumps(requests).count("compute-options") == 1
    assert answer.code == 0
