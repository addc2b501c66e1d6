"""`sgpu explain`: what a code means, and what to do; what a field means."""

from typing import Any

import pytest


def test_a_code_is_explained_with_an_example_and_the_way_out(sgpu: Any) -> None:
    answer = sgpu.done("explain", "unknown_key")
    assert answer.out.splitlines() == [
        "unknown_key (error)",
        "",
        "The block does not know this key.",
        "",
        "example:",
        "    gpsu: 4",
        "",
        "what to do: Use the key that the message suggests; `sgpu explain run` lists all.",
    ]


def test_the_code_of_a_shown_mistake_can_be_explained(sgpu: Any) -> None:
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\nuntil: forever\n")
    error = sgpu.error("validate")
    for code in (error["code"], *(found["code"] for found in error["diagnostics"])):
        explained = sgpu.data("explain", code)
        assert explained["code"] == code
        assert explained["meaning"]
        assert explained["solution"]


def test_json_says_what_a_code_is_of(sgpu: Any) -> None:
    both = sgpu.data("explain", "active_run")
    assert (both["severities"], both["exit_code"]) == (["error"], 1)
    check = sgpu.data("explain", "near_reference")
    assert (check["severities"], check["exit_code"]) == (["error", "warning"], None)
    error = sgpu.data("explain", "state_locked")
    assert (error["severities"], error["exit_code"]) == ([], 3)


def test_without_a_code_all_are_listed(sgpu: Any) -> None:
    family, listed = "", []
    for line in sgpu.here("explain").out.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            family = line.removesuffix(":")
        else:
            listed.append((line.split()[0], family))
    every = sgpu.data("explain")
    kinds = [(kind["kind"], "failures of runs") for kind in every["kinds"]]
    assert sorted(listed) == sorted(
        [*((code["code"], code["family"]) for code in every["codes"]), *kinds]
    )
    assert ("state_locked", "states") in listed
    assert ("cuda_out_of_memory", "failures of runs") in kinds
    assert not {code["code"] for code in every["codes"]}.intersection(dict(kinds))


def test_a_kind_of_failure_is_explained(sgpu: Any) -> None:
    lines = sgpu.done("explain", "gated_model").out.splitlines()
    assert lines[0] == "gated_model (user error)"
    assert lines[2].startswith("A model or data set on Hugging Face is gated, and the run has no")
    assert lines[4].startswith("what to do: ask for access on its page, and pass a token: ")
    assert lines[5] == "source: https://huggingface.co/docs/hub/models-gated"
    assert "`docs/failures.md`" in lines[6]
    told = sgpu.data("explain", "gated_model")
    assert (told["kind"], told["blame"]) == ("gated_model", "error")
    assert "`gated_model`" in sgpu.here("explain", "gated-modell").err


def test_an_unknown_code_is_answered_with_the_nearest(sgpu: Any) -> None:
    misspelt = sgpu.exits(1, "explain", "unkown-key")
    assert "there is no code, kind of failure or field `unkown-key`" in misspelt.err
    assert "hint: did you mean `unknown_key`" in misspelt.err
    assert "`psutil_missing`" in sgpu.here("explain", "psutil").err
    assert "hint: `sgpu explain` lists all codes" in sgpu.here("explain", "").err


def test_a_field_is_explained(sgpu: Any) -> None:
    variables = sgpu.here("explain", "run.env.variables")
    assert variables.out.startswith("run.env.variables: mapping of text\n")
    assert "run.gpus" in [field["path"] for field in sgpu.data("explain", "run")["children"]]
    assert "project.removed: " in sgpu.here("explain", "project.removed").out


def test_a_field_that_is_misspelt_is_answered_with_the_nearest(sgpu: Any) -> None:
    wrong = sgpu.here("explain", "run.env.variabels")
    assert wrong.code == 1
    assert "`run.env.variables`" in wrong.err.partition("hint: did you mean ")[2]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("gpus", "run.gpus: whole number\n"),
        ("env.variables", "run.env.variables: mapping of text\n"),
        ("removed", "project.removed: "),
        ("targets", "project.targets: mapping of mapping\n"),
        ("project.targets", "project.targets: mapping of mapping\n"),
        ("run.targets", "run.targets: mapping of mapping\n"),
        ("targets.extends", "project.targets.NAME.extends: text\n"),
        ("targets.prod.runs", "project.targets.NAME.runs: "),
        ("variables", "project.variables: mapping of text, number, true or false\n"),
        ("variables.lr.default", "project.variables.NAME.default: any value\n"),
        ("jobs.trigger", "project.jobs.trigger: mapping\n  The event that starts"),
        ("project.jobs.nightly.trigger", "project.jobs.nightly.trigger: mapping\n  The event"),
        ("jobs.trigger.every", "project.jobs.trigger.every: duration"),
    ],
)
def test_a_field_is_explained_by_each_name_of_it(sgpu: Any, name: str, shown: str) -> None:
    explained = sgpu.here("explain", name)
    assert explained.code == 0, explained.err
    assert explained.out.startswith(shown)


def test_every_field_of_the_schemas_is_explained(sgpu: Any) -> None:
    for kind in ("run", "project"):
        schema = sgpu.here("schema", "-o", "json").json["data"][kind]
        children = sgpu.here("explain", kind, "-o", "json").json["data"]["children"]
        assert {one["path"] for one in children} == {
            f"{kind}.{key}" for key in schema["properties"]
        }
