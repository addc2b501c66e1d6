"""`lookup` of variables: ids of what the workspace has by name, asked for by a plan alone."""

from collections.abc import Iterator

import pytest

from sgpu_decl.api import Location, Session
from sgpu_decl.model.plan import Plan
from sgpu_decl.testing.workspace.offers import Offers
from sgpu_decl.testing.workspace.server import WorkspaceServer
from tests.applying.jobs.conftest import Shop

OFFERS = Offers(
    warehouses=(("w1", "reports"), ("w2", "imports")),
    service_principals=("11111111-2222-4333-8444-555555555555", "a", "b"),
    principal_names=(
        ("11111111-2222-4333-8444-555555555555", "ci"),
        ("a", "two"),
        ("b", "two"),
    ),
    notification_destinations=(("d1", "pager"),),
)
PROJECT = """\
variables:
  stage: reports
  sql: {lookup: {warehouse: "${var.stage}"}}
  who: {lookup: {service_principal: ci}}
  pager: {lookup: {notification_destination: pager}}
jobs:
  nightly:
    run_as: {service_principal: "${var.who}"}
    notify: {failure: [{webhook: "${var.pager}"}]}
    tasks:
      publish: {task: {sql_task: {warehouse_id: "${var.sql}", query: {query_id: q}}}}
targets: {other: {variables: {sql: w9}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    with WorkspaceServer(tmp_path_factory.mktemp("named"), offers=OFFERS) as running:
        yield running


def fields(plan: Plan) -> dict[str, object]:
    (change,) = plan.changes
    return {one.path: one.after for one in change.fields}


def test_a_plan_asks_for_ids_and_validate_for_nothing(shop: Shop) -> None:
    shop.write(PROJECT)
    session = Session.open(Location(file=shop.folder / "sgpu.yml", project=shop.folder))
    (job,) = session.check().loaded.jobs
    assert "${lookup.warehouse.reports}" in job.spec.text
    assert not shop.asked("/sql/warehouses")
    plan = shop.plan()
    assert [one.code for one in plan.checks if str(one.severity) == "error"] == []
    told = fields(plan)
    assert told["run_as.service_principal_name"] == OFFERS.principal_names[0][0]
    assert told["tasks.publish.sql_task.warehouse_id"] == "w1"
    assert told["webhook_notifications.on_failure"] == [{"id": "d1"}]
    assert fields(shop.plan(target="other"))["tasks.publish.sql_task.warehouse_id"] == "w9"
    assert len(shop.asked("/sql/warehouses")) == 1  # cached, and a value needs none


@pytest.mark.parametrize(
    ("before", "after", "code", "hint"),
    [
        ("stage: reports", "stage: report", "unknown_lookup", "did you mean `reports`?"),
        ("stage: reports", "stage: x", "unknown_lookup", "there are `imports`, `reports`"),
        ("principal: ci", "principal: two", "ambiguous_lookup", "the id of one of them"),
    ],
)
def test_a_name_that_is_not_one_thing_refuses_the_plan(
    shop: Shop, before: str, after: str, code: str, hint: str
) -> None:
    shop.write(PROJECT.replace(before, after))
    plan = shop.plan()
    assert not plan.applyable
    (check,) = [one for one in plan.checks if one.code == code]
    assert hint in (check.hint or "")
    assert "run_as_cannot_read" not in [one.code for one in plan.checks if "two" in after]
    assert check.place is not None
    assert check.place.line in (8, 11)
