"""Secrets of a scope: ranks get them, and their values leave no node and lie in no file of ours."""

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.testing.file_search import files_with
from tests.backends.databricks.bench import DatabricksBench, Launched

VALUE = "a-value-that-nobody-may-see"


@pytest.fixture
def client(bench: DatabricksBench) -> WorkspaceClient:
    """The workspace, which has the secret that the run declares."""
    bench.declare("{base: gpu-6}", "{base: gpu-6, secrets: {WORD: 'databricks:ml/word'}}")
    bench.code(
        "import os\ndef main(n):\n    print('it is', os.environ['WORD'])\n"
        "    return len(os.environ['WORD'])\n"
        "def tell(n):\n    return ['told ' + os.environ['WORD'], (n,)][int(os.environ['RANK'])]\n"
    )
    client = WorkspaceClient()
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "word", string_value=VALUE)
    return client


@pytest.mark.usefixtures("client")
def test_a_value_reaches_ranks_and_nothing_else(bench: DatabricksBench) -> None:
    run = bench.run()

    assert [result["value"] for result in run.results] == [len(VALUE)] * 2
    shown = run.texts()
    assert any(text.startswith("it is") for text in shown)
    assert not [text for text in shown if VALUE in text]
    workspace = bench.tenant.folder / "Workspace"
    assert files_with(VALUE.encode(), run.session.state_dir, workspace) == []


@pytest.mark.usefixtures("client")
def test_a_result_that_holds_a_value_is_masked_and_said(bench: DatabricksBench) -> None:
    bench.declare("train.py:main", "train.py:tell")

    run = bench.run()

    first, second = run.results
    assert first == {"rank": 0, "value": "told ***", "secrets": ["WORD"]}
    assert second.keys() == {"rank", "value"}
    assert run.session.runs.returned(run.ref)[0]["value"] == f"told {VALUE}"


def test_a_scope_that_is_gone_since_the_plan_is_the_users_failure(
    bench: DatabricksBench, client: WorkspaceClient
) -> None:
    opened = bench.open()
    plan = opened.plan()
    client.secrets.delete_scope("ml")

    run = Launched(opened, *opened.apply(plan).launched).ended()

    assert (run.status.state, run.status.failure) == (
        AttemptState.FAILED, FailureClass.LAUNCH_FAILED_USER,
    )  # fmt: skip
    assert "WORD" in run.cause["summary"]
