"""`extends`: a target lies over another one."""

from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.jsonable import Json
from tests.config.conftest import including, outcome
from tests.reading import clean, read_call

ROOT = "project: {name: p}\nruns:\n  a: {gpus: 1, type: CPU, command: x, timeout: 1h}\n"
CHAIN = """\
targets:
  prod: {extends: staging, runs: {a: {gpus: 8}}}
  staging: {extends: base, runs: {a: {gpus: 4, timeout: 2h}}, variables: {v: 2}}
  base: {runs: {a: {gpus: 2, tags: {team: b}}}}
"""


def spec(text: str, target: str | None, **options: Any) -> dict[str, Any]:
    loaded = clean(outcome(text, "sgpu.yml", target=target, **options))
    return dict(loaded.runs[0].spec.fields)


def refused(targets: str) -> tuple[Diagnostic, ...]:
    loaded, findings = outcome(ROOT + targets, "sgpu.yml")
    assert loaded is None
    return findings


def test_a_target_lies_over_those_that_it_extends() -> None:
    assert spec(ROOT + CHAIN, "prod") == {
        "command": "x", "gpus": 8, "type": "CPU", "timeout": "2h", "tags": {"team": "b"}
    }  # fmt: skip
    assert spec(ROOT + CHAIN, "staging")["gpus"] == 4
    assert spec(ROOT + CHAIN, "base")["timeout"] == "1h"
    assert spec(ROOT + CHAIN, None)["gpus"] == 1


def test_options_win_over_every_target() -> None:
    assert spec(ROOT + CHAIN, "prod", sets=[("runs.a.gpus", "3")])["gpus"] == 3


def test_variables_are_those_of_the_chain() -> None:
    text = ROOT.replace("command: x", "command: 'x ${var.v}'") + "variables: {v: 1}\n" + CHAIN
    assert spec(text, "prod")["command"] == "x 2"
    assert spec(text, "base")["command"] == "x 1"


def test_a_value_knows_what_each_target_of_the_chain_said() -> None:
    _, (finding,) = outcome(ROOT + CHAIN.replace("gpus: 8", "gpus: x"), "sgpu.yml", target="prod")
    assert str(finding.place) == "sgpu.yml:5:45"
    assert [str(one.place) for one in finding.related] == [
        "sgpu.yml:6:45", "sgpu.yml:7:27", "sgpu.yml:3:13"
    ]  # fmt: skip


def test_decorated_functions_get_the_fields_of_the_chain() -> None:
    project = """\
project: {name: p}
functions: {timeout: 1h}
targets:
  prod: {extends: staging, functions: {tags: {a: b}}}
  staging: {functions: {timeout: 2h}}
"""
    fields: dict[str, Json] = {"gpus": 2, "type": "CPU", "entrypoint": "__main__:train"}
    loaded = clean(read_call(fields, project, target="prod"))
    value = loaded.runs[0].spec.fields
    assert (value["timeout"], value["tags"]) == ("2h", {"a": "b"})


def test_a_cycle_is_one_error_with_its_path() -> None:
    (finding,) = refused(
        "targets: {a: {extends: b}, b: {extends: c}, c: {extends: b}, d: {extends: a}}\n"
    )
    assert finding.code == "cyclic_targets"
    assert finding.summary.endswith("`b` → `c` → `b`")
    assert finding.hint
    assert [one.note for one in finding.related] == ["`c` extends `b`"]


def test_a_target_that_extends_itself_is_refused() -> None:
    (finding,) = refused("targets: {a: {extends: a}}\n")
    assert finding.summary == "the target `a` extends itself"


@pytest.mark.parametrize(
    ("targets", "hint"),
    [
        ("{a: {extends: stagng}, staging: {}}", "did you mean `staging`?"),
        ("{a: {extends: x}, staging: {}}", "known: `staging`"),
        ("{a: {extends: x}}", "declare it under `targets`, or remove `extends`"),
    ],
)
def test_a_target_that_extends_nobody_is_refused(targets: str, hint: str) -> None:
    (finding,) = refused(f"targets: {targets}\n")
    assert (finding.code, finding.hint) == ("unknown_extends", hint)
    assert finding.place is not None
    assert finding.place.line == 4


def test_the_name_of_a_target_is_one_name() -> None:
    (finding,) = refused("targets: {a: {extends: [b]}, b: {}}\n")
    assert (finding.code, finding.summary) == (
        "wrong_type", "`targets.a.extends` must be the name of a target"
    )  # fmt: skip


def test_extends_belongs_to_the_root_file() -> None:
    more = including({"a.yml": "targets: {b: {extends: c}, c: {}}\n"})
    _, (finding,) = outcome(ROOT + "include: [a.yml]\n", "sgpu.yml", read_included=more)
    assert (finding.code, str(finding.place)) == ("root_only", "a.yml:1:15")


def test_a_run_file_has_no_chains() -> None:
    text = "name: a\ngpus: 1\ntype: CPU\ncommand: x\ntargets: {b: {extends: c}, c: {}}\n"
    for target in (None, "b"):
        _, (finding,) = outcome(text, "run.yaml", target=target)
        assert (finding.code, str(finding.place)) == ("unknown_key", "run.yaml:5:15")


def test_one_target_is_the_default() -> None:
    _, (finding,) = outcome(
        ROOT + "targets:\n  a: {default: true}\n  b: {default: True}\n", "sgpu.yml"
    )
    assert (finding.code, str(finding.place)) == ("two_default_targets", "sgpu.yml:6:16")
    assert [str(one.place) for one in finding.related] == ["sgpu.yml:5:16"]
    loaded, findings = outcome(
        ROOT + "targets: {a: {default: true}, b: {default: false}, c: {default: null}}\n",
        "sgpu.yml",
        target="a",
    )
    assert (findings, loaded is None) == ((), False)


@pytest.mark.parametrize("value", ["'true'", "yes", "1", "[true]"])
def test_the_default_is_true_or_false(value: str) -> None:
    (finding,) = refused(f"targets: {{a: {{default: {value}}}}}\n")
    assert (finding.code, finding.summary) == (
        "wrong_type", "`targets.a.default` must be true or false"
    )  # fmt: skip


def test_the_default_belongs_to_the_root_file() -> None:
    more = including({"a.yml": "targets: {b: {default: true}}\n"})
    _, (finding,) = outcome(ROOT + "include: [a.yml]\n", "sgpu.yml", read_included=more)
    assert (finding.code, str(finding.place)) == ("root_only", "a.yml:1:15")
