"""`sgpu env`, as a user types it."""

import platform
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

HASH = "0123456789abcdef" * 4
OLD = "torch==2.7.1\nsix==1.16.0\nnumpy==2.1.3\n"
NEW = "torch==2.13.0\nnumpy==2.1.3\npeft==0.17.1\n"


def test_bases_are_listed(sgpu: Shell) -> None:
    shown = sgpu.done("env", "bases")
    assert [line.split()[0] for line in shown.out.splitlines()] == [
        "BASE",
        "gpu-4",
        "ai-4",
        "gpu-5",
        "ai-5",
        "gpu-6",
        "ai-6",
    ]
    bases = sgpu.data("env", "bases")["bases"]
    assert bases[0]["platform"]["environment_version"] == "4"
    assert bases[3]["platform"]["base_environment"].endswith("/databricks_ai_v5")
    assert bases[4]["python"] is None


def test_what_differs_between_two_locks(sgpu: Shell) -> None:
    sgpu.write("old.txt", OLD)
    sgpu.write("new.txt", NEW)
    shown = sgpu.done("env", "diff", "old.txt", "new.txt")
    assert shown.out == (
        "+ peft 0.17.1\n- six 1.16.0\n~ torch 2.7.1 -> 2.13.0\n+1 ~1 -1 packages\n"
    )
    data = sgpu.data("env", "diff", "old.txt", "new.txt")
    assert data["added"] == [{"name": "peft", "version": "0.17.1"}]
    assert data["removed"] == [{"name": "six", "version": "1.16.0"}]
    assert data["changed"] == [{"name": "torch", "before": "2.7.1", "after": "2.13.0"}]


def test_bases_differ_in_python_and_cuda_too(sgpu: Shell) -> None:
    shown = sgpu.here("env", "diff", "gpu-4", "gpu-6").out.splitlines()
    assert shown[0] == "~ CUDA 12.6 -> 13"
    assert shown[-1] == "+0 ~0 -0 packages"
    assert "known in part" in shown[-2]
    both = sgpu.here("env", "diff", "gpu-4", "ai-4")
    assert "~ databricks-connect 17.0.4 -> 17.2.2" in both.out
    assert both.out.endswith("+129 ~3 -0 packages\n")


def test_this_is_the_interpreter_that_runs_sgpu(sgpu: Shell) -> None:
    data = sgpu.data("env", "show", "this")
    assert (data["kind"], data["python"]) == ("interpreter", platform.python_version())
    assert "click" in {item["name"] for item in data["packages"]}
    assert sgpu.here("env", "diff", "this", "this").out == "+0 ~0 -0 packages\n"


def test_a_lock_is_shown_with_whether_it_has_hashes(sgpu: Shell) -> None:
    sgpu.write("r.txt", f"a==1 --hash=sha256:{HASH}\n")
    assert sgpu.here("env", "show", "r.txt").out == (
        "r.txt: lock\n  every package has a hash\n  1 package\n  a 1\n"
    )


def test_a_base_is_shown_with_its_source(sgpu: Shell) -> None:
    shown = sgpu.here("env", "show", "ai-4").out
    assert "Python 3.12.3, CUDA 12.6, system Ubuntu 24.04.2 LTS" in shown
    assert "/four-gpu, as of 2025-10-22" in shown
    assert "  torch 2.7.1\n" in shown


def test_requirements_of_a_base(sgpu: Shell) -> None:
    printed = sgpu.done("env", "requirements", "gpu-4")
    assert "\ntorch==2.7.1\n" in printed.out
    sgpu.write("base.txt", printed.out)
    changes = sgpu.data("env", "diff", "base.txt", "gpu-4")
    assert changes["changed"] == changes["removed"] == []
    left_out = sgpu.data("env", "requirements", "gpu-4")["left_out"]
    assert {change["name"] for change in changes["added"]} == left_out.keys()


def test_an_attempt_is_compared_by_what_its_ranks_found(sgpu: Shell) -> None:
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    unknown = sgpu.here("env", "show", "a#1")
    assert (unknown.code, unknown.err.splitlines()[0]) == (
        1,
        "error[not_found]: no run matches `a`",
    )
    sgpu.done("apply", "-y", "--set", "mlflow.enabled=false")
    commanded = sgpu.exits(1, "env", "show", "a#1")
    assert "which packages the ranks of `a#1` found is not known" in commanded.err


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["show", "gpu4"], "not_found", "did you mean `gpu-4`?"),
        (["diff", "gpu-4", "nope"], "not_found", "name a base (`sgpu env bases` lists them)"),
        (["requirements", "ai-44"], "not_found", "did you mean `ai-4`?"),
        (["requirements", "gpu-6"], "base_incomplete", "`sgpu env show gpu-6` shows"),
        (["show", "gone.lock"], "not_found", "check the path of the lock file"),
    ],
)
def test_what_names_nothing_says_what_could_be_named(
    sgpu: Shell, arguments: list[str], code: str, hint: str
) -> None:
    error = sgpu.exits(1, "env", *arguments, "-o", "json").json["error"]
    assert error["code"] == code
    assert error["hint"].startswith(hint)


def test_a_broken_lock_is_shown_with_its_line(sgpu: Shell) -> None:
    sgpu.write("r.txt", "a==1\ntorch>=2.6\n")
    refused = sgpu.exits(1, "env", "diff", "r.txt", "this")
    assert (
        "error[lock_unpinned]: `torch` is not pinned to one version\n  --> r.txt:2:1" in refused.err
    )
    assert " 2 | torch>=2.6" in refused.err


def test_wrong_usage(sgpu: Shell, tmp_path: Path) -> None:
    sgpu.exits(64, "env", "diff", "this")
    assert "did you mean `diff`?" in sgpu.here("env", "dif").err
