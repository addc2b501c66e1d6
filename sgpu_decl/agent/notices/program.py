"""The program that tells of the end of an attempt: `agent tell FOLDER`.

It runs the command and asks the webhook at the same time, and notes what became of each: in the
events (`told`) and in `notices.json`. It ends by itself after `notice_process.LONGEST` seconds, and
nothing that happens here changes the attempt.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.relocation import place
from sgpu_decl.agent.notices.notice_body import notice_body
from sgpu_decl.agent.notices.notice_process import LONGEST, NOTICES
from sgpu_decl.agent.ranks.rank_start import argv_of, first_line_error
from sgpu_decl.agent.system.processes import until_one_ends
from sgpu_decl.agent.system.secrets import (
    WEBHOOK_KEY,
    WEBHOOK_URL,
    Redactor,
    receive_variables,
    secret_names,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence
    from typing import Any

    Way = Callable[[], tuple[bool, int, str]]

_TIME = 60.0  # seconds for all of it
_ANSWER = 10.0  # seconds for one answer of a server
_PAUSES = (0.5, 2.0, 8.0, 20.0)  # seconds between two requests
_GRACE = 2.0  # seconds between TERM and KILL of a command whose time is over
_AGAIN = frozenset({408, 425, 429})  # and all from 500 on
_KINDS = {"succeeded": "success", "cancelled": "cancelled"}  # else `failure`


def main(arguments: Sequence[str]) -> int:
    """Tell of the end of the attempt in a folder; return 0."""
    signal.alarm(int(LONGEST))  # its default action ends this process, whatever hangs
    receive_variables()
    folder = arguments[1]
    spec = attempt_files.read_json(folder, attempt_files.SPEC)
    outcome = attempt_files.read_json(folder, attempt_files.OUTCOME)
    if spec is None or outcome is None:
        attempt_files.say("nobody was told of the end: the attempt folder is damaged")
        return 0
    placed = os.path.isabs(spec["code_dir"])
    spec = {**spec, "run_dir": folder} if placed else place(spec, folder)
    hide = Redactor(os.environ[name] for name in secret_names(spec) if name in os.environ)
    send = webhook_notice(spec, outcome, os.environ, hide)
    ways: dict[str, Way] = {} if send is None else {"webhook": send}
    if spec["on_finish"]["entry"] is not None:
        body = attempt_files.encode(notice_body(spec, outcome, hide))
        ways["command"] = lambda: _command(spec, outcome, body)
    _tell(folder, ways, hide)
    return 0


def webhook_notice(
    spec: Mapping[str, Any],
    outcome: Mapping[str, Any],
    variables: MutableMapping[str, str],
    hide: Callable[[str], str],
) -> Way | None:
    """Return what sends the end of an attempt to its webhook; None if that does not want it. The
    secrets of the webhook are taken out of `variables`."""
    url, key = (variables.pop(name, None) for name in (WEBHOOK_URL, WEBHOOK_KEY))
    request = spec.get("on_finish") or {}
    hook = request.get("webhook")
    if hook is None or _KINDS.get(outcome["state"], "failure") not in hook["on"]:
        return None
    url, signed = hook["url"] or url, WEBHOOK_KEY in request["secrets"]
    if url is None or (signed and key is None):
        return lambda: (False, 0, "a secret of the webhook has no value here")
    body = attempt_files.encode(notice_body(spec, outcome, hide))
    delivery = hashlib.sha256(f"{spec['token']} {outcome.get('ended_at')}".encode()).hexdigest()
    return lambda: _webhook(url, key if signed else None, body, delivery[:32])


def _tell(folder: str, ways: Mapping[str, Way], hide: Callable[[str], str]) -> None:
    """Go all ways at once, and note of each whether it succeeded, how often it was tried, and how
    it ended."""
    ended: queue.Queue[tuple[str, bool, int, str]] = queue.Queue()
    events = attempt_files.EventLog(folder)
    notices: list[dict[str, Any]] = []
    deadline = time.monotonic() + _TIME + 3 * _GRACE
    for name, go in ways.items():
        run = lambda name=name, go=go: ended.put((name, *go()))  # noqa: E731
        threading.Thread(target=run, daemon=True).start()
    while len(notices) < len(ways):
        try:
            name, ok, tries, summary = ended.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            (name, *_) = ways.keys() - {one["way"] for one in notices}
            ok, tries, summary = False, 1, f"no end within {_TIME:g} s"
        summary = hide(summary)
        events.append("told", way=name, ok=ok, tries=tries, summary=summary)
        attempt_files.say(f"on_finish.{name}: {summary}")
        one = {"way": name, "ok": ok, "tries": tries, "summary": summary}
        notices.append({**one, "at": attempt_files.stamp()})
        try:
            attempt_files.write_atomic(
                folder, NOTICES, attempt_files.encode({"v": 1, "notices": notices})
            )
        except OSError as error:
            attempt_files.say(f"`{NOTICES}` cannot be written: {error.strerror}")


def _command(
    spec: Mapping[str, Any], outcome: Mapping[str, Any], body: bytes
) -> tuple[bool, int, str]:
    """Run the command; return whether it succeeded, how often it was tried, and how it ended."""
    argv = argv_of({"entry": spec["on_finish"]["entry"]})
    folder = spec["code_dir"] if os.path.isdir(spec["code_dir"]) else spec["run_dir"]
    try:
        child = subprocess.Popen(
            argv, cwd=folder, env=_environment(spec, outcome), stdin=subprocess.PIPE,
            start_new_session=True, umask=0o022,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no command"
        why = first_line_error(os.path.join(folder, argv[0])) if "/" in argv[0] else ""
        return False, 1, f"`{argv[0]}` cannot be started: {reason}{why}"
    try:
        child.communicate(body, timeout=_TIME)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGTERM)  # not reaped yet, so the number is still its own
        until_one_ends([child.pid], _GRACE)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return False, 1, f"it was stopped after {_TIME:g} s"
    code = child.returncode
    if code < 0:
        return False, 1, f"it was ended by {signal.Signals(-code).name}"
    return code == 0, 1, f"it ended with exit code {code}"


def _environment(spec: Mapping[str, Any], outcome: Mapping[str, Any]) -> dict[str, str]:
    own = {
        "SGPU_ADDRESS": spec["address"],
        "SGPU_RUN_NAME": spec["name"],
        "SGPU_ATTEMPT": spec["attempt"],
        "SGPU_RUN_DIR": spec["run_dir"],
        "SGPU_OUTPUT_DIR": spec["output_dir"],
        "SGPU_STATE": outcome["state"],
        "SGPU_CLASS": outcome.get("class") or "",
        "SGPU_EXIT_CODE": outcome.get("exit_code"),
        **({"SGPU_PROJECT_DIR": spec["project_dir"]} if spec["project_dir"] else {}),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SGPU_")}
    both = {**inherited, **spec["env"], **own}
    return {name: str(value) for name, value in both.items()}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would go on with a GET, and without the body."""

    def redirect_request(self, *_given: Any) -> None:
        return None


def _webhook(url: str, key: str | None, body: bytes, delivery: str) -> tuple[bool, int, str]:
    """Send the body until a server takes it; return whether it did, how often it was asked, and
    what came of it. No text has the address, which may be a secret."""
    if not url.startswith(("https://", "http://")):
        return False, 0, "the secret of `on_finish.webhook.url` is no http(s) address"
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "sgpu",  # some servers refuse that of urllib
        "X-Sgpu-Delivery": delivery,
    }
    if key is not None:
        # As https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries has it
        signature = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
        headers["X-Sgpu-Signature-256"] = f"sha256={signature}"
    deadline = time.monotonic() + _TIME
    pauses = iter(_PAUSES)
    tries = 0
    while True:
        tries += 1
        ok, again, words, after = _ask(url, headers, body)
        pause = max(next(pauses, LONGEST), after)
        if ok or not again or time.monotonic() + pause > deadline:
            return ok, tries, words
        time.sleep(pause)


def _ask(url: str, headers: Mapping[str, str], body: bytes) -> tuple[bool, bool, str, float]:
    """Send it once. Return whether it was taken, whether another try may help, what came of it, and
    for how many seconds the server wants to be left alone."""
    try:
        request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")  # noqa: S310  the user's address
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_ANSWER) as answer:
            return True, False, f"the server answered {answer.status}", 0.0
    except urllib.error.HTTPError as error:
        # Slack names the seconds: https://docs.slack.dev/apis/web-api/rate-limits
        after = error.headers.get("Retry-After") or ""
        again = error.code in _AGAIN or error.code >= 500
        words = f"the server answered {error.code}"
        error.close()
        return False, again, words, float(after) if after.isdecimal() else 0.0
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            return False, True, f"the server did not answer within {_ANSWER:g} s", 0.0
        words = getattr(reason, "strerror", None) or type(reason).__name__
        return False, True, f"the server cannot be reached: {words}", 0.0
    except (ValueError, http.client.HTTPException) as error:  # their texts may have the address
        refused = isinstance(error, ValueError | http.client.InvalidURL)
        words = "its address makes no request" if refused else "the server speaks no HTTP"
        return False, not refused, words, 0.0
