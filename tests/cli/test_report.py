"""`sgpu report`: one page about a run, whatever is left of it."""

import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_gone_cluster import recorded
from tests.long_series import write_long_attempt
from tests.support import require

RUN = """\
name: train
gpus: 2
type: CPU
timeout: 1h
mlflow: {enabled: false}
args: {lr: 0.1}
entrypoint: train.py:main
"""
CODE = """\
import json, os
def main(lr):
    with open(os.path.join(os.environ["SGPU_OUTPUT_DIR"], "metrics.json"), "w") as file:
        for step in range(5):
            file.write(json.dumps({"step": step, "loss": lr / (step + 1)}) + chr(10))
    return {"loss": lr}
"""
FAILING = CODE.replace("    return", "    raise ValueError('no <luck> & no `fortune`')\n    return")
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 1.10 GiB is free."
)


@pytest.fixture
def trained(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", CODE)
    sgpu.done("apply", "-y")
    return sgpu


def attempt(sgpu: Shell, name: str = "train", number: int = 1) -> Path:
    return sgpu.folder / f".sgpu/default/runs/{name}/{number}"


def page(sgpu: Shell, *words: str, file: str = "sgpu-report-train-1.html") -> str:
    """The report without its style and the library of plots."""
    answer = sgpu.here("report", *words)
    assert answer.code == 0, answer.err
    assert answer.out == f"wrote {file}\n"
    text = (sgpu.folder / file).read_text()
    return re.sub(r"<style>.*?</style>|<script>.*?</script>", "", text, flags=re.DOTALL)


def labels(text: str) -> set[str]:
    return {b or c for b, c in re.findall(r"aria-label=(?:\"([^\"]*)\"|'([^']*)')", text)}


def test_a_page_says_how_a_run_ended_and_how_it_went(trained: Shell) -> None:
    require("vl_convert")
    text = page(trained, "train")
    assert {"phases and ranks", "loss", "plan and actual"} <= labels(text)
    assert '<span class="state succeeded">succeeded</span>' in text
    assert "of at most 1 h" in text
    plots = [json.loads(one) for one in re.findall(r"json\">(.*?)</script>", text, re.DOTALL)]
    (loss,) = (plot for plot in plots if plot["description"] == "loss by step")
    assert [row["step"] for row in loss["data"]["values"]] == [0, 1, 2, 3, 4]
    (timeline,) = (plot for plot in plots if plot["description"].startswith("timeline"))
    lanes = [(row["lane"], row["state"]) for row in timeline["data"]["values"]]
    assert lanes[-2:] == [("rank 0", "succeeded"), ("rank 1", "succeeded")]
    assert ("run", "running") in lanes


def test_a_failure_is_explained_beside_the_last_good_attempt(trained: Shell) -> None:
    trained.write("train.py", FAILING)
    trained.write("run.yaml", RUN.replace("0.1", "0.2"))
    trained.exits(5, "apply", "-y")
    text = page(trained, "train", file="sgpu-report-train-2.html")
    assert {"first cause", "differences"} <= labels(text)
    assert {"last lines of rank 0", "last lines of rank 1"} & labels(text)  # who fails first
    assert "ValueError: no &lt;luck&gt; &amp; no <code>fortune</code>" in text
    assert "Differences to train#1, the last good attempt" in text
    assert re.search(r"<span class='plus'> *\+ *raise ValueError\(", text)
    assert "~ args.lr  0.1 -&gt; 0.2" in text
    assert "last good attempt, #1" in text


def test_a_known_failure_says_what_helps(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write(
        "train.py", CODE.replace("return", f"raise RuntimeError({OUT_OF_MEMORY!r})\n    return")
    )
    sgpu.exits(5, "apply", "-y")
    text = page(sgpu)
    assert "<code>cuda_out_of_memory</code> (user error)" in text
    assert "<b>What helps:</b> use less memory" in text


def test_runs_of_a_matrix_are_compared(sgpu: Shell) -> None:
    require("vl_convert")
    sgpu.write("run.yaml", RUN.replace("args: {lr: 0.1}", "matrix: {lr: [0.1, 0.2, 0.3, 0.4]}"))
    sgpu.write("train.py", CODE)
    sgpu.done("apply", "-y")
    text = page(sgpu, "train", file="sgpu-report-train.html")
    assert {"best", "all runs"} <= labels(text)
    assert "(lowest): 0.1 with <code>lr=0.1</code>" in text
    text = page(sgpu, "train", "--sort", "-loss", file="sgpu-report-train.html")
    assert "(highest): 0.4 with <code>lr=0.4</code>" in text
    unknown = sgpu.exits(1, "report", "train", "--sort", "los")
    assert "did you mean `loss`?" in unknown.err


def test_show_gives_the_same_page(trained: Shell) -> None:
    shown = trained.done("show", "train", "-o", "html").out
    assert shown.startswith("<!doctype html>")
    assert "<h1>train#1</h1>" in shown


def test_only_a_report_is_replaced(trained: Shell) -> None:
    page(trained, "-o", "a.html", file="a.html")
    page(trained, "-o", "a.html", file="a.html")
    refused = trained.exits(1, "report", "-o", "run.yaml")
    assert "`run.yaml` exists and is no report: it is not overwritten" in refused.err
    assert (trained.folder / "run.yaml").read_text() == RUN
    nowhere = trained.exits(1, "report", "-o", "no/such/folder.html")
    assert "the report cannot be written to `no/such/folder.html`" in nowhere.err


def test_an_unknown_name_is_refused(trained: Shell) -> None:
    refused = trained.here("report", "trian")
    assert refused.code == trained.here("show", "trian").code
    assert "no run matches `trian`" in refused.err
    assert "leave it out" in trained.exits(64, "report", "train", "--sort", "loss").err


def test_a_damaged_series_is_named_and_the_rest_is_shown(trained: Shell) -> None:
    series = attempt(trained) / "series.db"
    write_long_attempt(attempt(trained), ranks=2, seconds=600)
    whole = series.read_bytes()
    for broken in (whole[: len(whole) // 2], b"no database", b""):
        series.write_bytes(broken)
        text = page(trained)
        assert "what the ranks of node 0 used: its series is damaged" in text
        assert "succeeded</span>" in text
    series.unlink()
    assert "its series" not in page(trained)


def test_events_that_are_cut_short_and_clocks_that_jump_do_no_harm(trained: Shell) -> None:
    events = attempt(trained) / "events.log"
    lines = events.read_text().splitlines(keepends=True)
    back = [line.replace('"time":"2', '"time":"1') for line in lines[1:-2]]
    events.write_text("".join([lines[0], "garbage\n", "00 {}\n", *back]) + lines[-1][:40])
    text = page(trained)
    seconds = [float(one) for one in re.findall(r'"(?:start|end)":(-?[\d.]+)', text)]
    assert all(0 <= one < 1000 for one in seconds)
    events.write_bytes(b"\xff\x00")
    assert "succeeded</span>" in page(trained)


def test_a_run_whose_files_were_deleted_is_shown_from_its_record(trained: Shell) -> None:
    attempt(trained).rename(trained.folder / "elsewhere")
    text = page(trained)
    assert "<h1>train#1</h1>" in text
    assert "what `train#1` left was deleted" in text.replace("<code>", "`").replace("</code>", "`")


def test_a_lost_run_is_shown_with_what_it_left(trained: Shell) -> None:
    (attempt(trained) / "outcome.json").unlink()
    (attempt(trained) / "status.json").unlink()
    text = page(trained)
    assert '<span class="state lost">lost</span>' in text
    assert "the processes that supervised this attempt are gone" in text
    assert {"first cause", "phases and ranks"} <= labels(text)


def test_lines_with_secrets_that_cannot_be_hidden_are_left_out(sgpu: Shell) -> None:
    told = "hidden-value-5123"
    one = RUN.replace("gpus: 2", "gpus: 1")  # of two, either could fail first
    sgpu.write("run.yaml", one + "env: {secrets: {KEY: 'env:REPORT_KEY'}}\n")
    failing = CODE.replace(
        "    with", "    print(os.environ['KEY'], flush=True)\n    1 / 0\n    with"
    )
    sgpu.write("train.py", failing)
    knowing = replace(sgpu, environ={**sgpu.environ, "REPORT_KEY": told})
    knowing.exits(5, "apply", "-y")
    text = page(knowing)
    assert "last lines of rank 0" in labels(text)
    assert told not in text
    text = page(sgpu)
    assert told not in text
    assert "last lines of rank 0" not in labels(text)
    assert "the value of <code>env:REPORT_KEY</code> could not be hidden here" in text


def test_a_run_that_never_started(sgpu: Shell) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\nruns:\n"
        "  first: {gpus: 1, type: CPU, mlflow: {enabled: false}, command: 'false'}\n"
        "  second: {gpus: 1, type: CPU, mlflow: {enabled: false}, command: 'true',\n"
        "    after: [first]}\n",
    )
    sgpu.exits(5, "apply", "-y")
    text = page(sgpu, "second", file="sgpu-report-second-1.html")
    assert '<span class="state skipped">skipped</span>' in text
    assert "its ranks never started" in text


def test_a_run_on_a_cluster_that_is_gone(sgpu: Shell) -> None:
    recorded(sgpu, "away")
    text = page(sgpu, "away", file="sgpu-report-away-1.html")
    assert "not available" in labels(text)
    assert "Shown is what was recorded last" in text


def test_values_that_are_not_finite_are_counted(trained: Shell) -> None:
    lines = [{"step": step, "loss": 1.0 if step < 3 else float("nan")} for step in range(6)]
    output = attempt(trained) / "output" / "metrics.json"
    output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = page(trained)
    assert "3 values of <code>loss</code> not finite" in text
    assert "first at step 3" in text


def test_without_the_extra_there_are_words_and_tables(
    trained: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sgpu_decl.views import report_plots

    write_long_attempt(attempt(trained), ranks=2, seconds=600)
    report_plots.plot_library.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    try:
        text = page(trained)
    finally:
        report_plots.plot_library.cache_clear()
    assert "they need the extra <code>report</code>" in text
    assert "vl-convert-python" in text
    assert "GPU utilisation" in text
    assert "class=plot" not in text


def test_a_day_of_many_ranks_fits_into_three_megabytes(trained: Shell) -> None:
    require("vl_convert")
    write_long_attempt(attempt(trained))
    text = page(trained)
    assert (trained.folder / "sgpu-report-train-1.html").stat().st_size < 3_000_000
    assert {"GPU utilisation", "GPU memory", "CPU of each rank", "Memory of each rank"} <= labels(
        text
    )
    assert '"GPU 5"' in text  # the one that differs from the others
    assert "median of 64" in text


def test_a_series_is_read_in_as_many_points_as_asked_for(tmp_path: Path) -> None:
    from sgpu_decl.agent.monitor.series_file import read_series

    (tmp_path / "events.log").touch()
    write_long_attempt(tmp_path, ranks=2)
    found = read_series(tmp_path / "series.db", points=100)
    assert {len(rows) for rows in found["ranks"].values()} == {100}
    assert {row["span"] for row in found["ranks"][0]} == {864}
    with sqlite3.connect(tmp_path / "series.db") as database:
        (total,) = database.execute("SELECT sum(read) FROM ranks WHERE rank = 0").fetchone()
    database.close()
    assert sum(row["read"] for row in found["ranks"][0]) == total


def test_a_run_without_mlflow_takes_no_artifact(trained: Shell) -> None:
    refused = trained.exits(1, "report", "train", "--upload")
    assert "`train#1` has no MLflow run that is known here" in refused.err
    assert (trained.folder / "sgpu-report-train-1.html").is_file()


def test_a_page_beside_the_code_is_none_of_it(trained: Shell) -> None:
    trained.done("report", "train")
    assert trained.data("plan")["changes"][0]["action"] == "no_op"
