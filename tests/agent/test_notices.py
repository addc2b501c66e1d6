"""Who is told of the end of an attempt: real servers, commands and kills."""

import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.notices.notice_body import notice_body
from sgpu_decl.agent.notices.notice_process import read_notices
from sgpu_decl.agent.system.locks import held
from sgpu_decl.agent.system.processes import command_line, related, variables
from sgpu_decl.agent.system.secrets import WEBHOOK_KEY, WEBHOOK_URL
from sgpu_decl.rendering.spec import Entry, OnFinishSpec, WebhookSpec
from sgpu_decl.testing.file_search import files_with
from tests.webhook_server import WebhookServer

Make = Callable[..., Any]
KEY = "a-key-that-nobody-may-see"
BLOCK = """
import os, signal
open(os.environ["SGPU_OUTPUT_DIR"] + "/up" + os.environ["RANK"], "w").close()
while True: signal.pause()
"""


def secret_hook(*on: str) -> OnFinishSpec:
    """A webhook whose address and key are secrets."""
    references = {WEBHOOK_URL: "env:HOOK_URL", WEBHOOK_KEY: "env:HOOK_KEY"}
    kinds = on or ("success", "failure", "cancelled")
    return OnFinishSpec(webhook=WebhookSpec(on=kinds), secrets=references)


def plain_hook(hook: WebhookServer, *on: str) -> OnFinishSpec:
    return OnFinishSpec(
        webhook=WebhookSpec(url=hook.url, on=on or ("success", "failure", "cancelled"))
    )


def shell(text: str) -> OnFinishSpec:
    return OnFinishSpec(entry=Entry(kind="shell", shell=text))


def told(attempt: Any) -> list[dict[str, Any]]:
    """What is known once the guardian has ended, and nothing of the attempt is left."""
    attempt.until(lambda: not held(str(attempt.folder / "guardian.lock")))
    attempt.check()
    notices = read_notices(str(attempt.folder))
    events = [
        {name: one[name] for name in ("way", "ok", "tries", "summary")}
        for one in attempt.events("told")
    ]
    assert [{**one, "at": one["at"]} for one in notices] == [
        {**event, "at": one["at"]} for event, one in zip(events, notices, strict=True)
    ]
    return notices


def test_a_webhook_gets_a_body_with_a_right_signature_and_its_secrets_are_in_no_file(
    make_attempt: Make, hook: WebhookServer
) -> None:
    source = (
        "import os\nassert not [n for n in os.environ if 'WEBHOOK' in n]\nraise ValueError('<x>')"
    )
    attempt = make_attempt(source, on_finish=secret_hook())
    attempt.launch({WEBHOOK_URL: hook.url, WEBHOOK_KEY: KEY})
    assert attempt.wait()["state"] == "failed"

    (notice,) = told(attempt)

    assert (notice["way"], notice["ok"], notice["tries"]) == ("webhook", True, 1)
    assert notice["summary"] == "the server answered 200"
    ((headers, body),) = hook.requests
    expected = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-Sgpu-Signature-256"] == f"sha256={expected}"
    assert headers["Content-Type"] == "application/json"
    sent = json.loads(body)
    assert sent["text"].startswith("test#1 failed after ")
    assert sent["text"].endswith(": rank 0: ValueError: &lt;x&gt;") or "rank 1" in sent["text"]
    assert "ValueError: <x>" in sent["content"]
    assert (sent["run"], sent["attempt"], sent["state"], sent["class"], sent["exit_code"]) == (
        "test", 1, "failed", "exception", 1,
    )  # fmt: skip
    assert sent["first_cause"]["summary"] == "ValueError: <x>"
    assert sent["seconds"] >= 0
    assert sent["allowed_mentions"] == {"parse": []}
    for value in (KEY, "the-secret-path"):
        assert files_with(value.encode(), attempt.folder) == []


def test_a_server_that_fails_twice_is_asked_again_with_the_same_delivery(
    make_attempt: Make, hook: WebhookServer
) -> None:
    hook.answers = [503, 429]
    attempt = make_attempt("", on_finish=plain_hook(hook)).launch()
    attempt.wait()

    (notice,) = told(attempt)

    assert (notice["ok"], notice["tries"]) == (True, 3)
    assert len({headers["X-Sgpu-Delivery"] for headers, _ in hook.requests}) == 1
    assert len({body for _, body in hook.requests}) == 1
    assert "X-Sgpu-Signature-256" not in hook.requests[0][0]


@pytest.mark.parametrize("code", [301, 404])
def test_an_answer_that_no_other_try_changes_ends_it(
    make_attempt: Make, hook: WebhookServer, code: int
) -> None:
    hook.answers = [code]
    attempt = make_attempt("", on_finish=plain_hook(hook)).launch()
    assert attempt.wait()["state"] == "succeeded"
    (notice,) = told(attempt)
    assert (notice["ok"], notice["tries"]) == (False, 1)
    assert notice["summary"] == f"the server answered {code}"


def test_a_server_that_does_not_answer_delays_nothing(
    make_attempt: Make, hook: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.speaks.clear()
    monkeypatch.setenv("HOOK_URL", hook.url)
    attempt = make_attempt("", on_finish=secret_hook())
    attempt.launch({WEBHOOK_URL: hook.url, WEBHOOK_KEY: KEY})
    status = attempt.wait()
    attempt.until(lambda: hook.requests)
    assert status["state"] == "succeeded"
    assert read_notices(str(attempt.folder)) == []
    assert held(str(attempt.folder / "supervisor.lock")) is False
    telling = related(attempt.guardian)
    assert b"\0tell\0" in command_line(telling[0])
    for pid in (attempt.guardian, *telling):
        assert "the-secret-path" not in str(variables(pid))
        assert b"the-secret-path" not in command_line(pid)
    hook.speaks.set()
    (notice,) = told(attempt)
    assert notice["ok"]


def test_only_the_ends_that_are_asked_for_are_sent(make_attempt: Make, hook: WebhookServer) -> None:
    attempt = make_attempt("", on_finish=plain_hook(hook, "failure")).launch()
    attempt.wait()
    assert told(attempt) == []
    assert hook.requests == []


def test_a_queued_attempt_that_is_cancelled_tells_too(
    make_queued: Make, hook: WebhookServer
) -> None:
    attempt, _ = make_queued("", on_finish=plain_hook(hook))
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"
    told(attempt)
    (sent,) = hook.bodies
    assert sent["text"] == sent["content"] == "test#1 cancelled"
    assert (sent["state"], sent["started_at"], sent["seconds"]) == ("cancelled", None, None)


def test_a_killed_supervisor_tells_once(make_attempt: Make, hook: WebhookServer) -> None:
    attempt = make_attempt(BLOCK, on_finish=plain_hook(hook)).launch().until_up()
    os.kill(attempt.supervisor, signal.SIGKILL)
    assert attempt.wait()["class"] == "supervisor_lost"
    attempt.until(lambda: not held(str(attempt.folder / "guardian.lock")))
    assert [body["class"] for body in hook.bodies] == ["supervisor_lost"]


def test_a_supervisor_without_its_guardian_tells_once(
    make_attempt: Make, hook: WebhookServer
) -> None:
    attempt = make_attempt(BLOCK, on_finish=plain_hook(hook)).launch().until_up()
    os.kill(attempt.guardian, signal.SIGKILL)
    request_cancel(attempt.folder)
    attempt.wait()
    attempt.until(lambda: read_notices(str(attempt.folder)))
    assert [body["state"] for body in hook.bodies] == ["cancelled"]


def test_a_command_finds_what_it_needs(make_attempt: Make) -> None:
    text = (
        'cat > "$SGPU_OUTPUT_DIR/body"; pwd; '
        'echo "$SGPU_RUN_NAME#$SGPU_ATTEMPT $SGPU_STATE $SGPU_CLASS. $LR $WORD"; '
        "! env | grep -e WEBHOOK -e ENVIRON_FD"
    )
    attempt = make_attempt(
        "raise SystemExit(3)", on_finish=shell(text), env={"LR": "0.1"},
        secrets={"WORD": "env:WORD"},
    )  # fmt: skip
    attempt.launch({"WORD": "abracadabra"}).wait()

    (notice,) = told(attempt)

    assert (notice["way"], notice["ok"]) == ("command", True), attempt.text("agent.log")
    assert notice["summary"] == "it ended with exit code 0"
    log = attempt.text("agent.log")
    assert f"{attempt.folder}/code\n" in log
    assert "test#1 failed exit_code. 0.1 abracadabra\n" in log
    assert json.loads(attempt.text("output/body"))["state"] == "failed"


@pytest.mark.parametrize(
    ("entry", "summary"),
    [
        (Entry(kind="shell", shell="exit 7"), "it ended with exit code 7"),
        (Entry(kind="shell", shell="kill -9 $$"), "it was ended by SIGKILL"),
        (Entry(kind="command", command=("./missing.sh",)),
         "`./missing.sh` cannot be started: No such file or directory"),
    ],
)  # fmt: skip
def test_a_command_that_fails_is_noted_and_changes_nothing(
    make_attempt: Make, entry: Entry, summary: str
) -> None:
    attempt = make_attempt("", on_finish=OnFinishSpec(entry=entry)).launch()
    assert attempt.wait()["state"] == "succeeded"
    (notice,) = told(attempt)
    assert (notice["ok"], notice["summary"]) == (False, summary)
    assert f"sgpu: on_finish.command: {summary}" in attempt.text("agent.log")


SHORT = """
import sys
from sgpu_decl.agent.notices import program
program._TIME, program._GRACE = 0.2, 0.1
program.main(["tell", sys.argv[1]])
"""


def test_a_command_that_hangs_is_ended_with_all_that_it_started(make_attempt: Make) -> None:
    text = "(trap '' TERM; exec sleep 600) & echo $! > $SGPU_OUTPUT_DIR/pid; wait"
    attempt = make_attempt("", on_finish=shell(text))
    outcome = {"v": 1, "state": "succeeded", "exit_code": 0, "started_at": None, "ended_at": None}
    (attempt.folder / "outcome.json").write_text(json.dumps(outcome))
    subprocess.run([sys.executable, "-c", SHORT, str(attempt.folder)], check=True)
    (notice,) = read_notices(str(attempt.folder))
    assert (notice["ok"], notice["summary"]) == (False, "it was stopped after 0.2 s")
    pid = int(attempt.text("output/pid"))
    attempt.until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or
                  not Path(f"/proc/{pid}/cmdline").read_bytes())  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[]", '{"notices": 1}', '{"notices": [{"way": 1}]}'])
def test_a_damaged_record_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "notices.json").write_text(text)
    assert read_notices(str(tmp_path)) == []


def test_the_body_of_a_tracked_attempt_names_its_page() -> None:
    spec = {"name": 'train["lr=0.1"]', "address": "run.train", "attempt": 3}
    run = {"run_id": "r", "experiment_id": "7", "tracking_uri": "https://mlflow.example/"}
    times = {"started_at": "2026-01-02T03:04:05.000Z", "ended_at": "2026-01-02T05:06:07.500Z"}
    cause = {"rank": 5, "class": "oom", "summary": "the key is 12345678"}
    body = notice_body(
        spec,
        {"state": "failed", "class": "oom", "mlflow": run, "first_cause": cause, **times},
        lambda text: text.replace("12345678", "***"),
    )
    assert body["text"] == (
        'train["lr=0.1"]#3 failed after 2 h 2 min: rank 5: the key is ***\n'
        "https://mlflow.example/#/experiments/7/runs/r"
    )
    assert body["seconds"] == 7322.5
    assert body["first_cause"]["summary"] == "the key is ***"
    local = {**run, "tracking_uri": "sqlite:////a/b.db"}
    body = notice_body(spec, {"state": "succeeded", "mlflow": local, **times}, str)
    assert (body["mlflow_run_id"], body["mlflow_url"], body["first_cause"]) == ("r", None, None)
