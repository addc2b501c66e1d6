"""Which runs a command is about: by name, by file, or the only one that can be meant."""

from tests.cli.conftest import Shell

RUN = """\
name: {name}
gpus: 2
type: CPU
command: {command}
mlflow: {{enabled: false}}
grace: 500ms
targets: {{dev: {{}}}}
"""


def write(sgpu: Shell, name: str, command: str = "echo from $SGPU_RUN_NAME $RANK") -> None:
    sgpu.write(f"{name}.yaml", RUN.format(name=name, command=f"'{command}'"))


def test_without_a_name_the_latest_run_is_meant_and_named(sgpu: Shell) -> None:
    write(sgpu, "train")
    assert sgpu.here("apply", "-y", "train.yaml").code == 0
    logs = sgpu.here("logs")
    assert (logs.out, logs.err) == ("from train 0\n", "`train#1`, the only run\n")
    write(sgpu, "eval")
    assert sgpu.here("apply", "-y", "eval.yaml").code == 0
    logs = sgpu.here("logs", "--rank", "1")
    assert (logs.out, logs.err) == ("from eval 1\n", "`eval#1`, the latest of 2 runs\n")
    for command in ("results", "fetch", "show"):
        answer = sgpu.here(command)
        assert answer.code == 0
        assert answer.err.startswith("`eval#1`, the latest of 2 runs\n")
    assert sgpu.here("destroy", "eval", "-y").code == 0
    assert sgpu.here("logs").out == "from train 0\n"


def test_without_a_run_there_is_a_way_on(sgpu: Shell) -> None:
    assert "no_project" in sgpu.here("logs").err
    write(sgpu, "run")
    refused = sgpu.here("logs")
    assert (refused.code, "`sgpu apply` launches runs" in refused.err) == (1, True)
    refused = sgpu.here("results", "run.yaml")
    assert "no run of `run.yaml` was launched" in refused.err
    assert "`sgpu apply` launches its runs" in refused.err
    refused = sgpu.here("logs", "absent.yaml")
    assert (refused.code, "there is no file `absent.yaml`" in refused.err) == (1, True)


def test_a_file_stands_for_its_runs(sgpu: Shell) -> None:
    for name in ("train", "eval"):
        write(sgpu, name)
        assert sgpu.here("apply", "-y", f"{name}.yaml").code == 0
    assert sgpu.here("logs", "train.yaml").out == "from train 0\n"
    below = sgpu.folder / "below"
    below.mkdir()
    assert sgpu.here("logs", "../train.yaml", cwd=below).out == "from train 0\n"
    listed = sgpu.here("status", "eval.yaml", "-o", "json").json["data"]["runs"]
    assert [run["name"] for run in listed] == ["eval"]
    assert sgpu.here("wait", "train.yaml", "eval").code == 0
    write(sgpu, "job")  # its name begins as an address of a job does
    assert sgpu.here("apply", "-y", "job.yaml").code == 0
    for command in ("show", "results", "fetch"):
        for file in ("eval.yaml", "job.yaml"):
            assert sgpu.here(command, file).code == 0
    assert sgpu.here("cancel", "train.yaml").err == "train#1 had ended already: succeeded\n"


def test_a_name_stands_for_a_run_of_the_file(sgpu: Shell) -> None:
    run = "{gpus: 1, type: CPU, command: ['true'], mlflow: {enabled: false}}"
    sgpu.write("sgpu.yml", f"project: {{name: p}}\nruns: {{one: {run}, two: {run}}}\n")
    planned = sgpu.here("plan", "one", "-o", "json").json["data"]["changes"]
    assert [change["address"] for change in planned] == ["run.one"]
    assert sgpu.here("apply", "-y", "sgpu.yml", "two").code == 0
    assert [run["name"] for run in sgpu.here("status", "-o", "json").json["data"]["runs"]] == [
        "two"
    ]
    (sgpu.folder / "one").mkdir()
    sgpu.write("two", "anything")
    for name in ("one", "two"):  # a bare word is a run, also beside a file or folder
        planned = sgpu.here("plan", name, "-o", "json").json["data"]["changes"]
        assert [change["address"] for change in planned] == [f"run.{name}"]
    unknown = sgpu.here("plan", "tow")
    assert (unknown.code, "did you mean `two`?" in unknown.err) == (1, True)
    absent = sgpu.here("apply", "absent.plan")
    assert (absent.code, "no run matches" in absent.err) == (1, False), absent.err
    assert sgpu.here("plan", "--out", "some.plan").code == 0
    assert sgpu.here("apply", "some.plan", "one").code == 64
    for name in ("saved", "run.plan", "job.plan"):
        assert sgpu.here("plan", "--out", name).code == 0
        assert sgpu.here("apply", name, "one").code == 64
        assert sgpu.here("show", name).code == 0
    assert sgpu.here("plan", "sgpu.yml", "other.yml").code == 64


def test_only_one_active_run_is_cancelled_without_a_name(sgpu: Shell) -> None:
    write(sgpu, "one", "sleep 600")
    write(sgpu, "two", "sleep 600")
    assert "no_project" in sgpu.here("cancel").err
    for name in ("one", "two"):
        assert sgpu.here("apply", "-y", "--detach", f"{name}.yaml", "-t", "dev").code == 0
    refused = sgpu.here("cancel", "-t", "dev")
    assert (refused.code, "2 runs are active: `one#1`, `two#1`" in refused.err) == (1, True)
    assert "`sgpu cancel '*' -t dev`" in refused.err
    assert sgpu.here("cancel", "two", "-t", "dev").code == 0
    stopped = sgpu.here("cancel", "-t", "dev")
    assert stopped.code == 0
    assert stopped.err.startswith("`one#1` is the only active run\n")
    assert "no run is active" in sgpu.here("cancel", "-t", "dev").err


def test_a_rank_that_cannot_be_is_refused(sgpu: Shell) -> None:
    write(sgpu, "run", "echo I am $RANK; sleep 600")
    refused = sgpu.here("apply", "-y", "--rank", "2")
    assert (refused.code, "there is no rank 2: the ranks are 0 to 1" in refused.err) == (1, True)
    assert not (sgpu.folder / ".sgpu").exists()
    assert sgpu.here("apply", "-y", "--detach").code == 0
    refused = sgpu.here("logs", "--rank", "2")  # before or after it has ranks
    assert (refused.code, "there is no rank 2: the ranks are 0 to 1" in refused.err) == (1, True)
    assert sgpu.here("cancel").code == 0
