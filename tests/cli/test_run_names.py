"""Which runs a command is about: by name, by file, or the only one that can be meant."""

from tests.cli.conftest import Shell
from tests.cli.test_next_steps import FAILS as RUN


def write(sgpu: Shell, name: str, command: str = "echo from $SGPU_RUN_NAME $RANK") -> None:
    sgpu.write(f"{name}.yaml", RUN.format(name=name, command=f"'{command}'"))


def test_without_a_name_the_latest_run_is_meant_and_named(sgpu: Shell) -> None:
    write(sgpu, "train")
    sgpu.done("apply", "-y", "train.yaml")
    logs = sgpu.here("logs")
    assert (logs.out, logs.err) == ("from train 0\n", "`train#1`, the only run\n")
    write(sgpu, "eval")
    sgpu.done("apply", "-y", "eval.yaml")
    logs = sgpu.here("logs", "--rank", "1")
    assert (logs.out, logs.err) == ("from eval 1\n", "`eval#1`, the latest of 2 runs\n")
    for command in ("results", "fetch", "show"):
        assert sgpu.done(command).err.startswith("`eval#1`, the latest of 2 runs\n")
    sgpu.done("destroy", "eval", "-y")
    assert sgpu.here("logs").out == "from train 0\n"


def test_without_a_run_there_is_a_way_on(sgpu: Shell) -> None:
    assert "no_project" in sgpu.here("logs").err
    write(sgpu, "run")
    assert "`sgpu apply` launches runs" in sgpu.exits(1, "logs").err
    refused = sgpu.here("results", "run.yaml")
    assert "no run of `run.yaml` was launched" in refused.err
    assert "`sgpu apply` launches its runs" in refused.err
    assert "there is no file `absent.yaml`" in sgpu.exits(1, "logs", "absent.yaml").err


def test_a_file_stands_for_its_runs(sgpu: Shell) -> None:
    for name in ("train", "eval"):
        write(sgpu, name)
        sgpu.done("apply", "-y", f"{name}.yaml")
    assert sgpu.here("logs", "train.yaml").out == "from train 0\n"
    below = sgpu.folder / "below"
    below.mkdir()
    assert sgpu.here("logs", "../train.yaml", cwd=below).out == "from train 0\n"
    assert [run["name"] for run in sgpu.data("status", "eval.yaml")["runs"]] == ["eval"]
    sgpu.done("wait", "train.yaml", "eval")
    write(sgpu, "job")  # its name begins as an address of a job does
    sgpu.done("apply", "-y", "job.yaml")
    for command in ("show", "results", "fetch"):
        for file in ("eval.yaml", "job.yaml"):
            sgpu.done(command, file)
    assert sgpu.here("cancel", "train.yaml").err == "train#1 had ended already: succeeded\n"


def test_a_name_stands_for_a_run_of_the_file(sgpu: Shell) -> None:
    run = "{gpus: 1, type: CPU, command: ['true'], mlflow: {enabled: false}}"
    sgpu.write("sgpu.yml", f"project: {{name: p}}\nruns: {{one: {run}, two: {run}}}\n")
    assert [change["address"] for change in sgpu.data("plan", "one")["changes"]] == ["run.one"]
    sgpu.done("apply", "-y", "sgpu.yml", "two")
    assert [run["name"] for run in sgpu.data("status")["runs"]] == ["two"]
    (sgpu.folder / "one").mkdir()
    sgpu.write("two", "anything")
    for name in ("one", "two"):  # a bare word is a run, also beside a file or folder
        planned = sgpu.data("plan", name)["changes"]
        assert [change["address"] for change in planned] == [f"run.{name}"]
    assert "did you mean `two`?" in sgpu.exits(1, "plan", "tow").err
    assert "no run matches" not in sgpu.exits(1, "apply", "absent.plan").err
    sgpu.done("plan", "--out", "some.plan")
    sgpu.exits(64, "apply", "some.plan", "one")
    for name in ("saved", "run.plan", "job.plan"):
        sgpu.done("plan", "--out", name)
        sgpu.exits(64, "apply", name, "one")
        sgpu.done("show", name)
    sgpu.exits(64, "plan", "sgpu.yml", "other.yml")


def test_only_one_active_run_is_cancelled_without_a_name(sgpu: Shell) -> None:
    write(sgpu, "one", "sleep 600")
    write(sgpu, "two", "sleep 600")
    assert "no_project" in sgpu.here("cancel").err
    for name in ("one", "two"):
        sgpu.done("apply", "-y", "--detach", f"{name}.yaml", "-t", "dev")
    refused = sgpu.here("cancel", "-t", "dev")
    assert (refused.code, "2 runs are active: `one#1`, `two#1`" in refused.err) == (1, True)
    assert "`sgpu cancel '*' -t dev`" in refused.err
    sgpu.done("cancel", "two", "-t", "dev")
    assert sgpu.done("cancel", "-t", "dev").err.startswith("`one#1` is the only active run\n")
    assert "no run is active" in sgpu.here("cancel", "-t", "dev").err


def test_a_rank_that_cannot_be_is_refused(sgpu: Shell) -> None:
    write(sgpu, "run", "echo I am $RANK; sleep 600")
    assert (
        "there is no rank 2: the ranks are 0 to 1"
        in sgpu.exits(1, "apply", "-y", "--rank", "2").err
    )
    assert not (sgpu.folder / ".sgpu").exists()
    sgpu.done("apply", "-y", "--detach")
    refused = sgpu.here("logs", "--rank", "2")  # before or after it has ranks
    assert (refused.code, "there is no rank 2: the ranks are 0 to 1" in refused.err) == (1, True)
    sgpu.done("cancel")
