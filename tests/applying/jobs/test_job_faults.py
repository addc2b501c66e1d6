"""Whatever befalls the requests for a job, there is one of it in the end."""

from pathlib import Path

import pytest

from sgpu_decl.applying.job_changes import Jobs
from sgpu_decl.errors import OutcomeUnknown
from sgpu_decl.model.plan import Action
from sgpu_decl.storing.journal.writer import JournalWriter
from sgpu_decl.storing.stores import FOLDER
from sgpu_decl.testing.workspace import Effect
from tests.applying.jobs.conftest import JOB, Shop
from tests.shared_places import break_lock, new_place

CREATE = "POST /api/2.2/jobs/create"


def settled(shop: Shop) -> bool:
    """There is one job, it is known, and nothing is left to do."""
    (change,) = shop.plan().changes
    assert shop.session().state.pull()["intents"] == []
    return len(shop.jobs()) == 1 and change.action is Action.NO_OP


def test_an_answer_that_was_lost_is_found_again(shop: Shop) -> None:
    shop.fault(CREATE, Effect.LOSE_ANSWER)
    assert shop.apply().failed == ()
    assert settled(shop)


def test_an_answer_that_was_lost_and_a_list_that_lags_leave_it_to_the_next_apply(
    shop: Shop,
) -> None:
    shop.fault(CREATE, Effect.STALE, seen_by="GET /api/2.2/jobs/list", reads=1)
    shop.fault(CREATE, Effect.LOSE_ANSWER)

    ((address, error),) = shop.apply().failed

    assert str(address) == "job.nightly"
    assert isinstance(error, OutcomeUnknown)
    assert error.retryable
    assert shop.asked("/jobs/create") == [0]
    (change,) = shop.plan().changes
    assert change.action is Action.NO_OP  # it was found by its mark
    shop.apply()
    assert settled(shop)


def test_a_request_that_never_arrived_makes_nothing(shop: Shop) -> None:
    shop.fault(CREATE, Effect.CUT)
    ((_, error),) = shop.apply().failed
    assert isinstance(error, OutcomeUnknown)
    assert shop.jobs() == {}
    shop.apply()
    assert settled(shop)


@pytest.mark.expensive
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_workspace_is_asked_again(shop: Shop, status: int) -> None:
    shop.fault(CREATE, Effect.STATUS, status_code=status, times=2)
    assert shop.apply().failed == ()
    assert shop.asked("/jobs/create") == [status, status, 200]
    assert settled(shop)


def test_a_busy_answer_to_what_was_done_makes_no_second_job(shop: Shop) -> None:
    shop.fault(CREATE, Effect.STATUS, status_code=503, keep=True)
    assert shop.apply().failed == ()
    assert shop.asked("/jobs/create") == [503]
    assert settled(shop)


def test_a_refusal_is_told_and_leaves_nothing(shop: Shop) -> None:
    shop.fault(CREATE, Effect.STATUS, status_code=403)
    ((_, error),) = shop.apply().failed
    assert error.code == "permission_denied"
    assert shop.session().state.pull()["intents"] == []
    shop.apply()
    assert settled(shop)


def test_a_group_that_is_not_there_is_told_at_its_line(shop: Shop) -> None:
    shop.write(JOB + "    permissions: [{level: view, group: nobody}]\n")
    ((_, error),) = shop.apply().failed
    (found,) = error.diagnostics
    assert (found.place.line, "nobody" in found.summary) == (JOB.count("\n") + 1, True)
    assert shop.jobs() == {}


@pytest.mark.parametrize(
    ("old", "new", "line", "column"),
    [
        ("Europe/Berlin", "Factory", 5, 15),
        ("0 30 2 * * ?", "0 30 2 30 2 ?", 4, 15),
    ],
)
def test_what_the_workspace_refuses_is_told_at_its_line(
    shop: Shop, old: str, new: str, line: int, column: int
) -> None:
    shop.write(JOB.replace(old, new))
    for _ in ("created", "changed"):
        ((_, error),) = shop.apply().failed
        (found,) = error.diagnostics
        assert (found.code, found.place.line, found.place.column) == (
            "remote_refused", line, column,
        )  # fmt: skip
        assert new in found.summary
        if not shop.jobs():
            shop.write(JOB)
            assert shop.apply().failed == ()
            shop.write(JOB.replace(old, new))


def test_a_change_that_failed_is_planned_again(shop: Shop) -> None:
    shop.apply()
    shop.write(JOB.replace("ml", "web"))
    shop.fault("POST /api/2.2/jobs/reset", Effect.STATUS, status_code=403)
    ((_, error),) = shop.apply().failed
    assert error.code == "permission_denied"
    assert shop.plan().changes[0].action is Action.UPDATE
    assert shop.apply().failed == ()
    assert settled(shop)


def test_one_job_that_fails_leaves_the_others_alone(shop: Shop) -> None:
    shop.write(JOB + "  other: {notebook: {path: /Workspace/x}}\n")
    shop.fault(CREATE, Effect.STATUS, status_code=403)
    ((address, _),) = shop.apply().failed
    assert str(address) == "job.nightly"
    assert [job["name"] for job in shop.jobs().values()] == ["other"]


def test_what_the_workspace_adds_in_a_later_version_is_no_drift_if_it_is_empty(
    shop: Shop,
) -> None:
    shop.apply()
    shop.edit(notification_settings={}, parameters=[], health={"rules": []})
    assert shop.plan().changes[0].action is Action.NO_OP


def test_whoever_lost_the_lock_asks_nothing_of_the_workspace(
    request: pytest.FixtureRequest, shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = new_place(request, FOLDER, tmp_path)
    head = f"project: {{name: p}}\nstate: {{kind: folder, path: {place.address}}}\n"

    def apply_losing(owner: type, name: str) -> None:
        """Apply, and lose the lock right after that call."""
        real = getattr(owner, name)

        def losing(self: object, *given: object) -> object:
            value = real(self, *given)
            break_lock(place, tmp_path / "other")
            return value

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, losing)
            ((_, error),) = shop.apply().failed
        assert error.code == "lock_lost"

    shop.write(head + JOB)
    apply_losing(JournalWriter, "begin")
    assert shop.jobs() == {}
    shop.apply()
    before = shop.job()
    shop.write(head + JOB.replace("30 2", "45 2"))
    apply_losing(Jobs, "_stage")
    assert shop.job() == before
    shop.write(head + "runs: {}\n")
    apply_losing(Jobs, "_recorded")
    assert shop.job() == before
    shop.apply()
    assert shop.jobs() == {}
