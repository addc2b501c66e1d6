"""`renamed_from`: a run or a job under a new name keeps its history."""

from pathlib import Path

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.storing.stores import local_store
from tests.cli.conftest import Shell
from tests.support import some

FIELDS = "gpus: 1, type: CPU, mlflow: {enabled: false}, grace: 0.5s"
BEFORE = f"""\
project: {{name: demo}}
runs:
  old: {{{FIELDS}, command: [echo, kept]}}
"""
AFTER = BEFORE.replace("old: {", "new: {renamed_from: old, ")
CELLS = 'command: [echo, "${matrix.n}"], matrix: {n: [1, 2]}'
OTHER = f"  other: {{{FIELDS}, command: [echo, hi]}}\n"


@pytest.fixture
def applied(sgpu: Shell) -> Shell:
    """A project whose run was applied, and then renamed in the file."""
    sgpu.write("sgpu.yml", BEFORE)
    sgpu.done("apply", "-y")
    sgpu.write("sgpu.yml", AFTER)
    return sgpu


def attempts(sgpu: Shell) -> dict[str, int]:
    runs = sgpu.data("status")["runs"]
    return {run["name"]: run["attempt"] for run in runs}


def test_the_history_moves_and_nothing_is_launched(applied: Shell) -> None:
    plan = applied.exits(2, "plan", "--detailed-exitcode")
    assert "    run.new  moved from run.old; up to date: new#1 succeeded" in plan.out
    assert "new renamed: it was run.old" in applied.done("apply", "-y").err
    assert attempts(applied) == {"new": 1}
    assert applied.here("logs", "new").out == "kept\n"
    applied.done("plan", "--detailed-exitcode")
    assert (applied.folder / ".sgpu/default/runs/new/1").is_dir()
    assert not (applied.folder / ".sgpu/default/runs/old").exists()


def test_the_line_may_stay_and_may_go(applied: Shell) -> None:
    applied.done("apply", "-y")
    applied.done("apply", "-y")
    applied.write("sgpu.yml", AFTER.replace("renamed_from: old, ", ""))
    applied.done("plan", "--detailed-exitcode")
    assert attempts(applied) == {"new": 1}


def test_it_has_to_be_approved(applied: Shell) -> None:
    refused = applied.here("apply")
    assert refused.code != 0
    assert "cannot ask for approval" in refused.err
    assert attempts(applied) == {"old": 1}


def test_a_saved_plan_renames_once(applied: Shell) -> None:
    applied.done("plan", "--out", "rename.plan")
    applied.done("apply", "rename.plan")
    assert attempts(applied) == {"new": 1}
    applied.exits(3, "apply", "rename.plan")


def test_an_apply_of_another_run_renames_too(applied: Shell) -> None:
    applied.write("sgpu.yml", AFTER + OTHER)
    applied.done("apply", "-y", "--select", "other")
    assert attempts(applied) == {"new": 1, "other": 1}
    applied.done("plan", "--detailed-exitcode")


def test_the_old_name_selects_nothing(applied: Shell) -> None:
    refused = applied.here("plan", "--select", "run.old")
    assert refused.code != 0
    assert "run.old" in refused.err


def test_destroy_knows_what_is_recorded(applied: Shell) -> None:
    applied.done("destroy", "-y")
    plan = applied.exits(2, "plan", "--detailed-exitcode")
    assert "create new#1" in plan.out
    assert "moved" not in plan.out


def test_markdown_shows_it(applied: Shell) -> None:
    plan = applied.here("plan", "-o", "markdown")
    assert "| moved | `run.new` | moved from `run.old`; up to date" in plan.out


def test_the_cells_of_a_matrix_are_shown_as_one(sgpu: Shell) -> None:
    matrix = BEFORE.replace("command: [echo, kept]", CELLS)
    sgpu.write("sgpu.yml", matrix)
    sgpu.done("apply", "-y")
    sgpu.write("sgpu.yml", matrix.replace("old: {", "new: {renamed_from: old, "))
    row = "`run.new`, 2 runs | moved from `run.old`; up to date (last attempts: 2 succeeded) |"
    assert row in sgpu.here("plan", "-o", "markdown").out
    text = "    run.new  2 runs moved from run.old; up to date (last attempts: 2 succeeded)\n"
    assert text in sgpu.here("plan").out


def test_a_run_that_reads_its_output_is_not_launched_again(sgpu: Shell) -> None:
    reader = f"  reader: {{{FIELDS}, after: [old], command: [ls, '${{run.old.output}}']}}\n"
    sgpu.write("sgpu.yml", BEFORE + reader)
    sgpu.done("apply", "-y")
    sgpu.write("sgpu.yml", AFTER + reader.replace("old", "new"))
    plan = sgpu.here("plan")
    assert "run.reader  update" in plan.out
    assert "0 to create, 1 to update" in plan.out
    sgpu.done("apply", "-y")
    assert attempts(sgpu) == {"new": 1, "reader": 1}
    sgpu.done("plan", "--detailed-exitcode")
    sgpu.write("sgpu.yml", AFTER + reader.replace("old", "new").replace("ls,", "ls, -l,"))
    sgpu.done("apply", "-y")
    assert attempts(sgpu) == {"new": 1, "reader": 2}


def test_an_active_run_is_not_renamed(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", BEFORE.replace("[echo, kept]", '[sleep, "600"]'))
    sgpu.done("apply", "-y", "--detach")
    try:
        sgpu.write("sgpu.yml", AFTER.replace("[echo, kept]", '[sleep, "600"]'))
        refused = sgpu.exits(1, "apply", "-y")
        assert "`old#1` is active: `old` cannot be renamed before it has ended" in refused.err
        assert "sgpu.yml:3:23" in refused.err
        assert attempts(sgpu) == {"old": 1}
    finally:
        sgpu.done("cancel", "old#1")
    assert sgpu("wait", "old").code == 5
    sgpu.done("plan")


def moved_elsewhere(folder: Path) -> None:
    """Move the record alone, as a process that is killed then, or another machine."""
    store = local_store(folder / ".sgpu/default")
    state = some(store.read())
    with store.lock("apply", lineage=state.lineage) as writer:
        writer.move(Address.run("old"), Address.run("new"))
    store.close()


def test_folders_follow_a_record_that_was_moved_without_them(applied: Shell) -> None:
    moved_elsewhere(applied.folder)
    assert (applied.folder / ".sgpu/default/runs/old/1").is_dir()
    assert applied.here("logs", "new").out == "kept\n"
    assert (applied.folder / ".sgpu/default/runs/new/1").is_dir()
    applied.done("plan", "--detailed-exitcode")


def test_the_next_attempt_has_its_folder_beside_one_that_followed(applied: Shell) -> None:
    moved_elsewhere(applied.folder)
    applied.write("sgpu.yml", AFTER.replace("[echo, kept]", "[echo, again]"))
    applied.done("apply", "-y")
    assert applied.here("logs", "new").out == "again\n"
    assert applied.here("logs", "new#1").out == "kept\n"


def test_the_old_name_can_be_used_again(applied: Shell) -> None:
    moved_elsewhere(applied.folder)
    applied.write("sgpu.yml", BEFORE.replace("old:", "new:") + OTHER.replace("other", "old"))
    applied.done("apply", "-y")
    assert attempts(applied) == {"new": 1, "old": 2}
    assert applied.here("logs", "new").out == "kept\n"
    assert applied.here("logs", "old").out == "hi\n"


@pytest.fixture
def silently_renamed(sgpu: Shell) -> Shell:
    """A project whose run and sweep were applied, and then called otherwise without a word."""
    sweep = f"  sw: {{{FIELDS}, {CELLS}}}\n"
    sgpu.write("sgpu.yml", BEFORE + sweep + OTHER)
    sgpu.done("apply", "-y")
    sgpu.write("sgpu.yml", (BEFORE + sweep + OTHER).replace("old:", "new:").replace("sw:", "tune:"))
    return sgpu


def test_a_rename_that_the_file_does_not_say_is_recognised(silently_renamed: Shell) -> None:
    plan = silently_renamed.done("plan")
    assert (
        "warning[likely_rename]: run.new: `run.old` is declared no more, and has the same code and "
        "config\n  --> sgpu.yml:3:15\n  hint: did you mean `renamed_from: old`? The history then "
        "moves along, and nothing is launched for it\n"
    ) in plan.out
    assert "run.tune: `run.sw` is declared no more" in plan.out
    found = {one["address"]: one for one in silently_renamed.checks(id="likely_rename")}
    assert set(found) == {"run.new", "run.tune"}
    text = (silently_renamed.folder / "sgpu.yml").read_text()
    for new, old in (("new", "old"), ("tune", "sw")):  # the hint is followed
        assert f"`renamed_from: {old}`" in found[f"run.{new}"]["hint"]
        text = text.replace(f"{new}: {{", f"{new}: {{renamed_from: {old}, ")
    silently_renamed.write("sgpu.yml", text)
    summary = silently_renamed.data("plan")["summary"]
    assert summary == {**dict.fromkeys(summary, 0), "no_op": 4}


def test_a_rename_is_meant_once_the_plan_is_applied(silently_renamed: Shell) -> None:
    silently_renamed.done("apply", "-y")
    assert "likely_rename" not in silently_renamed.done("plan", "--detailed-exitcode").out


def test_a_run_file_may_call_its_run_otherwise(sgpu: Shell) -> None:
    text = "name: old\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\ncommand: [echo, kept]\n"
    sgpu.write("run.yaml", text)
    sgpu.done("apply", "run.yaml", "-y")
    sgpu.write("run.yaml", text.replace("old", "new"))
    assert "`run.old` is declared no more" in sgpu.here("plan", "run.yaml").out
    sgpu.write("other.yaml", text.replace("old", "other"))
    assert "likely_rename" not in sgpu.here("plan", "other.yaml").out
    (sgpu.folder / "run.yaml").unlink()
    plan = sgpu.here("plan", "other.yaml")  # the file is called otherwise, too
    assert "run.other: `run.old` is declared no more" in plan.out
    assert "`renamed_from: old`" in plan.out
    sgpu.write("other.yaml", text.replace("old", "other") + "renamed_from: old\n")
    moved = sgpu.here("plan", "other.yaml")
    assert "run.other  moved from run.old; update\n" in moved.out
    assert "`other.yaml` declares it now (other#1 succeeded" in moved.out


@pytest.mark.parametrize(
    ("source", "destination", "said"),
    [
        (
            "olb",
            "new",
            ("under `olb`", "did you mean `old`? The runs here are `old`, `other`, `sw`"),
        ),
        ("nothing", "new", ("hint: the runs here are `old`, `other`, `sw`",)),
        ("new", "old", ("recorded name comes first: `sgpu state mv old new`",)),
        ("run.tune", "sw", ("recorded name comes first: `sgpu state mv sw run.tune`",)),
        ("job.old", "new", ("under `job.old`", "there are no jobs here")),
        ("old", "other", ("`run.other` has a history of its own", "the runs here are `old`,")),
        ("old", "sw", ("`run.sw` is a matrix", "written like 'run.sw[\"n=1\"]'")),
        ("sw", 'tune["n=1"]', ("`sw` has 2 runs", "such as 'run.sw[\"n=1\"]'")),
        ("*", "tune", ("`*` matches several resources",)),
        ("old", "job.new", ("`run.old` cannot become `job.new`",)),
    ],
)
def test_a_move_of_the_record_says_which_names_there_are(
    silently_renamed: Shell, source: str, destination: str, said: tuple[str, ...]
) -> None:
    refused = silently_renamed.exits(1, "state", "mv", source, destination)
    for words in said:
        assert words in refused.err


def moved(sgpu: Shell, *addresses: str) -> dict[str, str]:
    return sgpu.data("state", "mv", *addresses)["moved"]


def test_a_matrix_moves_by_its_name(silently_renamed: Shell) -> None:
    assert moved(silently_renamed, "sw", "tune") == {"from": "run.sw", "to": "run.tune"}
    assert moved(silently_renamed, "old", "new") == {"from": "run.old", "to": "run.new"}
    assert "No changes. 4 unchanged" in silently_renamed.done("plan", "--detailed-exitcode").out
    logs = silently_renamed.here("logs", 'tune["n=2"]')
    assert (logs.code, logs.out) == (0, "2\n")


def test_a_run_of_a_matrix_keeps_its_key_unless_it_is_named_by_it(silently_renamed: Shell) -> None:
    one, two = 'run.sw["n=1"]', 'run.sw["n=2"]'
    assert moved(silently_renamed, one, "alone") == {"from": one, "to": "run.alone"}
    assert moved(silently_renamed, "sw", "tune") == {"from": two, "to": 'run.tune["n=2"]'}
    assert moved(silently_renamed, "alone", 'tune["n=1"]')["to"] == 'run.tune["n=1"]'
    assert moved(silently_renamed, "tune", "sw")["to"] == "run.sw"
    silently_renamed.write("sgpu.yml", BEFORE + f"  sw: {{{FIELDS}, {CELLS}}}\n" + OTHER)
    silently_renamed.done("plan", "--detailed-exitcode")
