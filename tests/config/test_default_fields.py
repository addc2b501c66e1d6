"""`defaults` and `presets`: what lies below every run and job of a project."""

from typing import Any

import pytest

from sgpu_decl.config.loaded import Loaded, Places
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.text.yaml_nodes import place_of
from tests.config.conftest import including, outcome
from tests.reading import clean

ROOT = """\
project: {name: p}
runs:
  a: {gpus: 1, command: x}
  b: {gpus: 2, type: H100, command: [y], timeout: 2h, tags: {own: b}}
jobs:
  j: {run: a, schedule: 0 0 3 * * ?}
"""
DEFAULTS = """\
defaults:
  run: {type: CPU, timeout: 1h, tags: {team: t}, env: {variables: {A: 1}, python: 3.11}}
  job: {timezone: Europe/Berlin, timeout: 3h}
"""


def loaded(text: str, **options: Any) -> Loaded:
    return clean(outcome(text, "sgpu.yml", **options))


def specs(text: str, **options: Any) -> dict[str, Any]:
    found = loaded(text, **options)
    items = [(run.address.name, run.spec) for run in found.runs]
    items += [(job.address.name, job.spec) for job in found.jobs]
    return {name: spec.fields for name, spec in items}


def refused(text: str) -> tuple[Diagnostic, ...]:
    found, findings = outcome(text, "sgpu.yml")
    assert found is None
    return findings


def test_the_field_of_a_run_wins_over_its_default() -> None:
    read = specs(ROOT + DEFAULTS)
    assert read["a"] == {
        "gpus": 1, "command": "x", "type": "CPU", "timeout": "1h", "tags": {"team": "t"},
        "env": {"variables": {"A": "1"}, "python": "3.11"},
    }  # fmt: skip
    assert (read["b"]["type"], read["b"]["timeout"]) == ("H100", "2h")
    assert read["b"]["tags"] == {"team": "t", "own": "b"}
    assert (read["j"]["timezone"], read["j"]["timeout"]) == ("Europe/Berlin", "3h")


def test_each_job_inherits_permissions_budget_and_principal() -> None:
    shared = "permissions: [{level: view, group: users}], budget: team, run_as: {user: a@b.c}"
    text = ROOT + f"defaults: {{run: {{type: CPU}}, job: {{{shared}}}}}\n"
    text += "targets: {prod: {defaults: {job: {budget: prod}}}}\n"
    inherited = specs(text)["j"]
    assert inherited["permissions"] == [{"level": "view", "group": "users"}]
    assert (inherited["budget"], inherited["run_as"]) == ("team", {"user": "a@b.c"})
    assert specs(text, target="prod")["j"]["budget"] == "prod"
    own = text.replace("j: {run: a,", "j: {run: a, budget: own, permissions: [],")
    assert specs(own)["j"]["budget"] == "own"
    assert "permissions" not in specs(own)["j"]
    several = text.replace("j: {run: a, ", "j: {tasks: {t: {run: a}}, ")
    assert specs(several)["j"]["budget"] == "team"


def test_defaults_mean_the_same_as_the_fields_written_out() -> None:
    fields = "type: CPU, timeout: 1h"
    one = loaded(ROOT.replace("command: x", f"command: x, {fields}"))
    assert loaded(ROOT + f"defaults: {{run: {{{fields}}}}}\n").runs[0].spec == one.runs[0].spec


def test_a_run_that_declares_packages_has_no_others() -> None:
    text = ROOT.replace("command: x", "command: x, env: {requirements: r.txt, variables: {B: 2}}")
    text += DEFAULTS.replace("python: 3.11", "snapshot: true")
    assert specs(text)["a"]["env"] == {"requirements": "r.txt", "variables": {"A": "1", "B": "2"}}


def test_a_target_wins_over_the_run_and_changes_defaults_below_it() -> None:
    targets = "targets: {t: {defaults: {run: {timeout: 5h}}, runs: {a: {tags: {team: u}}}}}\n"
    read = specs(ROOT + DEFAULTS + targets, target="t")
    assert (read["a"]["timeout"], read["b"]["timeout"]) == ("5h", "2h")
    assert read["a"]["tags"] == {"team": "u"}
    assert specs(ROOT + DEFAULTS, sets=[("defaults.run.timeout", "7h")])["a"]["timeout"] == "7h"


def test_values_keep_their_places() -> None:
    first, second = loaded(ROOT + DEFAULTS).runs
    assert str(first.places["timeout"]) == "sgpu.yml:8:29"
    assert str(second.places["timeout"]) == "sgpu.yml:4:51"
    assert str(first.places["gpus"]) == "sgpu.yml:3:13"
    assert isinstance(first.places, Places)
    assert str(place_of(first.places.node)) == "sgpu.yml:3:6"
    text = ROOT.replace("timeout: 2h", "timeout: soon") + DEFAULTS
    (finding,) = refused(text)
    assert str(finding.place) == "sgpu.yml:4:51"
    assert [str(one.place) for one in finding.related] == ["sgpu.yml:8:29"]


def test_a_wrong_default_is_reported_once() -> None:
    (finding,) = refused(ROOT + "defaults: {run: {type: CPU, timeout: soon}}\n")
    assert (finding.code, str(finding.place)) == ("bad_duration", "sgpu.yml:7:38")


@pytest.mark.parametrize(
    ("defaults", "code", "place"),
    [
        ("defaults: []", "wrong_type", "7:11"),
        ("defaults: {run: CPU}", "wrong_type", "7:17"),
        ("defaults: {runs: {}}", "unknown_key", "7:12"),
        ("defaults: {run: {timout: 1h, type: CPU}}", "unknown_key", "7:18"),
        ("defaults: {run: {name: n, type: CPU}}", "name_in_project", "7:18"),
        ("defaults: {run: {type: CPU}, job: {zone: UTC}}", "unknown_key", "7:36"),
    ],
)
def test_a_wrong_block_is_refused_at_its_place(defaults: str, code: str, place: str) -> None:
    text = ROOT.replace("command: x", "command: x, type: CPU") + defaults + "\n"
    assert (code, f"sgpu.yml:{place}") in [(one.code, str(one.place)) for one in refused(text)]


def test_what_is_wrong_is_found_without_any_run() -> None:
    (finding,) = refused("project: {name: p}\ndefaults: {run: {timout: 1h}}\n")
    assert (finding.code, finding.hint) == ("unknown_key", "did you mean `timeout`?")


def test_references_of_defaults_are_those_of_the_run() -> None:
    text = """\
project: {name: p}
variables: {t: 4h}
defaults: {run: {timeout: '${var.t}', args: {x: '${matrix.n}'}}}
runs:
  a: {gpus: 1, type: CPU, entrypoint: 'm.py:f', matrix: {n: [1, 2]}}
"""
    first, second = loaded(text).runs
    assert [run.spec.fields["args"] for run in (first, second)] == [{"x": 1}, {"x": 2}]
    assert first.spec.fields["timeout"] == "4h"


def test_defaults_may_stand_in_several_files_each_field_in_one() -> None:
    more = {"a.yml": "defaults: {run: {type: CPU}}\n", "b.yml": "defaults: {run: {timeout: 1h}}\n"}
    text = ROOT + "include: [a.yml, b.yml]\n"
    assert specs(text, read_included=including(more))["a"]["timeout"] == "1h"
    _, (finding,) = outcome(
        text, "sgpu.yml", read_included=including({**more, "c.yml": more["b.yml"]})
    )
    assert finding.code == "declared_twice"
    deep = {"in/a.yml": "defaults: {run: {type: CPU, env: {requirements: r.txt}}}\n"}
    read = specs(text, read_included=including(deep))
    assert read["a"]["env"] == {"requirements": "in/r.txt"}


def test_a_reference_of_a_shell_in_defaults_is_said_once() -> None:
    run = "{type: CPU, args: {d: $HOME/x}}"
    text = (
        f"project: {{name: p}}\ndefaults: {{run: {run}}}\nruns:\n"
        "  a: {gpus: 1, entrypoint: 'm.py:f'}\n  b: {gpus: 1, entrypoint: 'm.py:f'}\n"
    )
    _, findings = outcome(text, "sgpu.yml")
    assert [one.code for one in findings] == ["shell_reference"]
    _, findings = outcome(text.replace("$HOME/x", "'${vars.x}'"), "sgpu.yml")
    assert [(one.code, str(one.severity)) for one in findings] == [("near_reference", "error")]


PRESETS = "{name_prefix: '[s] ', tags: {stage: s}, paused: true}"


def test_presets_lie_between_defaults_and_the_run() -> None:
    text = ROOT + DEFAULTS + f"targets: {{s: {{presets: {PRESETS}}}}}\n"
    text = text.replace("tags: {own: b}", "tags: {stage: own}")
    read = specs(text, target="s")
    assert read["a"]["tags"] == {"team": "t", "stage": "s"}
    assert read["b"]["tags"] == {"team": "t", "stage": "own"}
    assert (read["j"]["name"], read["j"]["paused"], read["j"]["tags"]) == (
        "[s] j", True, {"stage": "s"}
    )  # fmt: skip
    assert "name" not in specs(text)["j"]
    own = text.replace("run: a,", "run: a, name: nightly, paused: false,")
    assert (specs(own, target="s")["j"]["name"], specs(own, target="s")["j"]["paused"]) == (
        "[s] nightly", False
    )  # fmt: skip


def test_presets_need_no_defaults() -> None:
    text = ROOT.replace("command: x", "command: x, type: CPU") + f"presets: {PRESETS}\n"
    assert specs(text)["a"]["tags"] == {"stage": "s"}


def test_presets_of_development_name_the_user() -> None:
    text = ROOT + DEFAULTS + "mode: development\npresets: {name_prefix: 'dev '}\n"
    (finding,) = refused(text)
    assert (finding.code, str(finding.place)) == ("prefix_without_user", "sgpu.yml:11:24")
    assert specs(text.replace("'dev '", "'me ${user}: '"))["j"]["name"] == "me ${user}: j"


@pytest.mark.parametrize(
    ("presets", "code"),
    [
        ("{prefix: x}", "unknown_key"),
        ("{tags: x}", "wrong_type"),
        ("{paused: maybe}", "wrong_type"),
        ("[]", "wrong_type"),
    ],
)
def test_wrong_presets_are_refused(presets: str, code: str) -> None:
    assert code in [one.code for one in refused(ROOT + DEFAULTS + f"presets: {presets}\n")]


def test_presets_belong_to_the_root_file() -> None:
    for text in ("presets: {tags: {a: b}}\n", "targets: {t: {presets: {tags: {a: b}}}}\n"):
        _, findings = outcome(
            ROOT + DEFAULTS + "include: [a.yml]\n",
            "sgpu.yml",
            read_included=including({"a.yml": text}),
        )
        assert [one.code for one in findings] == ["root_only"]
