"""The webhook of a run on a workspace: its secrets are those of a scope."""

from databricks.sdk import WorkspaceClient

from sgpu_decl.testing.file_search import files_with
from tests.backends.databricks.bench import FAILS, DatabricksBench
from tests.webhook_server import WebhookServer

ON_FINISH = """\
on_finish:
  failure: [a@example.com]
  webhook: {url: 'databricks:ml/url', secret: 'databricks:ml/key'}
"""


def test_a_run_tells_its_webhook_once(bench: DatabricksBench, hook: WebhookServer) -> None:
    bench.code(FAILS)
    bench.declare(more=ON_FINISH)
    checks = bench.plan().checks
    (missing, _) = [check for check in checks if check.code == "secret_missing"]
    assert "`on_finish.webhook." in missing.summary
    assert missing.place is not None
    client = WorkspaceClient()
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "url", string_value=hook.url)
    client.secrets.put_secret("ml", "key", string_value="a-key-that-nobody-may-see")

    run = bench.run()

    assert [(body["run"], body["state"]) for body in hook.bodies] == [("hello", "failed")]
    (notice,) = run.session.runs.show(run.ref).view.notices
    assert (notice.way, notice.ok, notice.summary) == ("webhook", True, "the server answered 200")
    (asked,) = bench.records.all()
    assert asked.settings["email_notifications"] == {"on_failure": ["a@example.com"]}
    places = (run.session.state_dir, bench.tenant.folder / "Workspace")
    for value in (b"a-key-that-nobody-may-see", b"the-secret-path"):
        assert files_with(value, *places) == []


def test_a_webhook_alone_sends_no_mail(bench: DatabricksBench) -> None:
    bench.declare(more="on_finish: {command: 'true'}\n")
    bench.run()
    (asked,) = bench.records.all()
    assert "email_notifications" not in asked.settings
