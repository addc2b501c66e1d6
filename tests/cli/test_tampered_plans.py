"""A saved plan that somebody edited, the checksum too: refused, and nothing is launched."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.model.jsonable import Json, canonical, digest
from tests.cli.conftest import Shell

RUN = """\
name: train
gpus: 1
type: CPU
entrypoint: train.py:main
args: {{n: {n}, note: text}}
mlflow: {{enabled: false}}
"""
VALUES: tuple[Json, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "../../x",
    "/etc/passwd",
    "\0",
    "x" * 100_000,
    [],
    {},
)
# What tells how the plan came about, and decides nothing that is launched or stopped.
BESIDE = {
    "tool_version", "created_at", "config_digest", "complete", "checks", "estimate", "origin",
    "reason", "prior", "depends_on", "effect", "unchanged", "nulls", "drifted", "package_lists",
    "destructive", "files", "bytes", "changed", "packages_digest", "pool",
    "project", "project_name", "git", "counted", "unavailable",
}  # fmt: skip

Path_ = tuple[str | int, ...]


@pytest.fixture
def saved(sgpu: Shell) -> dict[str, Any]:
    """A saved plan that changes a field of a run that was applied."""
    sgpu.write("run.yaml", RUN.format(n=1))
    sgpu.write("train.py", "def main(n, note):\n    print('ran', n)\n")
    assert sgpu.here("apply", "-y").code == 0
    sgpu.write("run.yaml", RUN.format(n=2))
    assert sgpu.here("plan", "--out", "run.plan").code == 0
    loaded: dict[str, Any] = json.loads((sgpu.folder / "run.plan").read_text())
    return loaded


def write(sgpu: Shell, plan: dict[str, Any]) -> None:
    """Save a plan as if it had been made so."""
    rest = {key: value for key, value in plan.items() if key != "checksum"}
    text = canonical({**rest, "checksum": digest(canonical(rest))})
    (sgpu.folder / "run.plan").write_text(text)


def attempts(sgpu: Shell) -> list[str]:
    return sorted(os.listdir(sgpu.folder / ".sgpu/default/runs/train"))


def everything(sgpu: Shell) -> set[Path]:
    """All files of the project and around it, but for what was launched."""
    around = sgpu.folder.parent
    return {path for path in around.rglob("*") if not path.is_relative_to(sgpu.folder / ".sgpu")}


def edit_spec(change: dict[str, Any], **fields: Any) -> None:
    launch = change["launch"]
    launch["spec"] = canonical({**json.loads(launch["spec"]), **fields})


TAMPERINGS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a huge attempt": lambda one: one.update(attempt=10**30),
    "another attempt": lambda one: one.update(attempt=7),
    "a spec that is no JSON": lambda one: one["launch"].update(spec="{"),
    "a spec that is no run": lambda one: one["launch"].update(spec='{"gpus":"many"}'),
    "another spec": lambda one: edit_spec(one, args={"n": 3, "note": "text"}),
    "another entrypoint": lambda one: edit_spec(one, entrypoint="evil.py:main"),
    "a cell that cannot be": lambda one: one["launch"].update(cell="first"),
    "a token that is a path": lambda one: one["launch"].update(token="../../../x"),
    "another token": lambda one: one["launch"].update(token="sgpu1-" + "a" * 52),
    "another fingerprint": lambda one: one["launch"].update(fingerprint="sha256:" + "0" * 64),
    "code that is a path": lambda one: one["launch"].update(code_digest="../../x"),
    "waiting for nobody": lambda one: one["launch"].update(wait_for=[1]),
    "waiting for a later one": lambda one: one["launch"].update(wait_for=[9]),
    "after a run that nobody launches": lambda one: one.update(
        after=[{"address": "run.other", "attempt": 1}]
    ),
    "after itself": lambda one: one.update(
        after=[{"address": one["address"], "attempt": one["attempt"]}]
    ),
    "stopping nobody": lambda one: one["launch"].update(stop=[1]),
    "another value shown": lambda one: one["fields"][0].update(after=1),
    "a former value shown": lambda one: one["fields"][0].update(before=2),
    "nothing shown": lambda one: one.update(fields=[]),
    "another address": lambda one: one.update(address="run.other"),
    "another kind": lambda one: one.update(kind="job"),
    "another action": lambda one: one.update(action="no_op"),
    "another backend": lambda one: one.update(backend="databricks"),
    "an owner elsewhere": lambda one: one["launch"].update(owner="/etc/passwd"),
}


@pytest.mark.parametrize("tampering", TAMPERINGS.values(), ids=TAMPERINGS)
def test_what_was_edited_is_refused_and_nothing_is_launched(
    sgpu: Shell, saved: dict[str, Any], tampering: Callable[[dict[str, Any]], object]
) -> None:
    before = everything(sgpu)
    tampering(saved["changes"][0])
    write(sgpu, saved)
    refused = sgpu.here("apply", "run.plan", "-o", "json")
    assert refused.code == 1
    assert refused.json["error"]["code"] == "invalid_input"
    assert "sgpu plan --out" in refused.json["error"]["hint"]
    assert attempts(sgpu) == ["1"]
    assert everything(sgpu) == before


@pytest.mark.parametrize("part", ["applyable", "check"])
def test_what_a_plan_says_of_itself_is_derived_again(
    sgpu: Shell, saved: dict[str, Any], part: str
) -> None:
    if part == "applyable":
        saved["applyable"] = False
    else:
        saved["checks"][0]["id"] = "\x1b]0;title\x07"
    write(sgpu, saved)
    refused = sgpu.here("apply", "run.plan")
    assert refused.code == 1
    assert "is not what `sgpu plan` made" in refused.err
    assert "\x1b" not in refused.out + refused.err
    assert attempts(sgpu) == ["1"]


def test_what_was_edited_consistently_is_refused_by_what_is_recorded(
    sgpu: Shell, saved: dict[str, Any]
) -> None:
    """A spec with its own fingerprint and token, which anybody can compute, shown as another."""
    from sgpu_decl.model.address import Address
    from sgpu_decl.planning.fingerprint import fingerprint, token

    (change,) = saved["changes"]
    launch = change["launch"]
    edit_spec(change, args={"n": 2, "note": "hidden"})
    launch["fingerprint"] = fingerprint(launch["spec"], launch["code_digest"])
    launch["token"] = token(
        saved["lineage"], Address.run("train"), change["attempt"], launch["fingerprint"]
    )
    write(sgpu, saved)
    refused = sgpu.here("apply", "run.plan")
    assert refused.code == 1
    assert "does not show what changes of `run.train`" in refused.err
    assert attempts(sgpu) == ["1"]


def test_a_plan_that_nobody_edited_is_applied(sgpu: Shell, saved: dict[str, Any]) -> None:
    write(sgpu, saved)
    assert sgpu.here("apply", "run.plan").code == 0
    assert attempts(sgpu) == ["1", "2"]


def test_a_plan_of_a_folder_that_is_no_project_makes_none(
    sgpu: Shell, saved: dict[str, Any], tmp_path: Path
) -> None:
    """A path in a plan decides nothing: state would be made where it leads."""
    elsewhere, away = tmp_path / "elsewhere", tmp_path / "away"
    elsewhere.mkdir()
    away.mkdir()
    write(sgpu, {**saved, "project": str(elsewhere), "serial": 0})
    refused = sgpu("apply", str(sgpu.folder / "run.plan"), cwd=away)
    assert refused.code in (1, 3), refused.err
    assert list(elsewhere.iterdir()) == []
    assert list(away.iterdir()) == []


def places(value: object, path: Path_ = ()) -> Iterator[Path_]:
    """Where every leaf is, and every list and mapping."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(
        value, list
    ) else ()  # fmt: skip
    for key, item in inside:
        yield from places(item, (*path, key))


def replaced(plan: dict[str, Any], path: Path_, value: object) -> dict[str, Any]:
    copy: Any = json.loads(json.dumps(plan))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    whole: dict[str, Any] = copy
    return whole


@pytest.mark.expensive
def test_any_edit_of_a_saved_plan_is_refused_or_has_no_effect(
    sgpu: Shell, saved: dict[str, Any], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(sgpu.folder / ".sgpu", kept, symlinks=True)
    before = everything(sgpu)
    for path in places({key: item for key, item in saved.items() if key != "checksum"}):
        for value in VALUES:
            changed = replaced(saved, path, value)
            write(sgpu, changed)
            answer = sgpu.here("apply", "run.plan", "-o", "json")
            said = answer.err + answer.out
            assert "Traceback" not in said, (path, value)
            assert everything(sgpu) == before, (path, value)
            if changed == saved or answer.code in (0, 3):
                decides = not BESIDE & set(path) and changed != saved and answer.code == 0
                assert not decides, (path, value)
                shutil.rmtree(sgpu.folder / ".sgpu")
                shutil.copytree(kept, sgpu.folder / ".sgpu", symlinks=True)
            assert attempts(sgpu) == ["1"], (path, value)
