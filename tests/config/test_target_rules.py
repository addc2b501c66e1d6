"""`branch`, `requires` and `user` of a target, as files have them."""

import pytest

from sgpu_decl.config.target_rules import TargetRules, target_rules
from sgpu_decl.text.yaml_reader import load_file
from tests.config.conftest import including, outcome
from tests.reading import clean

ROOT = "project: {name: p}\nruns: {a: {gpus: 1, type: CPU, command: x}}\n"
PROD = """\
targets:
  prod: {branch: main, requires: reviewed, user: 1f3e-uuid}
  eu: {extends: prod, branch: eu}
  free: {extends: prod, branch: null, requires: null, user: null}
  dev: {}
"""


def rules(target: str) -> TargetRules:
    document, _ = load_file(ROOT + PROD, "sgpu.yml")
    assert document is not None
    return target_rules(document.root, target)


def test_a_target_has_its_rules_and_those_of_the_targets_that_it_extends() -> None:
    prod, eu = rules("prod"), rules("eu")
    assert prod.branch is not None
    assert prod.user is not None
    assert (prod.branch[0], str(prod.branch[1])) == ("main", "sgpu.yml:4:18")
    assert prod.user[0] == "1f3e-uuid"
    assert str(prod.reviewed) == "sgpu.yml:4:34"
    assert eu.branch is not None
    assert (eu.branch[0], eu.user) == ("eu", prod.user)
    assert rules("free") == rules("dev") == rules("none") == TargetRules()


def test_rules_change_nothing_of_runs() -> None:
    ours = clean(outcome(ROOT + PROD, "sgpu.yml", target="prod"))
    assert ours.config_digest == clean(outcome(ROOT, "sgpu.yml")).config_digest


@pytest.mark.parametrize(
    "rule",
    ["branch: '${var.branch}'", "branch: [main]", "requires: 'sgpu>=0.1'", "requires: {}",
     "user: ''", "user: '${env.USER}'"],
)  # fmt: skip
@pytest.mark.parametrize("target", [None, "prod"])
def test_what_is_no_rule_is_named_in_each_target(rule: str, target: str | None) -> None:
    text = f"{ROOT}targets: {{prod: {{{rule}}}}}\nvariables: {{branch: main}}\n"
    _, findings = outcome(text, "sgpu.yml", target=target)
    assert [one.code for one in findings] == ["bad_target_rule"]


def test_rules_stand_in_the_root_file() -> None:
    files = including({"a.yml": "targets: {prod: {branch: main}}\n"})
    _, findings = outcome(ROOT + "include: [a.yml]\n", "sgpu.yml", read_included=files)
    assert [one.code for one in findings] == ["root_only"]
    run = "name: a\ngpus: 1\ntype: CPU\ncommand: x\ntargets: {prod: {branch: main}}\n"
    _, findings = outcome(run, target="prod")
    assert [one.code for one in findings] == ["unknown_key"]
