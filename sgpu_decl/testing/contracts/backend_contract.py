"""What every backend promises, as tests: see docs/backends.md.

class TestMine(BackendContract):
    @pytest.fixture
    def case(self) -> BackendCase:
        return BackendCase(...)
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.testing.contracts.backend_bench import (
    PATIENCE,
    RECORDED,
    BackendBench,
    BackendCase,
    until,
)
from sgpu_decl.testing.file_search import files_with

__all__ = ["BackendContract"]


class BackendContract:
    """Tests of one backend; a subclass gives the fixture `case`."""

    @pytest.fixture
    def bench(self, case: BackendCase, tmp_path: Path) -> Iterator[BackendBench]:
        made = BackendBench(case, tmp_path)
        yield made
        made.close()

    # Launching

    def test_a_launch_with_a_token_that_was_launched_starts_nothing(
        self, bench: BackendBench
    ) -> None:
        bench.declare("value", args={"gate": str(bench.gate)})
        request = bench.request()
        for _ in range(2):  # as two processes would, one after the other
            with bench.backend() as backend:
                backend.launcher.check(request)
                backend.launcher.prepare([request], Quiet())
                for _ in range(2):
                    backend.launcher.stage(request)
                for _ in range(2):
                    backend.launcher.launch(request)
                assert backend.launcher.staged(request.record)
                another = replace(request.record, token="another")  # noqa: S106  no password
                assert not backend.launcher.staged(another)

        bench.launched()

        assert bench.ended()["attempt"] == 1
        assert bench.launches == 1

    def test_a_launch_that_nobody_could_record_is_found_again(self, bench: BackendBench) -> None:
        bench.declare("value", args={"gate": str(bench.gate)})
        bench.killed(f"{RECORDED},launched,before,1", "apply", "-y", "--detach")

        run = bench.ran()

        assert (run["attempt"], run["state"], bench.launches) == (1, "succeeded", 1)

    def test_a_launch_whose_answer_is_lost_is_found_again(self, bench: BackendBench) -> None:
        if bench.case.lose_answer is None:
            pytest.skip("no launch of this backend has an answer that can be lost")
        bench.declare("value", args={"gate": str(bench.gate)})
        bench.done("plan")
        bench.case.lose_answer()
        bench("apply", "-y", "--detach")

        run = bench.ran()

        assert (run["attempt"], run["state"], bench.launches) == (1, "succeeded", 1)

    def test_a_replaced_attempt_has_ended_before_the_new_one_starts(
        self, bench: BackendBench
    ) -> None:
        bench.declare("hold", args={"gate": str(bench.gate)})
        bench.launched()
        bench.up()
        bench.declare("value", args={"gate": str(bench.gate)})
        bench.done("plan", "--on-active", "replace", "--out", "replace.plan")
        bench.killed(bench.step("launch", "before"), "apply", "--detach", "replace.plan")

        new = bench.ran()
        old = bench.status("hello#1")

        assert (old["state"], new["attempt"], new["state"]) == ("cancelled", 2, "succeeded")
        assert old["ended_at"] <= new["started_at"]

    # Looking

    def test_a_run_is_seen_on_its_way_running_and_ended(self, bench: BackendBench) -> None:
        bench.declare("hold", like="pair", args={"gate": str(bench.gate)})
        bench.launched()
        assert bench.status()["state"] in ("queued", "staging", "starting", "running")
        bench.up(ranks=2)
        running = bench.running()
        bench.go()
        ended = bench.ended()

        assert (running["state"], running["ended_at"], running["exit_code"]) == (
            "running", None, None,
        )  # fmt: skip
        assert (ended["state"], ended["exit_code"], ended["first_cause"]) == ("succeeded", 0, None)
        assert [(item["rank"], item["state"], item["exit_code"]) for item in ended["ranks"]] == [
            (0, "succeeded", 0), (1, "succeeded", 0),
        ]  # fmt: skip
        assert running["started_at"] <= ended["started_at"] <= ended["ended_at"]

    def test_what_was_never_launched_is_left_out_and_harmless(self, bench: BackendBench) -> None:
        nowhere = bench.unknown()
        with bench.backend() as backend:
            assert not backend.launcher.staged(nowhere)
            backend.launcher.cancel(nowhere)
            attempts, storage = backend.attempts, backend.storage
            assert attempts.look([nowhere]) == {}
            assert attempts.inspect([nowhere]) == {}
            attempts.cancel_doomed([nowhere])
            assert attempts.results(nowhere) == []
            assert attempts.error(nowhere, 0) is None
            assert attempts.unresolved_secrets(nowhere) == ()
            lines, ended = attempts.logs(nowhere, ranks=None, follow=True).read()
            assert (list(lines), ended) == ([], True)
            storage.unstage(nowhere)
            assert (storage.size(nowhere), storage.free(nowhere)) == (0, 0)
            assert storage.kill_orphans(nowhere) == 0

    def test_a_rank_that_left_no_traceback_is_shown_with_its_last_lines(
        self, bench: BackendBench
    ) -> None:
        bench.declare("leave_with", args={"code": 3})
        bench.launched()

        waited = bench("wait", "hello", "--timeout", f"{PATIENCE:.0f}s")

        assert waited.code == 5
        assert "the last lines of rank 0" in waited.err
        assert "these words are my last" in waited.err
        cause = bench.status()["first_cause"]
        assert (cause["class"], cause["kind"]) == ("exit_code", None)

    def test_a_failed_rank_is_the_first_cause(self, bench: BackendBench) -> None:
        bench.declare("fail", like="pair", args={"at": 1})

        run = bench.ran()

        cause = run["first_cause"]
        assert (run["state"], cause["rank"], cause["class"]) == ("failed", 1, "exception")
        assert (cause["kind"], cause["explanation"]["blame"]) == ("missing_package", "error")
        assert "`no_such_thing`" in cause["explanation"]["meaning"]
        assert "train.py" in cause["traceback"]
        assert [item["rank"] for item in run["ranks"]] == [0, 1]
        (change,) = bench.done("plan", "-o", "json").data["changes"]
        assert (change["action"], change["reason"]) == ("no_op", "failed_not_retried")

    def test_a_run_that_takes_too_long_fails_by_its_timeout(self, bench: BackendBench) -> None:
        bench.declare("fail", args={"at": 5}, timeout="2s")

        run = bench.ran()

        assert (run["state"], run["first_cause"]["class"]) == ("failed", "timeout")

    def test_results_come_in_the_order_of_ranks(self, bench: BackendBench) -> None:
        bench.declare("value", like="many", args={"gate": str(bench.gate), "n": 3})
        bench.ran()

        results = bench.results()

        assert len(results) > 10
        assert results == [(item, {"rank": item, "n": 3}) for item in range(len(results))]
        with bench.backend() as backend:
            files = backend.attempts.node_files(bench.record("hello"), "events.log")
            assert all(b"rank_started" in path.read_bytes() for path in files.values())
            assert 0 in files
            assert backend.attempts.node_files(bench.record("hello"), "no-such-file") == {}

    # Cancelling

    def test_cancelling_twice_is_cancelling_once(self, bench: BackendBench) -> None:
        bench.declare("hold", args={"gate": str(bench.gate)})
        bench.launched()
        bench.up()

        bench.done("cancel", "hello", "--no-wait")
        bench.done("cancel", "hello")

        assert bench.ended()["state"] == "cancelled"
        (change,) = bench.done("plan", "-o", "json").data["changes"]
        assert (change["action"], change["reason"]) == ("no_op", "cancelled_by_user")

    def test_a_run_that_is_cancelled_at_once_ends_cancelled(self, bench: BackendBench) -> None:
        bench.declare("hold", args={"gate": str(bench.gate)})
        bench.launched()

        bench.done("cancel", "hello")

        assert bench.status()["state"] == "cancelled"
        (change,) = bench.done("plan", "-o", "json").data["changes"]
        assert (change["action"], change["reason"]) == ("no_op", "cancelled_by_user")

    def test_a_queued_attempt_starts_after_the_one_before_it(self, bench: BackendBench) -> None:
        bench.declare("hold", args={"gate": str(bench.gate)})
        bench.launched()
        bench.up()
        bench.declare("value", args={"gate": str(bench.gate)})
        queued = bench("apply", "-y", "--detach", "--on-active", "queue", "-o", "json")

        if not bench.case.queues:
            assert "cannot_queue" in queued.out
            return
        bench.go()
        new = bench.ended()
        old = bench.status("hello#1")
        assert [new["state"], old["state"]] == ["succeeded", "succeeded"]
        assert old["ended_at"] <= new["started_at"]

    def test_runs_start_in_their_order(self, bench: BackendBench) -> None:
        gate = str(bench.gate)
        folder = "${run.hello.output}"
        bench.declare_all({
            "hello": {"function": "make", "args": {"gate": gate}},
            "later": {
                "function": "found", "after": ["hello"], "args": {"folder": folder, "gate": gate},
            },
            "stopped": {"function": "value", "after": ["hello"], "args": {"gate": gate}},
            "never": {"function": "value", "after": ["stopped"], "args": {"gate": gate}},
        })  # fmt: skip
        if not bench.case.orders:
            assert "unsupported_field" in bench("plan", "-o", "json").out
            return
        bench.launched()
        bench.up()
        until(lambda: bench.status("later").get("waiting_for") == "hello#1")
        assert bench.status("later")["state"] == "queued"

        bench.done("cancel", "stopped")
        never = bench.ended("never")
        bench.go()
        later = bench.ended("later")

        assert bench.status("stopped")["state"] == "cancelled"
        assert (never["state"], never["first_cause"]["class"]) == ("failed", "upstream_failed")
        assert never["first_cause"]["summary"].startswith("stopped#1 was cancelled, and this run")
        assert later["state"] == "succeeded"
        assert bench.status("hello")["ended_at"] <= later["started_at"]
        assert bench.results("later") == [(0, ["made"])]
        changes = bench.done("plan", "-o", "json").data["changes"]
        assert {one["address"]: one["reason"] for one in changes} == {
            "run.hello": "up_to_date",
            "run.later": "up_to_date",
            "run.never": "upstream_failed",
            "run.stopped": "cancelled_by_user",
        }

    def test_attempts_side_by_side_keep_to_themselves(self, bench: BackendBench) -> None:
        bench.declare("hold", args={"gate": str(bench.gate)})
        bench.launched()
        bench.up()
        bench.declare("hold", args={"gate": str(bench.gate), "n": 1})
        bench.done("apply", "-y", "--detach", "--on-active", "parallel")
        bench.up(1)

        bench.done("cancel", "hello#1")
        bench.go(1)

        assert bench.ended("hello#2")["state"] == "succeeded"
        assert bench.status("hello#1")["state"] == "cancelled"
        assert bench.results("hello#2") == [(0, {"rank": 0, "n": 1})]
        assert bench.done("logs", "hello#1").out == "up 0\n"
        assert bench.done("logs", "hello#2").out == "up 1\n"
        first, second = bench.record("hello"), bench.record("hello", 2)
        missing = replace(second, ref=replace(second.ref, number=3), reference=None)
        with bench.backend() as backend:
            known = backend.attempts.look([second, missing, first])
        assert [str(item) for item in known] == ["hello#2", "hello#1"]

    def test_cancelling_what_has_ended_changes_nothing(self, bench: BackendBench) -> None:
        bench.declare("value", args={"gate": str(bench.gate)})
        before = bench.ran()

        hello = bench.record("hello")
        with bench.backend() as backend:
            backend.launcher.cancel(hello)

        bench.done("cancel", "hello")
        assert bench.status() == before
        assert bench.results() == [(0, {"rank": 0, "n": 0})]

    # Output

    def test_lines_of_all_restarts_are_shown_or_those_of_one(self, bench: BackendBench) -> None:
        again = {"max": 1, "on": ["error"], "backoff": "10ms"}
        bench.declare("again", like="pair", args={"gate": str(bench.gate)}, retry=again)

        assert bench.ran()["state"] == "succeeded"

        def lines(*words: str) -> set[str]:
            shown = bench.done("logs", "hello", *words).out
            return set(re.findall(r"start \d of rank \d", shown))

        every = {f"start {restart} of rank {rank}" for restart in (0, 1) for rank in (0, 1)}
        assert lines("--rank", "all") == every
        assert lines("--rank", "1") == {"start 0 of rank 1", "start 1 of rank 1"}
        if bench.case.tells_restarts:
            assert lines("--rank", "1", "--restart", "1") == {"start 1 of rank 1"}
        else:
            refused = bench("logs", "hello", "--restart", "1", "-o", "json")
            assert refused.error["code"] == "no_restarts"

    def test_a_secret_reaches_ranks_and_nothing_else(self, bench: BackendBench) -> None:
        reference, value = bench.case.secret
        bench.declare("tell", env={"secrets": {"WORD": reference}})

        assert bench.ran()["state"] == "succeeded"

        assert bench.results() == [(0, len(value))]
        shown = bench.done("logs", "hello").out
        assert "the word is ***" in shown
        found = files_with(value.encode(), bench.project, *bench.case.staging)
        ranks_own = ("stdout.log", "stderr.log")
        assert [file for file in found if file.name not in ranks_own] == []

    def test_a_secret_that_is_not_there_is_named_before_anything_runs(
        self, bench: BackendBench
    ) -> None:
        bench.declare("tell", env={"secrets": {"WORD": bench.case.missing}})

        refused = bench("apply", "-y", "--detach", "-o", "json")

        assert refused.code == 1
        assert bench.case.missing.rpartition(":")[2] in refused.out
        assert bench("results", "hello").code == 1

    def test_files_of_ranks_come_here_once(self, bench: BackendBench) -> None:
        bench.declare("leave", args={"names": ["a", "b"]})
        assert bench.ran()["state"] == "succeeded"

        first = bench.done("fetch", "hello", "-o", "json").data
        again = bench.done("fetch", "hello", "-o", "json").data

        assert first == again
        assert first["files"] == 2
        found = {path.name: path.read_text() for path in Path(first["folder"]).iterdir()}
        assert found == {"a": "a", "b": "b"}

    def test_no_files_of_ranks_are_no_error(self, bench: BackendBench) -> None:
        bench.declare("leave", args={"names": []})
        assert bench.ran()["state"] == "succeeded"

        found = bench.done("fetch", "hello", "-o", "json").data

        assert (found["files"], found["bytes"]) == (0, 0)

    def test_an_attempt_that_resumes_finds_the_newest_output_that_was_left(
        self, bench: BackendBench
    ) -> None:
        if not bench.case.resumes:
            pytest.skip("the backend has no `resume`")
        found = []
        for leave in ("a", "", "b", "c"):  # the second attempt leaves nothing
            bench.declare("go_on", resume="auto", args={"leave": leave})
            planned = bench.done("plan", "-o", "json").data["checks"]
            assert bench.ran()["state"] == "succeeded"
            ((_, value),) = bench.results()
            found.append((value, [item["summary"] for item in planned if item["id"] == "resumes"]))
            bench.done("gc", "-y", "--keep-last", "0")  # it takes nothing from the next attempt

        says = "it finds the output of `hello#{}` in SGPU_PREVIOUS_OUTPUT_DIR"
        assert found == [
            (None, ["no earlier attempt left output: it starts from the beginning"]),
            (["a-0"], [says.format(1)]),
            (["a-0"], [says.format(1)]),
            (["b-0"], [says.format(3)]),
        ]
        assert bench("fetch", "hello#1", "-o", "json").error["code"] == "attempt_freed"

    def test_ranks_that_are_started_again_find_what_they_left(self, bench: BackendBench) -> None:
        if not bench.case.resumes:
            pytest.skip("the backend has no `resume`")
        bench.declare(
            "go_on",
            resume="auto",
            args={"leave": "x", "fail": True},
            retry={"max": 1, "on": ["error"], "backoff": "0s"},
        )
        assert bench.ran()["state"] == "succeeded"
        assert bench.results() == [(0, ["x-0"])]

    # Keeping

    def test_what_is_active_is_neither_freed_nor_moved(self, bench: BackendBench) -> None:
        bench.declare("hold", args={"gate": str(bench.gate)})
        bench.launched()
        bench.up()

        hello = bench.record("hello")
        with bench.backend() as backend:
            assert backend.storage.free(hello) == 0
            backend.storage.unstage(hello)
        bench.done("gc", "-y", "--all", "--keep-last", "0")
        refused = bench("state", "mv", "hello", "other", "-o", "json")
        assert refused.error["code"] == "active_run"

        bench.go()
        assert bench.ended()["state"] == "succeeded"
        assert bench.results() == [(0, {"rank": 0, "n": 0})]
        assert "up 0" in bench.done("logs", "hello").out

    def test_what_has_ended_is_found_under_its_new_name_and_after_a_destroy(
        self, bench: BackendBench
    ) -> None:
        bench.declare("hold", args={"gate": str(bench.gate)})
        bench.go()
        bench.ran()

        bench.done("state", "mv", "hello", "other")
        bench.done("destroy", "-y")

        assert bench.status("other")["state"] == "succeeded"
        assert bench.results("other") == [(0, {"rank": 0, "n": 0})]
        assert "up 0" in bench.done("logs", "other").out
        if bench.case.elsewhere:  # as a machine that has the state, and nothing of the attempt
            shutil.rmtree(bench.project / ".sgpu/default/runs")
            assert bench.results("other") == [(0, {"rank": 0, "n": 0})]
            assert "up 0" in bench.done("logs", "other").out
        bench.done("gc", "-y", "--all", "--keep-last", "0")
        assert bench("results", "other", "-o", "json").error["code"] == "attempt_freed"

    def test_nothing_is_moved_onto_what_is_there(self, bench: BackendBench) -> None:
        bench.declare("value", args={"gate": str(bench.gate)})
        bench.ran()
        there = bench.project / ".sgpu/default/runs/other/1"
        there.mkdir(parents=True)

        refused = bench("state", "mv", "hello", "other", "-o", "json")

        assert refused.error["code"] == "move_refused"
        assert bench.results() == [(0, {"rank": 0, "n": 0})]

    def test_an_attempt_whose_folder_was_deleted_is_whole_elsewhere_or_freed(
        self, bench: BackendBench
    ) -> None:
        bench.declare("value", args={"gate": str(bench.gate)})
        bench.ran()
        bench.done("gc", "-y")
        shutil.rmtree(bench.project / ".sgpu/default/runs", ignore_errors=True)

        answer = bench("results", "hello#1", "-o", "json")

        if bench.case.elsewhere:
            assert answer.data["results"] == [{"rank": 0, "value": {"rank": 0, "n": 0}}]
        else:
            assert answer.error["code"] == "attempt_freed"
        assert bench.status("hello#1")["state"] == "succeeded"

    def test_a_run_whose_folder_was_deleted_meanwhile_ends(self, bench: BackendBench) -> None:
        bench.declare("hold", args={"gate": str(bench.gate)})
        bench.launched()
        bench.up()
        shutil.rmtree(bench.project / ".sgpu/default/runs", ignore_errors=True)
        bench.go()

        run = bench.ended()

        assert run["state"] == ("succeeded" if bench.case.elsewhere else "lost")
        bench.declare("value", args={"gate": str(bench.gate)})
        assert bench.ran()["attempt"] == 2

    def test_what_an_apply_has_staged_survives_gc_of_another_project(
        self, bench: BackendBench
    ) -> None:
        other = bench.beside("other")
        other.declare("value", args={"gate": str(other.gate)})
        assert other.ran()["state"] == "succeeded"
        bench.declare("value", args={"gate": str(bench.gate)})
        request = bench.request()
        with bench.backend() as backend:
            backend.launcher.check(request)
            backend.launcher.prepare([request], Quiet())
            other.done("destroy", "-y")
            other.done("gc", "-y", "--all", "--keep-last", "0")
            backend.launcher.stage(request)
            other.done("gc", "-y", "--all", "--keep-last", "0")
            backend.launcher.launch(request)

        assert bench.ran()["state"] == "succeeded"
        assert bench.launches == 1

    def test_an_attempt_that_was_freed_keeps_its_record(self, bench: BackendBench) -> None:
        bench.declare("value", args={"gate": str(bench.gate)})
        before = bench.ran()
        bench.results()  # so that something of it is on this machine

        hello = bench.record("hello")
        with bench.backend() as backend:
            size = backend.storage.size(hello)
        freed = bench.done("gc", "-y", "--all", "--keep-last", "0", "-o", "json").data

        assert (freed["attempts"], size > 0) == (["hello#1"], True)
        with bench.backend() as backend:
            assert (backend.storage.size(hello), backend.storage.free(hello)) == (0, 0)
            assert backend.attempts.look([hello]) == {}

        after = bench.status()
        assert (after["attempt"], after["state"]) == (1, "succeeded")
        for moment in ("started_at", "ended_at"):
            assert datetime.fromisoformat(after[moment]) == datetime.fromisoformat(before[moment])
        assert bench("logs", "hello", "-o", "json").error["code"] == "attempt_freed"
        (change,) = bench.done("plan", "-o", "json").data["changes"]
        assert change["action"] == "no_op"

    def test_gc_frees_what_another_machine_launched(self, bench: BackendBench) -> None:
        if not bench.case.elsewhere:
            pytest.skip("its attempts lie on the machine that launched them")
        bench.declare("leave", args={"names": ["a"]})
        assert bench.ran()["state"] == "succeeded"
        hello = bench.record("hello")
        shutil.rmtree(bench.project / ".sgpu/default/runs")  # as a machine that has the state alone
        gc = ("gc", "-y", "--all", "--keep-last", "0", "-o", "json")

        shown = bench.done(*gc, "--dry-run").data
        freed = bench.done(*gc).data

        assert shown["bytes"] > 0
        assert shown["freed"] == freed["freed"] == [{"attempt": "hello#1", "bytes": shown["bytes"]}]
        assert bench.done(*gc).data["attempts"] == []
        with bench.backend() as backend:
            assert backend.storage.size(hello) == 0
