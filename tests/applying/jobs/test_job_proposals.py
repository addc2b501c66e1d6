"""Proposals of jobs: what is made, edited by hand, changed back and deleted."""

from pathlib import Path

import pytest

from sgpu_decl.api import PlanOptions
from sgpu_decl.errors import StalePlan
from sgpu_decl.model.plan import Action
from tests.applying.conftest import sgpu
from tests.applying.jobs.conftest import JOB, Shop


def propose(shop: Shop, options: PlanOptions | None = None) -> None:
    session = shop.session()
    assert session.propose(session.plan(options)) is not None


def apply(shop: Shop, options: PlanOptions | None = None) -> set[Action]:
    session = shop.session()
    prepared = session.plan(options)
    session.check_reviewed(prepared)
    session.apply(prepared, reviewed=True)
    return {change.action for change in prepared.plan.changes}


def refusal(shop: Shop) -> str:
    with pytest.raises(StalePlan) as refused:
        apply(shop)
    (finding,) = refused.value.diagnostics
    return finding.summary


def test_a_job_is_made_changed_back_and_deleted_only_as_proposed(shop: Shop) -> None:
    assert refusal(shop) == "`job.nightly` (create) is in no proposal of the last 30 days"
    assert shop.jobs() == {}
    propose(shop)
    assert apply(shop) == {Action.CREATE}
    shop.write(JOB.replace("30 2", "45 2"))
    assert '`schedule.quartz_cron_expression` "0 30 2 * * ?" -> "0 45 2 * * ?"' in refusal(shop)
    propose(shop)
    assert apply(shop) == {Action.UPDATE}
    shop.write("jobs: {}\n")
    assert "is in no proposal" not in refusal(shop)
    assert len(shop.jobs()) == 1
    propose(shop)
    apply(shop)
    assert shop.jobs() == {}


def test_a_hand_made_edit_is_an_alarm_and_is_undone_only_once_it_was_shown(
    shop: Shop, folder: Path
) -> None:
    propose(shop)
    apply(shop)
    shop.edit(name="mine now")
    alarm = sgpu(folder, "plan", "--detailed-exitcode", "-o", "markdown")
    assert alarm.code == 2
    assert "mine now" in alarm.out
    assert "to keep an edit, write it into the file" in alarm.out
    assert refusal(shop).startswith("`job.nightly` (update) differs from what ")
    assert shop.job()[1]["name"] == "mine now"
    propose(shop)
    assert apply(shop) == {Action.UPDATE}
    assert shop.job()[1]["name"] != "mine now"
    assert sgpu(folder, "plan", "--detailed-exitcode").code == 0


def test_a_job_that_somebody_deleted_comes_back_only_once_that_was_shown(shop: Shop) -> None:
    propose(shop)
    apply(shop)
    job_id, _ = shop.job()
    shop.api("POST", "2/jobs/delete", {"job_id": int(job_id)})
    assert refusal(shop).endswith("was carried out as `job.nightly`, which is gone since")
    assert shop.jobs() == {}
    propose(shop)
    assert apply(shop) == {Action.CREATE}
    (again,) = shop.jobs()
    assert again != job_id
    shop.api("POST", "2/jobs/delete", {"job_id": int(again)})
    assert "which is gone since" in refusal(shop)


def test_what_heals_is_covered_by_the_newest_plan_of_drift_and_helps_no_other_apply(
    shop: Shop,
) -> None:
    heal = PlanOptions(heal=True)
    propose(shop)
    apply(shop)
    shop.edit(name="mine now")
    for name in ("mine now", "mine today"):
        shop.edit(name=name)
        propose(shop, heal)
    assert "differs from what" in refusal(shop)
    assert shop.job()[1]["name"] == "mine today"
    shop.edit(name="mine now")
    with pytest.raises(StalePlan):
        apply(shop, heal)  # that was shown the day before
    shop.edit(name="mine today")
    assert apply(shop, heal) == {Action.UPDATE}
    assert shop.job()[1]["name"] == "nightly"
