import json
from typing import Any

import pytest

from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.jsonable import canonical, digest
from sgpu_decl.model.plan import EnvironmentChange, GitFacts, PackageChange
from sgpu_decl.planner.plan_json import (
    plan_id,
    plan_to_json,
    saved_from_json,
    saved_text,
    saved_to_json,
)

TOP = {
    "format_version",
    "tool_version",
    "target",
    "project_name",
    "git",
    "lineage",
    "serial",
    "created_at",
    "config_digest",
    "complete",
    "applyable",
    "platforms",
    "changes",
    "checks",
    "estimate",
    "summary",
}
CHANGE = {
    "address",
    "kind",
    "backend",
    "action",
    "reason",
    "destructive",
    "depends_on",
    "after",
    "attempt",
    "prior",
    "fields",
    "code",
    "environment",
    "cause",
    "moved_from",
    "unavailable",
}


@pytest.fixture
def made(world: Any) -> Any:
    world.want("a").want("b", on_active="replace", code="sha256:" + "d" * 64).had(
        AttemptState.RUNNING, "b"
    )
    return world.had(AttemptState.SUCCEEDED, "c").plan()


def test_the_public_object_has_the_keys_of_the_contract(made: Any) -> None:
    value: Any = plan_to_json(made)
    assert set(value) == TOP
    assert all(set(change) == CHANGE for change in value["changes"])
    assert value["created_at"] == "2026-01-31T12:00:00Z"


def test_the_saved_object_is_the_public_one_and_more(made: Any) -> None:
    saved: Any = saved_to_json(made)
    public: Any = plan_to_json(made)
    assert set(saved) == TOP | {
        "project",
        "destroy",
        "values_left_out",
        "identity",
        "package_lists",
    }
    for full, short in zip(saved["changes"], public["changes"], strict=True):
        assert set(full) == CHANGE | {"launch", "unchanged", "nulls", "drifted"}
        assert {key: full[key] for key in CHANGE} == short


def test_a_saved_plan_comes_back_whole(made: Any) -> None:
    back, findings = saved_from_json(saved_text(made))
    assert findings == ()
    assert back == made
    assert back is not None
    assert plan_id(back) == plan_id(made)


def test_null_and_nothing_come_back_as_what_they_were(world: Any) -> None:
    spec = {"gpus": 1, "type": "CPU", "entrypoint": "a.py"}
    before = {**spec, "args": {"gone": None, "same": 1, "emptied": 1}}
    after = {**spec, "args": {"new": None, "same": 1, "emptied": None}}
    made = world.had(AttemptState.SUCCEEDED, spec=before).want(spec=after).plan()
    found = {field.path: (field.added, field.removed) for field in made.changes[0].fields}
    assert found == {
        "args.gone": (False, True),
        "args.new": (True, False),
        "args.emptied": (False, False),
    }
    assert saved_from_json(saved_text(made)) == (made, ())


def test_an_environment_comes_back_whole(made: Any) -> None:
    from dataclasses import replace

    packages = (
        PackageChange(name="a", before=None, after="1"),
        PackageChange(name="b", before="1", after=None),
        PackageChange(name="c", before="1", after="2"),
    )
    environment = EnvironmentChange(digest="sha256:" + "e" * 64, packages=packages, bytes=5)
    changes = (replace(made.changes[0], environment=environment), *made.changes[1:])
    other = replace(made, changes=changes)
    assert saved_from_json(saved_text(other)) == (other, ())


def refusal(text: str) -> Any:
    plan, findings = saved_from_json(text, "p.json")
    assert plan is None
    (found,) = findings
    assert found.hint
    assert "p.json" in found.summary
    return found


def test_every_cut_is_refused(made: Any) -> None:
    text = saved_text(made).rstrip()
    for end in range(0, len(text), 41):
        refusal(text[:end])
    assert refusal(text[: len(text) // 2]).code == "truncated_plan"
    assert refusal(text[:-1]).code == "truncated_plan"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: train",
        "[]",
        "{}",
        "null",
        '{"a": NaN}',
        "[" * 100_000,
        '{"a":' + "9" * 5000 + "}",
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    assert refusal(text).code in {"bad_plan", "truncated_plan"}


def test_another_format_is_refused_by_its_number(made: Any) -> None:
    found = refusal(json.dumps({**saved_to_json(made), "format_version": "2.0"}))
    assert found.code == "plan_format"
    assert "`2.0`" in found.summary


def resaved(value: Any) -> str:
    """The text of a saved plan that another version wrote."""
    return canonical({**value, "checksum": digest(canonical(value))})


def test_a_plan_of_an_older_sgpu_is_read(made: Any) -> None:
    older: Any = {**saved_to_json(made), "format_version": "1.0"}
    del older["git"], older["project_name"]
    older["changes"] = [
        {
            key: item
            for key, item in change.items()
            if key not in ("cause", "moved_from", "unavailable")
        }
        for change in older["changes"]
    ]
    for prior in filter(None, (change["prior"] for change in older["changes"])):
        del prior["failure"]
    assert saved_from_json(resaved(older)) == (made, ())
    older["git"] = {"commit": "c0" * 20, "branch": "main", "dirty": "true"}
    plan, findings = saved_from_json(resaved(older))
    assert findings == ()
    assert plan is not None
    assert plan.git == GitFacts(commit="c0" * 20, branch="main", dirty=True)


def test_a_plan_of_a_newer_sgpu_with_the_same_major_number_is_read(made: Any) -> None:
    newer: Any = json.loads(canonical({**saved_to_json(made), "format_version": "1.7", "odd": 1}))
    newer["changes"][0]["odd"] = {"a": 1}
    assert saved_from_json(resaved(newer)) == (made, ())
    del newer["serial"]
    assert "serial" in refusal(resaved(newer)).summary


@pytest.mark.parametrize("version", ["2.0", "10.1", "1", "1.1.1", "1.x", "", None, 1.1])
def test_another_major_format_is_refused(made: Any, version: object) -> None:
    found = refusal(resaved({**saved_to_json(made), "format_version": version}))
    assert found.code == "plan_format"
    assert "reads `1.4`" in found.summary


@pytest.mark.parametrize(
    "git",
    [
        {"branch": "x" * 5000},
        {"branch": "\x1b"},
        {"tree": "--output=/etc/passwd"},
        {"commit": "HEAD; true"},
        {"dirty": "true"},
        {"odd": None},
    ],
)
def test_what_no_checkout_says_is_refused(made: Any, git: dict[str, Any]) -> None:
    empty = dict.fromkeys(("commit", "branch", "dirty", "base", "tree"))
    value = {**saved_to_json(made), "git": {**empty, **git}}
    assert refusal(resaved(value)).code == "bad_plan"


def test_the_answer_of_plan_as_json_is_not_a_saved_plan(made: Any) -> None:
    assert "lacks what apply needs" in refusal(json.dumps(plan_to_json(made))).summary


@pytest.mark.parametrize("where", ["top", "change", "launch"])
def test_an_unknown_key_is_refused_with_its_place(made: Any, where: str) -> None:
    value: Any = json.loads(saved_text(made))
    target = {
        "top": value,
        "change": value["changes"][0],
        "launch": value["changes"][0]["launch"],
    }[where]
    target["odd"] = 1
    assert "odd" in refusal(json.dumps(value)).summary


def test_every_missing_or_mistyped_key_is_refused(made: Any) -> None:
    text = saved_text(made)
    for key in json.loads(text):
        value = json.loads(text)
        del value[key]
        refusal(json.dumps(value))
        refusal(json.dumps({**value, key: {"odd": object.__name__}}))
    for key in json.loads(text)["changes"][1]:
        value = json.loads(text)
        del value["changes"][1][key]
        assert f"changes[1].{key}" in refusal(json.dumps(value)).summary


def test_equal_plans_are_equal_bytes(made: Any, world: Any) -> None:
    assert saved_text(made) == saved_text(world.plan())


def test_every_changed_character_is_refused(made: Any) -> None:
    text = saved_text(made).rstrip()
    for place in range(0, len(text), 17):
        other = "x" if text[place] != "x" else "y"
        refusal(f"{text[:place]}{other}{text[place + 1 :]}")


def test_a_plan_that_was_edited_is_refused(made: Any) -> None:
    saved = json.loads(saved_text(made))
    saved["changes"][0]["attempt"] = 77
    found = refusal(json.dumps(saved))
    assert found.code == "plan_edited"
    assert "was changed after it was saved" in found.summary
    assert "plan again" in str(found.hint) or "sgpu plan" in str(found.hint)
