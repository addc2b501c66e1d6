"""Jobs from plan to destroy, through the real SDK, in a workspace that runs here."""

from contextlib import closing
from sqlite3 import connect
from typing import Any

import pytest

from sgpu_decl.errors import BackendError, InvalidInput, NotFound
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.job import job_fields
from sgpu_decl.model.plan import Action, Reason
from sgpu_decl.testing.workspace import Effect
from tests.applying.conftest import sgpu
from tests.applying.jobs.conftest import JOB, NOTEBOOK, Shop
from tests.support import refusing

BASE = "notebook: {path: /Workspace/Shared/report, base"


def change(shop: Shop, **asked: Any) -> Any:
    (found,) = shop.plan(**asked).changes
    return found


def test_a_job_is_created_as_it_is_declared(shop: Shop) -> None:
    planned = change(shop)
    assert (planned.action, planned.reason) == (Action.CREATE, Reason.FIRST_RUN)

    assert shop.apply().failed == ()

    _, settings = shop.job()
    assert settings["name"] == "nightly"
    assert settings["schedule"] == {
        "quartz_cron_expression": "0 30 2 * * ?",
        "timezone_id": "Europe/Berlin",
        "pause_status": "UNPAUSED",
    }
    (task,) = settings["tasks"]
    assert task["task_key"] == "nightly"
    assert task["notebook_task"] == {"notebook_path": "/Workspace/Shared/report"}
    assert settings["tags"].keys() == {"team", "sgpu_token"}


@pytest.mark.parametrize(
    "fields",
    [
        "schedule: 0 0 2 * * ?",
        "schedule: 0 0 2 ? * MON\n    paused: true",
        "trigger: {every: 36h}",
        "trigger: {every: 90m}",
        "trigger: {every: 14d}\n    on_overlap: queue",
        "trigger: {file_arrival: /Volumes/main/ml/in/}",
        "trigger: {table_update: [main.ml.a, main.ml.b]}\n    paused: false",
        "trigger: {file_arrival: {url: /Volumes/main/ml/in/, min_time_between: 5m}}",
        "trigger: {table_update: {tables: [m.l.a], condition: all_updated, min_time_between: 90s}}",
        "name: a title\n    description: what for\n    timeout: 90m",
        "tags: {a: b, 'c.d': e}",
        "permissions: [{level: view, group: users}, {level: manage, user: a@b.c}]",
        "permissions: [{level: CAN_MANAGE_RUN, group: users}]",
        "on_finish: {success: [a@b.c], failure: [a@b.c, d@e.f]}",
        "budget: 0e9bbd6f-2cb4-4c8b-8c0b-1f2ad1b0c7a1",
        "lifecycle: {prevent_destroy: true, ignore_changes: [tags]}",
    ],
)
@pytest.mark.parametrize("mode", ["development", "production"])
def test_plan_after_apply_changes_nothing(shop: Shop, fields: str, mode: str) -> None:
    shop.write(f"mode: {mode}\njobs:\n  j:\n    {NOTEBOOK}\n    {fields}\n")

    assert shop.apply().failed == ()

    again = change(shop)
    assert (again.action, again.reason, again.fields) == (Action.NO_OP, Reason.UP_TO_DATE, ())


@pytest.mark.parametrize(
    "notebook",
    [
        "type: gpu_8xh100",
        "type: GPU_1xA10, base: gpu-4",
        "base: gpu-4, dependencies: [einops==0.8.1], parameters: {day: today}, retries: 2",
    ],
)
def test_plan_after_apply_changes_nothing_of_a_notebook(shop: Shop, notebook: str) -> None:
    shop.write(f"jobs:\n  j:\n    notebook: {{path: /Workspace/x, {notebook}}}\n")
    assert shop.apply().failed == ()
    assert change(shop).action is Action.NO_OP


def test_a_type_alone_is_a_node_with_one_gpu(shop: Shop) -> None:
    text = "jobs: {j: {notebook: {path: /Workspace/x, type: A10}}}\n"
    shop.write(text)
    assert shop.apply().failed == ()
    assert shop.job()[1]["tasks"][0]["compute"] == {"hardware_accelerator": "GPU_1xA10"}
    shop.write(text.replace("A10", "gpu_1xa10"))
    assert change(shop).action is Action.NO_OP


@pytest.mark.parametrize(
    ("kind", "words", "hint"),
    [
        ("T4", "serverless GPU compute has no T4", "use `type: A10`, `type: H100`"),
        ("B300", "has no node with one B300", "use `type: GPU_8xB300`"),
        ("GPU_2xH100", "has no nodes `GPU_2xH100`", "use `type: GPU_1xH100`, `type: GPU_8xH100`"),
    ],
)
def test_a_notebook_on_a_gpu_that_the_platform_lacks(
    shop: Shop, kind: str, words: str, hint: str
) -> None:
    shop.write(f"jobs:\n  j:\n    notebook: {{path: /Workspace/x, type: {kind}}}\n")
    (check,) = [item for item in shop.plan().checks if item.code == "no_such_machines"]
    assert words in check.summary
    assert hint in str(check.hint)
    assert (check.place.line, check.place.column) == (3, 42)


def test_a_change_of_the_file_is_made_in_place(shop: Shop) -> None:
    shop.apply()
    job_id, _ = shop.job()
    shop.write(JOB.replace("0 30 2", "0 30 4"))

    planned = change(shop)
    shop.apply()

    assert (planned.action, planned.reason) == (Action.UPDATE, Reason.CONFIG_CHANGED)
    (field,) = planned.fields
    assert (field.path, field.before, field.after) == (
        "schedule.quartz_cron_expression", "0 30 2 * * ?", "0 30 4 * * ?",
    )  # fmt: skip
    assert (field.origin.line, field.origin.column) == (4, 15)
    assert shop.job()[0] == job_id
    assert shop.job()[1]["schedule"]["quartz_cron_expression"] == "0 30 4 * * ?"
    assert change(shop).action is Action.NO_OP


def test_a_changed_environment_is_the_reason(shop: Shop) -> None:
    text = "jobs: {j: {notebook: {path: /Workspace/x, base: gpu-4}}}\n"
    shop.write(text)
    shop.apply()
    shop.write(text.replace("gpu-4", "gpu-4, dependencies: [einops]"))
    assert change(shop).reason is Reason.ENVIRONMENT_CHANGED


def test_edits_in_the_workspace_are_shown_field_by_field_and_taken_back(shop: Shop) -> None:
    shop.apply()
    before = shop.job()
    shop.edit(
        max_concurrent_runs=3,
        tags={"team": "web", "new": "1", "sgpu_token": before[1]["tags"]["sgpu_token"]},
        email_notifications={"on_failure": ["me@example.com"]},
        schedule={"quartz_cron_expression": "0 0 5 * * ?", "timezone_id": "Europe/Berlin"},
    )

    plan = shop.plan()

    (planned,) = plan.changes
    assert (planned.action, planned.reason) == (Action.UPDATE, Reason.LIVE_DRIFTED)
    shown = {field.path: (field.before, field.after, field.origin.line) for field in planned.fields}
    assert shown == {
        "email_notifications.on_failure": (["me@example.com"], None, 2),
        "max_concurrent_runs": (3, 1, 2),
        "schedule.quartz_cron_expression": ("0 0 5 * * ?", "0 30 2 * * ?", 4),
        "tags.new": ("1", None, 6),
        "tags.team": ("web", "ml", 6),
    }
    assert all(field.drifted for field in planned.fields)
    (check,) = plan.checks
    assert (check.code, str(check.severity)) == ("live_drifted", "warning")
    assert shop.apply().failed == ()
    assert shop.job() == before
    assert change(shop).action is Action.NO_OP


def test_an_edit_that_the_file_made_too_is_recorded_only(shop: Shop) -> None:
    shop.apply()
    _, settings = shop.job()
    shop.edit(tags={**settings["tags"], "team": "web"})
    shop.write(JOB.replace("team: ml", "team: web"))

    planned = change(shop)
    (field,) = planned.fields
    assert (planned.reason, str(field.effect)) == (Reason.CONFIG_CHANGED, "state_only")
    shop.apply()
    assert shop.asked("/jobs/reset") == []
    assert change(shop).action is Action.NO_OP


def test_edits_at_ignored_paths_stay(shop: Shop) -> None:
    shop.write(JOB + "    lifecycle: {ignore_changes: [schedule.pause_status, tags.new]}\n")
    shop.apply()
    _, settings = shop.job()
    schedule = {**settings["schedule"], "pause_status": "PAUSED"}
    shop.edit(schedule=schedule, tags={**settings["tags"], "new": "1"})
    assert change(shop).action is Action.NO_OP

    shop.edit(max_concurrent_runs=7)
    (field,) = change(shop).fields
    shop.apply()

    assert field.path == "max_concurrent_runs"
    _, settings = shop.job()
    assert settings["schedule"]["pause_status"] == "PAUSED"
    assert settings["tags"]["new"] == "1"
    assert settings["max_concurrent_runs"] == 1


def test_permissions_are_left_alone_unless_they_are_said(shop: Shop) -> None:
    shop.apply()
    job_id, _ = shop.job()
    path = f"0/permissions/jobs/{job_id}"
    view = {"group_name": "users", "permission_level": "CAN_VIEW"}
    shop.api("PATCH", path, {"access_control_list": [view]})
    assert change(shop).action is Action.NO_OP

    shop.write(JOB + "    permissions: [{level: manage, group: admins}]\n")
    shop.apply()
    listed = {
        item.get("group_name") or item["user_name"]: item["all_permissions"][0]["permission_level"]
        for item in shop.api("GET", path)["access_control_list"]
    }
    assert listed.pop("admins") == "CAN_MANAGE"
    assert list(listed.values()) == ["IS_OWNER"]

    shop.api("PATCH", path, {"access_control_list": [view]})
    (field,) = change(shop).fields
    assert (field.path, field.before, field.drifted) == (
        "permissions.group_name.users", "CAN_VIEW", True,
    )  # fmt: skip


def test_a_job_that_was_deleted_in_the_workspace_is_made_again(shop: Shop) -> None:
    shop.apply()
    old, _ = shop.job()
    shop.api("POST", "2/jobs/delete", {"job_id": int(old)})

    planned = change(shop)
    assert (planned.action, planned.reason) == (Action.CREATE, Reason.PREVIOUS_LOST)
    shop.apply()

    new, _ = shop.job()
    assert new != old
    assert change(shop).action is Action.NO_OP


def test_a_job_that_is_no_longer_listed_is_deleted(shop: Shop) -> None:
    shop.apply()
    shop.write("project: {name: empty}\n")

    planned = change(shop)
    assert (planned.action, planned.reason) == (Action.DESTROY, Reason.REMOVED_FROM_CONFIG)
    assert planned.destructive
    shop.apply()

    assert shop.jobs() == {}
    assert shop.plan().changes == ()


def test_a_job_that_the_project_lets_go_stays_in_the_workspace(shop: Shop) -> None:
    shop.apply()
    job_id, before = shop.job()
    shop.write("project: {name: empty}\nremoved: [job.nightly]\n")

    planned = change(shop)
    assert (planned.action, planned.reason) == (Action.FORGET, Reason.REMOVED_FROM_CONFIG)
    assert not planned.destructive
    assert shop.apply().failed == ()

    assert shop.job() == (job_id, before)
    assert shop.plan().changes == ()
    assert shop.plan(destroy=True).changes == ()


def test_destroying_twice_is_harmless(shop: Shop) -> None:
    shop.apply()
    job_id, _ = shop.job()
    shop.api("POST", "2/jobs/delete", {"job_id": int(job_id)})
    assert shop.apply(destroy=True).failed == ()
    assert shop.plan(destroy=True).changes == ()
    shop.apply()
    assert len(shop.jobs()) == 1


def test_what_may_not_be_destroyed_is_not(shop: Shop) -> None:
    shop.write(JOB + "    lifecycle: {prevent_destroy: true}\n")
    shop.apply()
    plan = shop.plan(destroy=True)
    assert not plan.applyable
    assert [check.code for check in plan.checks] == ["prevent_destroy"]


def test_a_saved_plan_carries_jobs(shop: Shop) -> None:
    from sgpu_decl.planning.plan_file import load_plan

    session = shop.session()
    session.save(session.plan(), shop.folder / "saved.plan")
    shop.write("project: {name: other}\n")

    shop.session().apply(load_plan(shop.folder / "saved.plan"))

    assert shop.job()[1]["name"] == "nightly"


def test_only_what_is_selected_asks_the_workspace(shop: Shop) -> None:
    run = "runs: {train: {gpus: 1, type: CPU, command: 'true', mlflow: {enabled: false}}}\n"
    shop.write(run + JOB)

    plan = shop.plan(select=("run.*",))

    assert [str(item.address) for item in plan.changes] == ["run.train"]
    assert not plan.complete
    assert shop.asked("/jobs/list") == []
    assert [str(item.address) for item in shop.plan(select=("job.*",)).changes] == ["job.nightly"]


def test_in_development_names_tags_and_pauses_are_those_of_bundles(shop: Shop) -> None:
    shop.write(
        JOB + f"  loud:\n    {NOTEBOOK}\n    trigger: {{every: 6h}}\n    paused: false\n"
        "targets: {dev: {mode: development}, prod: {mode: production}}\n"
    )
    shop.apply(target="dev")
    me = shop.api("GET", "0/preview/scim/v2/Me")["userName"].partition("@")[0].replace("-", "_")

    by_name = {job["name"]: job for job in shop.jobs().values()}

    assert by_name.keys() == {f"[dev {me}] nightly", f"[dev {me}] loud"}
    quiet = by_name[f"[dev {me}] nightly"]
    assert quiet["schedule"]["pause_status"] == "PAUSED"
    assert (quiet["tags"]["dev"], quiet["tags"]["team"]) == (me, "ml")
    assert by_name[f"[dev {me}] loud"]["trigger"]["pause_status"] == "UNPAUSED"
    shop.apply(target="prod")
    named = {job["name"]: job for job in shop.jobs().values()}
    assert named["nightly"]["schedule"]["pause_status"] == "UNPAUSED"
    assert "dev" not in named["nightly"]["tags"]


def test_the_user_stands_in_names_where_presets_say_it(shop: Shop) -> None:
    preset = "presets: {name_prefix: '${user} | ', paused: false}"
    preset += ", jobs: {nightly: {tags: {owner: '${user}'}}}"
    shop.write(JOB + f"targets: {{dev: {{mode: development, {preset}}}, all: {{{preset}}}}}\n")
    me = shop.api("GET", "0/preview/scim/v2/Me")["userName"].partition("@")[0].replace("-", "_")
    for target in ("dev", "all"):
        (change,) = (one for one in shop.plan(target=target).changes if one.kind == "job")
        fields = {field.path: field.after for field in change.fields}
        assert fields["name"] == f"{me} | nightly"
        assert fields["tags.owner"] == me
        assert fields["schedule.pause_status"] == "UNPAUSED"


def test_a_name_that_is_taken_is_said_with_the_way_to_take_it_over(shop: Shop) -> None:
    made = shop.api("POST", "2/jobs/create", {"name": "nightly"})
    plan = shop.plan()
    (check,) = plan.checks
    assert (check.code, str(check.severity)) == ("namesake", "warning")
    assert f"`sgpu adopt job.nightly {made['job_id']}`" in (check.hint or "")
    shop.apply()
    assert len(shop.jobs()) == 2
    assert change(shop).action is Action.NO_OP


def test_a_name_that_a_bundle_has_taken_is_not_to_be_adopted(shop: Shop) -> None:
    shop.api("POST", "2/jobs/create", {"name": "nightly", "deployment": {"kind": "BUNDLE"}})
    (check,) = shop.plan().checks
    assert check.code == "namesake"
    assert (check.hint or "").startswith("it is managed by a bundle")


def test_another_workspace_is_not_taken_for_the_first(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.apply()
    monkeypatch.setenv("DATABRICKS_HOST", shop.server.url.replace("127.0.0.1", "localhost"))
    plan = shop.plan()
    assert [check.code for check in plan.checks] == ["other_workspace"]
    assert not plan.applyable
    shop.write("project: {name: empty}\n")
    ((_, error),) = shop.apply().failed
    assert error.code == "other_workspace"


@pytest.mark.parametrize(
    ("job", "code", "there"),
    [
        ("run: train", "run_refused", "train"),
        ("run: far", "jobs_unsupported", "j:"),
        (f"{NOTEBOOK}, backend: ray", "jobs_unsupported", "ray"),
        ("notebook: {path: /W, base: gpu-x}", "unknown_base", "gpu-x"),
        (f"{NOTEBOOK}, budget: teem", "unknown_policy", "teem"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_its_place(
    shop: Shop, job: str, code: str, there: str
) -> None:
    line = f"  j: {{{job}}}\n"
    shop.write(
        "runs: {far: {gpus: 1, type: CPU, command: x, backend: {kind: ray, address: 'http://h'}}, "
        "train: {gpus: 1, type: CPU, command: x, "
        f"backend: databricks}}}}\njobs:\n{line}"
    )
    plan = shop.plan(select=("job.*",))
    (check,) = [item for item in plan.checks if str(item.address) == "job.j"]
    assert (check.code, check.place.line, check.place.column) == (code, 3, line.index(there) + 1)
    assert not plan.applyable


def test_a_moved_job_is_the_same_job(shop: Shop) -> None:
    shop.apply()
    job_id, _ = shop.job()
    shop.session().state.move("job.nightly", "job.daily")
    shop.write(JOB.replace("nightly:", "daily:\n    name: nightly"))
    planned = change(shop)
    assert planned.action is Action.UPDATE  # its task is called after its key
    assert shop.apply().failed == ()
    assert shop.job()[0] == job_id


def test_a_renamed_job_is_updated_and_not_created(shop: Shop) -> None:
    shop.apply()
    job_id, _ = shop.job()
    shop.write(JOB.replace("nightly:", "daily:\n    renamed_from: nightly"))
    planned = change(shop)
    assert (planned.action, planned.moved_from) == (Action.UPDATE, Address(Kind.JOB, "nightly"))
    assert shop.apply().failed == ()
    assert shop.job()[0] == job_id
    assert change(shop).action is Action.NO_OP
    assert shop.plan(destroy=True).changes[0].address == Address(Kind.JOB, "daily")


def test_a_job_that_is_called_otherwise_is_recognised(shop: Shop) -> None:
    shop.apply()
    shop.write(JOB.replace("nightly:", "daily:"))
    (check,) = (one for one in shop.plan().checks if one.code == "likely_rename")
    assert check.address == "job.daily"
    assert "`job.nightly` is declared no more, and has the same code and config" in check.summary
    assert "`renamed_from: nightly`" in str(check.hint)
    shop.write(JOB.replace("nightly:", "daily:").replace("30 2", "30 3"))
    assert "likely_rename" not in {one.code for one in shop.plan().checks}


def test_status_and_show_know_jobs(shop: Shop) -> None:
    shop.apply()
    session = shop.session()
    (recorded,) = session.jobs.find()
    fields = job_fields(session.jobs.show(recorded))
    job_id, settings = shop.job()
    assert (fields["address"], fields["id"]) == ("job.nightly", job_id)
    assert (fields["state"], fields["schedule"]) == ("scheduled", "0 30 2 * * ?")
    shop.edit(schedule={**settings["schedule"], "pause_status": "PAUSED"})
    whole = session.jobs.show(session.jobs.find("job.nightly")[0])
    assert whole.state == "paused"
    assert whole.live is not None
    assert whole.live["schedule"]["pause_status"] == "PAUSED"
    shop.api("POST", "2/jobs/delete", {"job_id": int(job_id)})
    assert session.jobs.show(recorded).state == "missing"
    assert session.jobs.names_job("nightly")
    assert not session.jobs.names_job("other")
    with pytest.raises(NotFound) as not_here:
        session.runs.find_one("nightly")
    assert "`sgpu show nightly`" in (not_here.value.hint or "")
    shop.apply(destroy=True)
    with pytest.raises(NotFound) as gone:
        shop.session().jobs.find("job.nightly")
    assert gone.value.message == "no job matches `job.nightly`: there are none here"


def test_a_workspace_that_refuses_to_be_read_is_told_and_no_plan_is_made(shop: Shop) -> None:
    shop.fault("GET /api/2.2/jobs/*", Effect.STATUS, status_code=403, times=0)
    with refusing("permission_denied", BackendError):
        shop.plan()


@pytest.mark.parametrize("remote", ["[]", "{}", "x", '{"id": 1, "token": "t", "workspace": "w"}'])
def test_a_damaged_record_of_a_job_is_named_by_every_command(shop: Shop, remote: str) -> None:
    shop.apply()
    _, before = shop.job()
    with closing(connect(shop.folder / ".sgpu/default/state.db")) as database, database:
        database.execute("UPDATE resources SET remote = ?", [remote])
    for words in ("plan",), ("apply", "-y"), ("destroy", "-y"), ("show", "nightly"), ("status",):
        answer = sgpu(shop.folder, *words, "-o", "json")
        assert answer.code == 1, words
        assert answer.json["error"]["code"] == "state_unusable"
        assert "the record of `job.nightly` is damaged" in answer.json["error"]["message"]
    assert sgpu(shop.folder, "state", "rm", "job.nightly").code == 0
    assert change(shop).action is Action.CREATE
    assert shop.job()[1] == before


@pytest.mark.parametrize(
    ("job", "code", "words", "taken"),
    [
        (f"{BASE}: gpu-3}}", "unknown_base", "`gpu-3`", True),
        (f"{BASE}: gpu-9}}", "unknown_base", "`gpu-9`", False),
        (f"{NOTEBOOK}, permissions: [{{level: CAN_QUERY, group: users}}]", "unknown_level",
         "`CAN_QUERY`", False),
    ],
)  # fmt: skip
def test_the_platform_decides_about_words_that_sgpu_does_not_know(
    shop: Shop, job: str, code: str, words: str, taken: bool
) -> None:
    shop.write(f"jobs:\n  j: {{{job}}}\n")
    plan = shop.plan()
    (check,) = plan.checks
    assert (check.code, str(check.severity)) == (code, "warning")
    assert words in check.summary
    assert "the platform decides" in check.summary
    assert check.place is not None
    assert check.place.line == 2
    assert plan.applyable
    assert (shop.apply().failed == ()) is taken
    assert len(shop.jobs()) == taken


@pytest.mark.parametrize("level", ["veiw", "can_view", "admin"])
def test_a_level_that_is_no_word_of_a_platform_is_refused(shop: Shop, level: str) -> None:
    shop.write(JOB + f"    permissions: [{{level: {level}, group: users}}]\n")
    with pytest.raises(InvalidInput) as refused:
        shop.plan()
    (finding,) = refused.value.diagnostics
    assert finding.code == "unknown_value"
    assert finding.place is not None
    assert finding.hint


def test_a_notebook_that_is_not_there_is_found_at_its_line(shop: Shop) -> None:
    shop.write(JOB.replace("report", "reprot"))
    (check,) = shop.plan().checks
    assert (check.code, str(check.severity)) == ("notebook_missing", "warning")
    assert shop.server.url.partition("//")[2] in check.summary
    assert "/Workspace/Shared/reprot" in check.summary
    assert check.hint == "did you mean `/Workspace/Shared/report`?"
    assert check.place is not None
    assert (check.place.line, check.place.column) == (3, 22)
    for path, words in (
        ("/Workspace/Shared", "but a directory"),
        ("/Workspace/Shared/none/here", "nor the folder `/Workspace/Shared/none`"),
    ):
        shop.write(JOB.replace("/Workspace/Shared/report", path))
        (check,) = shop.plan().checks
        assert words in check.summary
    assert shop.apply().failed == ()  # whoever runs it may see more
    shop.write(JOB)
    assert shop.plan().checks == ()


def test_who_may_not_look_at_a_notebook_does_not_know_that_it_is_missing(shop: Shop) -> None:
    shop.write(JOB.replace("report", "reprot"))
    look = "GET /api/2.0/workspace/get-status"
    shop.fault(look, Effect.STATUS, status_code=403, times=0)
    assert shop.plan().checks == ()


def test_a_job_that_the_user_may_not_see_is_compared_with_what_was_applied(shop: Shop) -> None:
    shop.apply()
    shop.edit(tags={"team": "changed by hand"})
    shop.fault("GET /api/2.2/jobs/get", Effect.STATUS, status_code=403, times=0)
    plan = shop.plan()
    assert [one.action for one in plan.changes] == [Action.NO_OP]
    (check,) = plan.checks
    assert (check.code, str(check.severity)) == ("job_unseen", "warning")
    shop.write(JOB.replace("team: ml", "team: vision"))
    (field,) = change(shop).fields
    assert (field.path, field.before, field.after) == ("tags.team", "ml", "vision")


def test_who_else_may_change_a_job_is_told_by_name(shop: Shop) -> None:
    shop.apply()
    job_id, _ = shop.job()
    entries = [
        {"user_name": "bob@example.org", "permission_level": "CAN_MANAGE"},
        {"user_name": "eve@example.org", "permission_level": "CAN_MANAGE_RUN"},
        {"group_name": "users", "permission_level": "CAN_VIEW"},
    ]
    shop.api("PATCH", f"0/permissions/jobs/{job_id}", {"access_control_list": entries})
    plan = shop.plan()
    (check,) = plan.checks
    assert (check.code, str(check.severity)) == ("job_shared", "warning")
    assert "`bob@example.org` may change the job" in check.summary
    assert "eve@" not in check.summary
    assert plan.changes[0].action is Action.NO_OP
    shop.write(JOB + "    lifecycle: {ignore_changes: [permissions]}\n")
    assert "job_shared" not in {one.code for one in shop.plan().checks}
    shop.write(JOB + "    permissions: [{level: manage, user: bob@example.org}]\n")
    (change,) = shop.plan().changes
    assert 'permissions.user_name."eve@example.org"' in {one.path for one in change.fields}
    shop.apply()
    assert shop.plan().checks == ()


def test_another_owner_or_runner_of_a_job_is_told(shop: Shop) -> None:
    shop.apply()
    job_id, _ = shop.job()
    path = f"0/permissions/jobs/{job_id}"
    owner = {"user_name": "bob@example.org", "permission_level": "IS_OWNER"}
    shop.api("PATCH", path, {"access_control_list": [owner]})
    (check,) = (one for one in shop.plan().checks if one.code == "job_owner_changed")
    assert (str(check.severity), str(check.address)) == ("info", "job.nightly")
    assert "`bob@example.org` owns it now" in check.summary
    assert "run as" not in check.summary
    shop.edit(run_as={"user_name": "eve@example.org"})
    plan = shop.plan()
    (check,) = (one for one in plan.checks if one.code == "job_owner_changed")
    assert "its launches run as `eve@example.org`, and `bob@example.org` owns it" in check.summary
    assert plan.changes[0].action is Action.NO_OP
