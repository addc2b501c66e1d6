"""What is told of the end of an attempt: the JSON that a webhook gets, and a command on its stdin.

`text` is for Slack and Mattermost, `content` and `allowed_mentions` are for Discord; other fields
are for programs. Sources:
https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
https://developers.mattermost.com/integrate/webhooks/incoming/
https://discord.com/developers/docs/resources/webhook#execute-webhook
"""

from __future__ import annotations

from datetime import datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_SUMMARY = 1_000  # characters: Discord shows 2,000 at most


def notice_body(
    spec: Mapping[str, Any], outcome: Mapping[str, Any], hide: Callable[[str], str]
) -> dict[str, Any]:
    """Return it for an attempt that has ended. `hide` removes the values of secrets from a text."""
    cause = outcome.get("first_cause") or {}
    summary = hide(str(cause.get("summary") or ""))[:_SUMMARY]
    seconds = _seconds(outcome.get("started_at"), outcome.get("ended_at"))
    tracked = outcome.get("mlflow") or {}
    url = mlflow_page(tracked)
    line = f"{spec['name']}#{spec['attempt']} {outcome['state']}"
    line += f" after {_length(seconds)}" if seconds is not None else ""
    if summary:
        rank = cause.get("rank")
        line += f": {summary}" if rank is None else f": rank {rank}: {summary}"
    words = f"{line}\n{url}" if url else line
    return {
        "text": _escaped(words),
        "content": words,
        "allowed_mentions": {"parse": []},
        "v": 1,
        "run": spec["name"],
        "address": spec["address"],
        "attempt": spec["attempt"],
        "state": outcome["state"],
        "class": outcome.get("class"),
        "exit_code": outcome.get("exit_code"),
        "first_cause": {
            **{name: cause.get(name) for name in ("rank", "class", "kind")},
            "summary": summary,
        }
        if cause
        else None,
        "restarts": outcome.get("restart") or 0,
        "started_at": outcome.get("started_at"),
        "ended_at": outcome.get("ended_at"),
        "seconds": seconds,
        "mlflow_run_id": tracked.get("run_id"),
        "mlflow_url": url,
    }


def _escaped(text: str) -> str:
    """Text that says what it says: Slack reads `<!channel>` as a call to all.
    https://docs.slack.dev/messaging/formatting-message-text/#escaping"""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _seconds(started: str | None, ended: str | None) -> float | None:
    if not started or not ended:
        return None
    # Python 3.10 reads no `Z`.
    first, last = (datetime.fromisoformat(f"{text[:-1]}+00:00") for text in (started, ended))
    return max(0.0, round((last - first).total_seconds(), 3))


def _length(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def mlflow_page(run: Mapping[str, Any]) -> str | None:
    """Return the page of an MLflow run if its store has pages, as MLflow itself prints it
    (`_log_url` of `mlflow/tracking/_tracking_service/client.py`)."""
    run_id, store = run.get("run_id"), str(run.get("tracking_uri") or "")
    if not run_id or "@" in store or not store.startswith(("https://", "http://")):
        return None
    return f"{store.rstrip('/')}/#/experiments/{run.get('experiment_id')}/runs/{run_id}"
