"""`--strict`: warnings are errors."""

import pytest

from tests.cli.conftest import Shell
from tests.support import FUNCTION_RUN

WARNED = FUNCTION_RUN + "args: {path: $HOME/data}\n"


@pytest.fixture
def warned(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", WARNED)
    sgpu.write("train.py", "def main(path): ...\n")
    return sgpu


def test_validate_refuses_what_it_warns_of(warned: Shell) -> None:
    warned.done("validate")
    refused = warned.here("validate", "--strict")
    assert (refused.code, refused.out) == (1, "")
    assert "error[shell_reference]" in refused.err
    assert "error[invalid_input]: `run.yaml` is not valid" in refused.err
    error = warned.error("validate", "--strict")
    assert [one["severity"] for one in error["diagnostics"]] == ["error"]


def test_a_plan_with_warnings_cannot_be_applied(warned: Shell) -> None:
    warned.done("plan")
    refused = warned.exits(1, "plan", "--strict", "--out", "x.plan", "-o", "json")
    assert refused.json["error"]["code"] == "plan_has_errors"
    data = refused.json["data"]
    assert not data["applyable"]
    severities = {check["id"]: check["severity"] for check in data["checks"]}
    assert severities["shell_reference"] == "error"
    assert "warning" not in severities.values()
    assert not (warned.folder / "x.plan").exists()


def test_without_warnings_nothing_is_different(sgpu: Shell) -> None:
    sgpu.write("run.yaml", FUNCTION_RUN)
    sgpu.write("train.py", "def main(): ...\n")
    assert sgpu.here("validate", "--strict").out == sgpu.here("validate").out
    plans = [sgpu.here("plan", *words, "-o", "json") for words in ([], ["--strict"])]
    assert [plan.code for plan in plans] == [0, 0]
    assert plans[0].json["data"]["checks"] == plans[1].json["data"]["checks"]
