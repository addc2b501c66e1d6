"""Secrets of a scope: ranks get them, and their values leave no node and lie in no file of ours."""

from collections.abc import Callable
from pathlib import Path

from databricks.sdk import WorkspaceClient

from sgpu_decl.api import Session
from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.testing.file_search import files_with
from sgpu_decl.views.status_json import status_objects
from tests.support import PATIENCE

VALUE = "a-value-that-nobody-may-see"


def prepare(project: Path) -> None:
    run = (project / "run.yaml").read_text()
    secrets = "env: {base: gpu-6, secrets: {WORD: 'databricks:ml/word'}}"
    (project / "run.yaml").write_text(run.replace("env: {base: gpu-6}", secrets))
    (project / "train.py").write_text(
        "import os\ndef main(n):\n    print('it is', os.environ['WORD'])\n"
        "    return len(os.environ['WORD'])\n"
        "def tell(n):\n    return ['told ' + os.environ['WORD'], (n,)][int(os.environ['RANK'])]\n"
    )


def test_a_value_reaches_ranks_and_nothing_else(
    session: Callable[[], Session], project: Path, tenant: Path
) -> None:
    prepare(project)
    client = WorkspaceClient()
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "word", string_value=VALUE)
    opened = session()

    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=PATIENCE)

    assert [result["value"] for result in opened.runs.results(ref)] == [len(VALUE)] * 2
    shown = [log.text for log in opened.runs.logs(ref, ranks=None, follow=False) if log is not None]
    assert any(text.startswith("it is") for text in shown)
    assert not [text for text in shown if VALUE in text]
    assert files_with(VALUE.encode(), opened.state_dir, tenant / "Workspace") == []


def test_a_result_that_holds_a_value_is_masked_and_said(
    session: Callable[[], Session], project: Path
) -> None:
    prepare(project)
    run = (project / "run.yaml").read_text()
    (project / "run.yaml").write_text(run.replace("train.py:main", "train.py:tell"))
    client = WorkspaceClient()
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "word", string_value=VALUE)
    opened = session()

    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=PATIENCE)

    first, second = opened.runs.results(ref)
    assert first == {"rank": 0, "value": "told ***", "secrets": ["WORD"]}
    assert second.keys() == {"rank", "value"}
    assert opened.runs.returned(ref)[0]["value"] == f"told {VALUE}"


def test_a_scope_that_is_gone_since_the_plan_is_the_users_failure(
    session: Callable[[], Session], project: Path
) -> None:
    prepare(project)
    client = WorkspaceClient()
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "word", string_value=VALUE)
    opened = session()
    plan = opened.plan()
    client.secrets.delete_scope("ml")

    (ref,) = opened.apply(plan).launched
    opened.runs.wait([ref], timeout=PATIENCE)

    status = opened.runs.status(ref)
    assert (status.state, status.failure) == (
        AttemptState.FAILED,
        FailureClass.LAUNCH_FAILED_USER,
    )
    (told,) = status_objects(opened.runs.describe([ref]))
    assert "WORD" in told["first_cause"]["summary"]
