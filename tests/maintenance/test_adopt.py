"""A job that exists already becomes that of an address, and is not touched by that."""

from typing import Any

import pytest

from sgpu_decl.api import PlanOptions
from sgpu_decl.errors import InvalidInput, SgpuError
from sgpu_decl.model.plan import Action, Reason
from tests.applying.jobs.conftest import JOB, Shop


@pytest.fixture
def made(shop: Shop) -> str:
    """A job that somebody made by hand."""
    settings: dict[str, Any] = {
        "name": "by hand",
        "tasks": [{"task_key": "x", "notebook_task": {"notebook_path": "/Workspace/old"}}],
        "tags": {"team": "ml"},
    }
    return str(shop.api("POST", "2/jobs/create", settings)["job_id"])


def test_only_the_next_apply_changes_it(shop: Shop, made: str) -> None:
    before = shop.job()
    shop.session().jobs.adopt("job.nightly", made)
    assert shop.job() == before

    (planned,) = shop.plan().changes
    assert (planned.action, planned.reason) == (Action.UPDATE, Reason.CONFIG_CHANGED)
    shown = {field.path: (field.before, field.after) for field in planned.fields}
    assert shown["name"] == ("by hand", "nightly")
    assert shown["tasks.x.notebook_task.notebook_path"] == ("/Workspace/old", None)
    assert "tags.team" not in shown
    assert not [path for path in shown if path.startswith(("format", "timeout"))]
    assert shop.apply().failed == ()

    job_id, settings = shop.job()
    assert job_id == made
    assert (settings["name"], settings["tags"].keys()) == ("nightly", {"team", "sgpu_token"})
    assert shop.plan().changes[0].action is Action.NO_OP


def test_adopting_it_again_is_harmless(shop: Shop, made: str) -> None:
    first = shop.session().jobs.adopt("nightly", made)
    serial = shop.plan().serial
    assert shop.session().jobs.adopt("job.nightly", made) == first
    assert shop.plan().serial == serial


def test_a_job_has_one_address_and_an_address_one_job(shop: Shop, made: str) -> None:
    shop.write(JOB + "  other: {notebook: {path: /Workspace/x}}\n")
    shop.session().jobs.adopt("nightly", made)
    with pytest.raises(SgpuError, match=r"is `job\.nightly` already") as refused:
        shop.session().jobs.adopt("other", made)
    assert "sgpu state mv job.nightly job.other" in (refused.value.hint or "")
    with pytest.raises(SgpuError, match="already") as refused:
        shop.session().jobs.adopt("nightly", "1")
    assert "sgpu state rm job.nightly" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("address", "job_id", "message"),
    [
        ("job.nightl", "1", "declares no job `job.nightl`"),
        ("run.nightly", "1", "declares no job"),
        ("nightly", "12345", "has no job 12345"),
        ("nightly", "a-name", "no id of a job"),
    ],
)
def test_what_is_not_there_cannot_be_adopted(
    shop: Shop, address: str, job_id: str, message: str
) -> None:
    with pytest.raises(SgpuError, match=message):
        shop.session().jobs.adopt(address, job_id)


@pytest.mark.parametrize(
    ("deployment", "by"),
    [
        ({"kind": "BUNDLE", "metadata_file_path": "/Workspace/b/metadata.json"}, "a bundle"),
        ({"kind": "SYSTEM_MANAGED"}, "the platform itself"),
        ({"kind": "OF_TOMORROW"}, "a deployment of `OF_TOMORROW`"),
    ],
)
def test_a_job_that_something_else_manages_is_refused(
    shop: Shop, made: str, deployment: dict[str, str], by: str
) -> None:
    shop.edit(deployment=deployment)
    before = shop.job()
    with pytest.raises(SgpuError, match=f"is managed by {by}") as refused:
        shop.session().jobs.adopt("job.nightly", made)
    assert refused.value.code == "managed_by_bundle"
    assert shop.job() == before
    assert shop.plan().changes[0].action is Action.CREATE  # nothing was recorded


def test_a_bundle_that_took_over_a_job_keeps_it(shop: Shop) -> None:
    shop.apply()
    shop.edit(deployment={"kind": "BUNDLE"}, tags={"of": "the bundle"})
    before, plan = shop.job(), shop.plan()
    assert [check.code for check in plan.checks] == ["managed_by_bundle"]
    assert not plan.applyable
    shop.apply()
    assert shop.job() == before


@pytest.mark.parametrize("destroy", [True, False])
def test_a_job_that_a_bundle_took_over_is_forgotten_and_not_deleted(
    shop: Shop, destroy: bool
) -> None:
    shop.apply()
    shop.edit(deployment={"kind": "BUNDLE"})
    before = shop.job()
    if not destroy:
        shop.write("project: {name: empty}\n")
    plan = shop.plan(destroy=destroy)
    assert [(one.action, one.destructive) for one in plan.changes] == [(Action.FORGET, False)]
    assert [(one.code, str(one.severity)) for one in plan.checks] == [
        ("managed_by_bundle", "warning")
    ]
    assert "not deleted there" in plan.checks[0].summary
    assert shop.apply(destroy=destroy).failed == ()
    assert shop.job() == before
    assert shop.plan(destroy=True).changes == ()


@pytest.mark.parametrize("destroy", [True, False])
def test_a_bundle_that_takes_over_a_job_after_the_plan_keeps_it(shop: Shop, destroy: bool) -> None:
    shop.apply()
    shop.write(JOB.replace("0 30 2", "0 30 4"))
    session = shop.session()
    plan = session.plan(PlanOptions(destroy=destroy))
    shop.edit(deployment={"kind": "BUNDLE"})
    before = shop.job()
    ((_, error),) = session.apply(plan).failed
    assert error.code == "managed_by_bundle"
    assert shop.job() == before


def test_a_job_that_cannot_be_kept_is_refused_with_its_place(shop: Shop, made: str) -> None:
    backend = "backend: {kind: ray, address: 'http://h'}"
    shop.write(
        f"runs: {{a: {{gpus: 1, type: CPU, command: x, {backend}}}}}\njobs: {{j: {{run: a}}}}\n"
    )
    with pytest.raises(InvalidInput) as refused:
        shop.session().jobs.adopt("j", made)
    assert [finding.code for finding in refused.value.diagnostics] == ["jobs_unsupported"]


def test_a_forgotten_job_is_adopted_again(shop: Shop) -> None:
    shop.apply()
    job_id, _ = shop.job()
    shop.session().state.remove("job.nightly")
    (check,) = shop.plan().checks
    assert check.code == "namesake"
    shop.session().jobs.adopt("job.nightly", job_id)
    assert shop.plan().changes[0].action is Action.NO_OP
