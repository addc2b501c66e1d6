"""What commands say where there is no project, where nothing was applied, and after destroy."""

from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support import COMMAND_RUN


@pytest.mark.parametrize(
    "arguments",
    [
        ("logs", "hello"),
        ("results", "hello"),
        ("fetch", "hello"),
        ("wait", "hello"),
        ("cancel", "hello"),
        ("show", "hello"),
        ("status", "hello"),
        ("destroy", "-y"),
        ("gc",),
        ("state", "list"),
        ("state", "show", "hello"),
        ("state", "mv", "hello", "other"),
        ("state", "rm", "hello"),
        ("state", "pull"),
        ("state", "unlock", "1"),
        ("env", "show", "hello#1"),
    ],
)
def test_outside_of_a_project_each_command_says_that_there_is_none(
    sgpu: Shell, arguments: list[str]
) -> None:
    refused = sgpu.exits(1, *arguments)
    assert f"error[no_project]: there is no project in `{sgpu.folder}`" in refused.err
    assert "`--project`" in refused.err
    assert sgpu.error(*arguments)["code"] == "no_project"
    assert list(sgpu.folder.iterdir()) == []


def test_status_outside_of_a_project(sgpu: Shell) -> None:
    told = sgpu.here("status")
    assert (told.code, told.out) == (
        0,
        f"no project in `{sgpu.folder}` or in a folder above it\n",
    )
    assert "`sgpu init`" in told.err
    assert sgpu.data("status") == {"project": None, "runs": []}


def test_status_before_the_first_apply(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN)
    assert sgpu.here("status").out == "no runs yet\n"
    assert sgpu.data("status")["project"] == str(sgpu.folder)
    listed = sgpu.here("state", "list")
    assert (listed.code, listed.out) == (0, "")
    assert "the state holds nothing yet" in listed.err
    assert sgpu.here("gc").out == "nothing to free\n"


def test_a_project_is_found_from_a_folder_below_it(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", "project: {name: p}\nruns: {}\n")
    below = sgpu.folder / "deep" / "er"
    below.mkdir(parents=True)
    assert sgpu("status", cwd=below).out == "no runs yet\n"


def test_status_after_destroy_counts_recorded_attempts(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN)
    for options in ((), ("--rerun", "hello")):
        sgpu.done("apply", "-y", *options)
    assert sgpu.here("state", "list").out == "run.hello\n"
    sgpu.done("destroy", "-y")

    assert sgpu.here("state", "list").out == "run.hello (gone)\n"
    (resource,) = sgpu.data("state", "list")["resources"]
    assert (resource["address"], resource["gone"]) == ("run.hello", True)
    assert sgpu.here("status").out == (
        "nothing is live; 2 attempts of 1 run are recorded: see `sgpu state list` and "
        "`sgpu show hello`\n"
    )
    assert "history:\n  #1 succeeded" in sgpu.here("show", "hello").out
    sgpu.done("logs", "hello")
    assert sgpu.here("destroy", "-y").out.startswith("No changes.")
    sgpu.done("apply", "-y")
    assert sgpu.here("state", "list").out == "run.hello\n"


def test_an_address_that_a_run_was_moved_away_from_is_not_listed(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN)
    sgpu.done("apply", "-y")
    sgpu.done("state", "mv", "hello", "other")
    assert sgpu.here("state", "list").out == "run.other\n"
    sgpu.done("state", "rm", "other")
    assert sgpu.here("state", "list").out == "run.other (gone)\n"


def test_a_state_without_a_file_is_a_project(sgpu: Shell, tmp_path: Path) -> None:
    file = sgpu.write("exp.yaml", COMMAND_RUN)
    sgpu.done("apply", "-y", "exp.yaml")
    file.unlink()
    assert "hello#1" in sgpu.here("status").out


def test_destroy_names_a_file_that_is_not_there(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN)
    for path in ("nope.yaml", "runs/nope"):
        assert f"there is no file `{path}`" in sgpu.exits(1, "destroy", "-y", path).err


def test_destroy_takes_the_run_and_not_a_file_of_its_name(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN)
    sgpu.done("apply", "-y")
    sgpu.write("hello", "what a run wrote\n")
    sgpu.done("destroy", "-y", "hello")
    assert sgpu.here("status").out.startswith("nothing is live")
