"""`--notify` and `on_finish`, as a user meets them."""

import json
import os
from pathlib import Path

import pytest

from sgpu_decl.cli.desktop_notice import desktop_command, terminal_sequence
from tests.cli.conftest import AtTerminal, Shell
from tests.support import until
from tests.webhook_server import WebhookServer

RUN = """\
name: train
gpus: 1
type: CPU
mlflow: {enabled: false}
command: [sh, -c, 'exit 3']
"""


@pytest.fixture
def program(sgpu: Shell) -> Path:
    """`notify-send`, which writes down its words."""
    folder = sgpu.folder.parent / "bin"
    folder.mkdir()
    script = folder / "notify-send"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/words\n')
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize("command", ["apply", "wait"])
def test_the_end_of_a_run_rings_the_terminal(
    sgpu: Shell, at_terminal: AtTerminal, command: str
) -> None:
    sgpu.write("run.yaml", RUN)
    words = ("apply", "-y", "--notify")
    if command == "wait":
        sgpu.ran("apply", "-y", "--detach")
        words = ("wait", "train", "--notify")
    with at_terminal(*words, environ={"SSH_CONNECTION": "a b c d"}) as terminal:
        assert terminal.ended() == 5
    assert "\a\x1b]9;train#1 failed: " in terminal.all
    assert terminal.all.count("\x1b]9;") == 1


def test_the_desktop_shows_the_end(sgpu: Shell, at_terminal: AtTerminal, program: Path) -> None:
    sgpu.write("run.yaml", RUN.replace("exit 3", "exit 0"))
    environ = {"DISPLAY": ":7", "PATH": f"{program}:{os.environ['PATH']}"}
    with at_terminal("apply", "-y", "--notify", environ=environ) as terminal:
        assert terminal.ended() == 0
    assert "\a" in terminal.all
    assert "\x1b]9;" not in terminal.all
    assert (program / "words").read_text() == "--app-name=sgpu\n--\ntrain#1 succeeded\n\n"


def test_without_a_terminal_and_a_desktop_nothing_happens(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    answer = sgpu("apply", "-y", "--notify")
    assert answer.code == 5
    assert "\a" not in answer.out + answer.err


def test_nobody_is_told_of_runs_that_are_left(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    answer = sgpu.exits(64, "apply", "-y", "--detach", "--notify")
    assert "leave out `--notify`" in answer.err


def test_words_of_a_run_cannot_leave_the_notification() -> None:
    assert desktop_command("a", "<b>", {"DISPLAY": ":0"}, "linux") == [
        "notify-send", "--app-name=sgpu", "--", "a", "&lt;b&gt;",
    ]  # fmt: skip
    assert desktop_command("a", "b", {"DISPLAY": ":0", "SSH_CONNECTION": "x"}, "linux") is None
    assert (desktop_command("a", "b", {}, "darwin") or [])[-2:] == ["a", "b"]
    assert terminal_sequence("a;b", "c", {"TERM": "foot"}) == "\x1b]777;notify;a,b;c\a"
    assert terminal_sequence("a", "c", {"TERM": "xterm-kitty"}) == "\x1b]9;a: c\a"
    assert terminal_sequence("a", "c", {"TERM": "linux"}) == ""


def test_show_says_who_was_told_and_no_file_has_the_address(
    sgpu: Shell, hook: WebhookServer
) -> None:
    on_finish = "on_finish: {webhook: {url: env:HOOK_URL, secret: env:HOOK_KEY}}\n"
    sgpu.write("run.yaml", RUN + on_finish)
    (check,) = sgpu.checks(id="secret_missing")[:1]
    assert "`on_finish.webhook." in check["summary"]
    sgpu.environ.update(HOOK_URL=hook.url, HOOK_KEY="a-key-that-nobody-may-see")
    (change,) = sgpu.data("plan")["changes"]
    fields = {field["path"]: field["after"] for field in change["fields"]}
    assert fields["on_finish.webhook.url"] == {"secret": "env:HOOK_URL"}
    assert fields["on_finish.webhook.secret"] == {"secret": "env:HOOK_KEY"}
    sgpu.exits(5, "apply", "-y")
    attempt = sgpu.folder / ".sgpu/default/runs/train/1"
    until(lambda: (attempt / "notices.json").exists())

    shown = sgpu.data("show", "train")

    (notice,) = shown["notices"]
    assert {**notice, "at": ""} == {
        "way": "webhook", "ok": True, "tries": 1, "summary": "the server answered 200", "at": "",
    }  # fmt: skip
    assert "webhook: the server answered 200" in sgpu.done("show", "train").out
    assert [body["state"] for body in hook.bodies] == ["failed"]
    for path in sgpu.folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"the-secret-path" not in data, path
            assert b"a-key-that" not in data, path
    json.loads((attempt / "notices.json").read_text())


def test_a_launch_without_the_secret_is_refused(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + "on_finish: {webhook: env:HOOK_URL}\n")
    answer = sgpu.exits(1, "apply", "-y")
    assert "secret `on_finish.webhook.url` refers to `env:HOOK_URL`, which is not set" in answer.err
    assert "run `export HOOK_URL=…` first, or point `on_finish.webhook.url` elsewhere" in answer.err


def test_mail_is_refused_where_nobody_sends_it(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + "on_finish: {command: 'true', failure: [a@b.c]}\n")
    (check,) = sgpu.checks(id="unsupported_field")
    assert check["summary"] == "the backend `local` has no `on_finish.failure`"
    assert check["place"]["line"] == 6
