"""Who is told of the end of a run on nodes of a platform: once, by node 0."""

import hashlib
import hmac
from typing import Any

from sgpu_decl.agent.system.secrets import WEBHOOK_KEY, WEBHOOK_URL
from sgpu_decl.testing.file_search import files_with
from tests.webhook_server import WebhookServer

KEY = "a-key-that-nobody-may-see"
LOSES = """
import os, signal
def main():
    assert not [name for name in os.environ if "WEBHOOK" in name]
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        print("up", flush=True)
        signal.pause()
"""


def test_node_0_tells_by_webhook_and_command(make_hosted: Any, hook: WebhookServer) -> None:
    references = {"url": "databricks:ml/url", "secret": "databricks:ml/key"}
    told = {"webhook": references, "command": "basename $PWD; echo $SGPU_STATE $SGPU_CLASS"}
    hosted = make_hosted(
        "def main(): raise ValueError('a mistake')", nodes=2, config={"on_finish": told}
    )

    assert hosted.run(**{WEBHOOK_URL: hook.url, WEBHOOK_KEY: KEY}) == [1, 1]

    ((headers, body),) = hook.requests
    signature = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-Sgpu-Signature-256"] == f"sha256={signature}"
    assert hook.bodies[0]["first_cause"]["summary"] == "ValueError: a mistake"
    notices = {one["way"]: one["summary"] for one in hosted.outcome()["notices"]}
    assert notices == {
        "webhook": "the server answered 200", "command": "it ended with exit code 0",
    }  # fmt: skip
    assert "notices" not in hosted.outcome(node=1)
    lines = hosted.log().splitlines()
    assert {"code", "failed exception", "sgpu: on_finish.webhook: the server answered 200"} <= {
        *lines
    }
    for value in (KEY, "the-secret-path"):
        assert value not in hosted.log()
        assert files_with(value.encode(), hosted.launch) == []


def test_an_attempt_that_the_platform_starts_again_does_not_tell(
    make_hosted: Any, hook: WebhookServer
) -> None:
    config = {"on_finish": {"webhook": hook.url}, "retry": {"max": 1}}
    hosted = make_hosted(LOSES, nodes=2, config=config).start()
    hosted.until(lambda: "[rank 0] up" in hosted.log(0) and "[rank 1] up" in hosted.log(1))
    hosted.lose(1)
    hosted.started[0].wait()
    assert hosted.outcome()["class"] == "node_lost"
    assert hook.requests == []

    assert hosted.run() == [0, 0]

    assert [body["state"] for body in hook.bodies] == ["succeeded"]


def test_a_node_that_is_asked_to_stop_tells(make_hosted: Any, hook: WebhookServer) -> None:
    hosted = make_hosted(LOSES, config={"on_finish": {"webhook": hook.url}}).start()
    hosted.until(lambda: "up" in hosted.log())
    hosted.started[0].terminate()
    hosted.wait()
    assert [body["state"] for body in hook.bodies] == ["cancelled"]
