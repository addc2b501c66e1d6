"""Proposals of jobs: what is made, edited by hand, changed back and deleted."""

from pathlib import Path

import pytest

from sgpu_decl.errors import StalePlan
from sgpu_decl.model.plan import Action
from tests.applying.conftest import sgpu
from tests.applying.jobs.conftest import JOB, Shop


def propose(shop: Shop) -> None:
    session = shop.session()
    assert session.propose(session.plan()) is not None


def apply(shop: Shop) -> set[Action]:
    session = shop.session()
    prepared = session.plan()
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
