"""`on_finish`: what is an address, what is a secret, and what is neither."""

import json
from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from tests.reading import read

RUN = {"name": "train", "gpus": 1, "type": "CPU", "command": ["true"]}


def loaded(on_finish: Any) -> tuple[Any, tuple[Diagnostic, ...]]:
    return read(json.dumps({**RUN, "on_finish": on_finish}), "run.yaml")


@pytest.mark.parametrize(
    "url",
    ["https://example.com/hook", "http://localhost:8000/", "http://127.0.0.1/x", "http://[::1]/x",
     "env:HOOK_URL", "databricks:ml/url", "file:/run/secrets/url"],
)  # fmt: skip
def test_an_address_and_a_reference_are_taken(url: str) -> None:
    run, found = loaded({"webhook": url})
    assert found == ()
    assert run.runs[0].spec.fields["on_finish"] == {"webhook": {"url": url}}


@pytest.mark.parametrize(
    ("on_finish", "code", "words"),
    [
        ({"webhook": "example.com/hook"}, "bad_webhook", "`on_finish.webhook"),
        ({"webhook": "ftp://example.com/hook"}, "bad_webhook", "neither an address"),
        ({"webhook": "hooks.slack.com/services"}, "bad_webhook", "neither an address"),
        ({"webhook": {"url": "https://"}}, "bad_webhook", "neither an address"),
        ({"webhook": "https://hooks.slack.com/services/T0/B0/xyz"}, "literal_secret", "lets"),
        ({"webhook": {"url": "https://a.b/c", "secret": "abc"}}, "bad_secret", "no"),
        ({"webhook": {"url": "https://a.b/c", "on": []}}, "empty_value", "`on_finish.webhook.on`"),
        ({"webhook": {"url": "https://a.b/c", "on": ["error"]}}, "unknown_value", "`success`"),
        ({"command": ""}, "empty_command", "`on_finish.command`"),
    ],
)  # fmt: skip
def test_what_is_neither_is_refused_where_it_stands(on_finish: Any, code: str, words: str) -> None:
    _, (found,) = loaded(on_finish)
    assert found.code == code
    assert words in found.summary or code == "bad_secret"
    assert found.place is not None
    assert found.place.column > 1
    assert "xyz" not in found.summary + (found.hint or "")


def test_a_server_on_the_way_to_which_others_can_read_is_warned_of() -> None:
    run, (found,) = loaded({"webhook": "http://example.com/hook"})
    assert run is not None
    assert (found.code, str(found.severity)) == ("webhook_not_encrypted", "warning")
    assert "`example.com`" in found.summary
    assert found.place is not None


@pytest.mark.parametrize("key", ["webhook", "command"])
def test_a_job_sends_mail_alone(key: str) -> None:
    text = (
        "project: {name: p}\n"
        "runs: {train: {gpus: 1, type: A10, command: ['true'], backend: databricks}}\n"
        f"jobs: {{nightly: {{run: train, on_finish: {{{key}: 'https://a.b/c'}}}}}}\n"
    )
    _, found = read(text, "sgpu.yml")
    (one,) = [item for item in found if item.code == "unknown_key"]
    assert one.place is not None
    assert one.place.line == 3
    assert "its run" in str(one.hint)
