"""Failures get the name of their kind by what libraries print, and by nothing else."""

import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.failure_kinds import KINDS
from sgpu_decl.agent.attempt.failure_recognition import TAIL, kind_of_failure
from sgpu_decl.agent.attempt.outcome import failed
from sgpu_decl.agent.attempt.verdict import RankEnding, Verdict
from sgpu_decl.agent.attempt.xid_codes import XIDS
from sgpu_decl.agent.retry_rule import BLAME
from sgpu_decl.agent.system.kernel_log import gpu_error
from sgpu_decl.rendering.spec import Entry
from tests.support import require

Make = Callable[..., Any]

SAMPLES = tomllib.loads((Path(__file__).parent / "failure_samples.toml").read_text())["sample"]
FORMS = [(kind, form) for kind in KINDS for form in kind.forms]
HEAD = 'Traceback (most recent call last):\n  File "/p/train.py", line 3, in <module>\n    main()\n'
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n\n"
FULL_GPU = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."

WATCHDOG = next(one["text"] for one in SAMPLES if "number 55485" in one["says"])


def recognised(end: str, text: str) -> dict[str, Any]:
    """What is said of a rank that ended so."""
    text = text.strip("\n")
    if end == "exception":
        return kind_of_failure("exception", text.partition("\n")[0], HEAD + text)
    if end == "refused":
        return kind_of_failure("launch_failed_user", text)
    failure = {"signal": "signal_self", "exit": "exit_code"}[end]
    return kind_of_failure(failure, "rank 0 ended", None, lambda: [f"step 3\n{text}\n", "step 4\n"])


def raised(text: str) -> str | None:
    return recognised("exception", text).get("kind")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["kind"])
def test_a_sample_gets_its_kind_and_whose_fault_it_is(sample: dict[str, str]) -> None:
    known = recognised(sample["end"], sample["text"])
    assert known["kind"] == sample["kind"]
    assert sample["says"] in known["explanation"]["meaning"]
    assert (known["explanation"]["blame"] or "") == sample["blame"]
    assert sample["source"].startswith(("https://", "sgpu_decl/"))


def test_every_form_of_every_kind_has_a_sample_and_every_sample_a_form() -> None:
    shown = set()
    for sample in SAMPLES:
        forms = next(kind.forms for kind in KINDS if kind.name == sample["kind"])
        text = sample["text"]
        shown.add(next(form for form in forms if re.search(form.pattern, text, re.MULTILINE)))
    assert [form.pattern for _, form in FORMS if form not in shown] == []


def test_a_kind_blames_as_the_classes_do() -> None:
    blames = {*BLAME.values(), None}
    assert {kind.blame_of(form) for kind, form in FORMS} <= blames
    assert {blame for blame, _ in XIDS.values()} <= blames
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_the_exception_that_ended_the_rank_wins_over_what_its_log_mentions() -> None:
    log = f"{HEAD}{FULL_GPU}\nhalved the batch\n" + HEAD + "ValueError: bad checkpoint\n"
    logs = [log, "CUDA out of memory. Tried to allocate 2.00 GiB, so the batch is halved\n"]
    trace = HEAD + "ValueError: bad checkpoint"
    assert kind_of_failure("exception", "ValueError: bad checkpoint", trace, lambda: logs) == {}
    assert raised(f"ValueError: after `{FULL_GPU}`, the batch is too small") is None


def test_an_exception_counts_with_those_that_it_was_raised_from() -> None:
    inner, outer = f"{FULL_GPU}\n", HEAD + "RuntimeError: step 7 failed"
    both = HEAD + inner + CAUSED + outer
    assert kind_of_failure("exception", "RuntimeError: step 7 failed", both)["kind"] == (
        "cuda_out_of_memory"
    )
    handled = HEAD + inner + MEANWHILE + outer
    assert kind_of_failure("exception", "RuntimeError: step 7 failed", handled) == {}


def test_an_exception_of_a_data_loader_or_a_pool_shows_that_of_its_worker() -> None:
    inner = "ModuleNotFoundError: No module named 'einops'"
    loader = (
        "ModuleNotFoundError: Caught ModuleNotFoundError in DataLoader worker process 0.\n"
        f'Original Traceback (most recent call last):\n  File "w.py", line 1, in f\n{inner}\n'
    )
    assert raised(loader) == "missing_package"
    pool = f'multiprocessing.pool.RemoteTraceback: \n"""\n{HEAD}{inner}\n"""\n'
    whole = pool + CAUSED + HEAD + inner
    assert kind_of_failure("exception", inner, whole)["kind"] == "missing_package"


def test_a_program_that_starts_others_is_known_by_what_they_wrote() -> None:
    log = f"{WATCHDOG}\nE1130 torch/distributed/elastic: failed (exitcode: -6)\n{HEAD}"
    summary = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    known = kind_of_failure("exception", summary, HEAD + summary, lambda: [log, ""])
    assert known["kind"] == "nccl_timeout"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ("exit_code", "loss: nan\nnothing was learned\n"),
        ("exit_code", "step 1: loss nan, lr 0.1\n"),
        ("exit_code", f"{FULL_GPU}\n" + "went on with a smaller batch\n" * 20),
        ("exit_code", "the host is out of memory soon\n"),
        ("exit_code", "WARNING: loss is nan in step 3, which is skipped\n"),
        ("exit_code", "WARNING: cache: No space left on device\n"),
        (
            "exit_code",
            "INFO: No module named triton, so it is not used\nWARNING: No module named a\n",
        ),
        (
            "exit_code",
            "a:3: UserWarning: The NVIDIA driver on your system is too old (found version 11040)",
        ),
        (
            "exit_code",
            "a.py:3: UserWarning: CUDA driver version is insufficient for CUDA runtime version\n",
        ),
        ("signal_self", "Segmentation fault (core dumped)\n"),
        ("signal_self", "Bus error\n"),
        ("killed", f"{FULL_GPU}\n"),
        ("timeout", f"{FULL_GPU}\n"),
        ("exit_code", ""),
    ],
)
def test_what_is_not_certain_stays_unknown(failure: str, text: str) -> None:
    assert kind_of_failure(failure, "rank 0 ended", None, lambda: [text, ""]) == {}


def test_a_line_behind_a_progress_bar_is_read() -> None:
    log = "\r 40%|####      | 4/10\r 41%|####      | 4/10\rLoss is nan, stopping training\n"
    assert kind_of_failure("exit_code", "r", None, lambda: [log])["kind"] == "nan_loss"


def test_the_last_failure_in_the_log_of_a_rank_that_a_signal_ended_counts() -> None:
    known = kind_of_failure("signal_self", "r", None, lambda: [f"{FULL_GPU}\n{WATCHDOG}", ""])
    assert known["kind"] == "nccl_timeout"


RECORDS = (
    b"4,901,1000000,-;NVRM: Xid (PCI:0000:dc:00): 31, pid=18, name=old, Ch 1\n",
    b"4,902,9000000,-;NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 1\n KEY=a\n",
    b"4,903,9000001,-;NVRM: Xid (PCI:0000:dc:00): 149, pid=181, name=python3, NETIR_LINK_EVT\n",
    b"4,904,9000002,-;NVRM: Xid (PCI:0000:dc:00): 79, pid=18, name=python3, GPU has fallen off\n",
    b"6,905,9000003,-;usb 1-1: pid=18, new device\n",
    b"garbage",
)


def test_the_driver_is_asked_about_the_process_since_it_started() -> None:
    line = gpu_error(RECORDS, 18, 8_000_000_000)
    assert line == "NVRM: Xid (PCI:0000:dc:00): 79, pid=18, name=python3, GPU has fallen off"
    assert "): 31, " in gpu_error(RECORDS, 18, 0)
    assert "): 45, " in gpu_error(RECORDS[:2], 18, 8_000_000_000)
    assert gpu_error(RECORDS, 7, 0) == ""


def test_a_fault_of_the_hardware_explains_an_error_of_cuda() -> None:
    def known(summary: str, xid: int) -> str | None:
        line = f"NVRM: Xid (PCI:0000:dc:00): {xid}, pid=18, name=python3, Ch 1"
        text = f"torch.AcceleratorError: CUDA error: {summary}"
        kind = kind_of_failure("exception", text, HEAD + text, gpu_error=lambda: line).get("kind")
        return None if kind is None else str(kind)

    assert known("unspecified launch failure", 79) == "gpu_xid"
    assert known("an illegal memory access was encountered", 79) == "gpu_xid"
    assert known("an illegal memory access was encountered", 31) == "cuda_illegal_access"
    assert known("device-side assert triggered", 43) == "cuda_device_assert"
    quiet = kind_of_failure(
        "exception", "ValueError: x", HEAD, gpu_error=lambda: RECORDS[3].decode()
    )
    assert quiet == {}


def test_a_rank_that_the_kernel_killed_for_memory_is_named_so() -> None:
    known = kind_of_failure("oom", "rank 0 was killed by the kernel")
    assert known["kind"] == "host_out_of_memory"
    assert known["explanation"]["meaning"].startswith("the memory of the machine, not that of")


def test_a_start_that_was_refused_has_a_kind_and_a_limit_that_was_reached_has_none() -> None:
    taken = failed("launch_failed_user", "port 29500 is taken by another run; leave it out").cause
    assert taken is not None
    assert taken["kind"] == "port_in_use"
    late = failed("timeout", "ran longer than the timeout of 3 s").cause
    assert late is not None
    assert late["kind"] is None


def test_a_cause_says_the_kind_of_its_rank() -> None:
    known = recognised("exception", FULL_GPU)
    first = RankEnding(rank=1, ended_ns=5, exit_code=1, known=known)
    cause = Verdict([first, RankEnding(rank=0, ended_ns=9, exit_code=1)]).cause
    assert cause is not None
    assert (cause["kind"], cause["explanation"]) == (known["kind"], known["explanation"])
    message = first.message(7)
    assert RankEnding.from_message(message, 7).known == known


HOSTILE = (
    "x: ", "a: a: a: ", "\n", "Error: ", "ValueError: loss loss nan", "loss inf ",
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB. GPU 0 has a total "
     "capacity of 1 GiB of which 1 GiB is free. Process 1 has 1 GiB memory in use. "),
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=A, Timeout(ms)=1 ",
    "WorkNCCL(SeqNum=1, OpType=A, Timeout(ms)=1\n", "NVRM: Xid (PCI:0:0:0): 1",
    "NCCL error, remote process exited or there was a network error\nLast error:\n",
    "cp: No space left on device", "OSError: [Errno 28] No space left on device: '",
    "/Volumes/x: ", "m: cannot 'x': Permission denied\n", "GatedRepoError: \n\n\n",
)  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_no_text_makes_a_pattern_slow(part: str) -> None:
    """Bad backtracking takes minutes for such a tail. All needles are in it, so all are tried."""
    needles = "".join(form.needle for _, form in FORMS)
    text = needles + part * (TAIL // len(part)) + needles
    begun = time.process_time()
    kind_of_failure("signal_self", "x", None, lambda: [text, text.replace("\n", " ")])
    kind_of_failure("exception", text, HEAD + text)
    assert time.process_time() - begun < 10.0


def shown(attempt: Any) -> tuple[str | None, str | None]:
    """The kind of an attempt's first cause, and whose fault it is."""
    cause = attempt.launch().wait()["first_cause"]
    return cause["kind"], cause.get("explanation", {}).get("blame")


def test_a_rank_that_lacks_a_package_ends_with_that_kind(make_attempt: Make) -> None:
    attempt = make_attempt("import einops_that_is_missing", world_size=1)
    assert shown(attempt) == ("missing_package", "error")
    words = attempt.read()["first_cause"]["explanation"]["meaning"]
    assert "`einops_that_is_missing`" in words
    attempt.check()


def test_a_rank_whose_port_is_in_use_ends_with_that_kind(make_attempt: Make) -> None:
    source = """
import socketserver
first = socketserver.TCPServer(("127.0.0.1", 0), None)
socketserver.TCPServer(first.server_address, None)
"""
    assert shown(make_attempt(source, world_size=1)) == ("port_in_use", "error")


@pytest.mark.torch
def test_real_failures_of_torch_end_with_their_kinds(make_attempt: Make) -> None:
    require("torch")
    sources = {
        "torch_without_cuda": "torch.zeros(1).cuda()",
        "host_out_of_memory": "torch.empty(10**15)",
        "nan_loss": "w = torch.zeros(1, requires_grad=True); (w / w).backward(); "
        "torch.nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)",
        "port_in_use": "from torch.distributed import TCPStore; "
        "one = TCPStore('127.0.0.1', 0, 1, True); TCPStore('127.0.0.1', one.port, 1, True)",
    }
    attempts = {
        kind: make_attempt(f"import torch\n{source}", world_size=1).launch()
        for kind, source in sources.items()
    }
    found = {kind: attempt.wait()["first_cause"] for kind, attempt in attempts.items()}
    assert {kind: (cause["kind"], cause["summary"]) for kind, cause in found.items()} == {
        kind: (kind, cause["summary"]) for kind, cause in found.items()
    }


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("code", [1, 3])
def test_a_command_that_prints_a_failure_and_exits_ends_with_its_kind(
    make_attempt: Make, tmp_path: Path, stream: str, code: int
) -> None:
    text = tmp_path / "sample.txt"
    text.write_text(f"{HEAD}{SAMPLES[1]['text']}\n")
    to = "" if stream == "stdout" else ">&2"
    attempt = make_attempt(
        entry=Entry(kind="shell", shell=f"cat {text} {to}; exit {code}"), world_size=1
    )
    assert shown(attempt) == ("cuda_out_of_memory", "error")
    assert "22.78 GiB did not fit" in attempt.read()["first_cause"]["explanation"]["meaning"]


def test_a_rank_that_aborts_is_known_by_its_log(make_attempt: Make) -> None:
    source = f"import os, sys\nsys.stderr.write({WATCHDOG!r})\nsys.stderr.flush()\nos.abort()"
    assert shown(make_attempt(source, world_size=1)) == ("nccl_timeout", None)


@pytest.mark.parametrize("source", ["raise ValueError('my own')", "import os; os.abort()"])
def test_an_unknown_failure_has_no_kind(make_attempt: Make, source: str) -> None:
    assert shown(make_attempt(source, world_size=1)) == (None, None)


def test_a_healthy_run_has_no_cause_though_its_log_mentions_failures(make_attempt: Make) -> None:
    attempt = make_attempt(f"print({FULL_GPU!r})", world_size=1).launch()
    ended = attempt.wait()
    assert (ended["state"], ended["first_cause"]) == ("succeeded", None)


def test_a_secret_in_the_words_is_hidden(make_attempt: Make) -> None:
    source = """
import os
raise PermissionError(13, "Permission denied", "/data/" + os.environ["TOKEN"])
"""
    attempt = make_attempt(source, world_size=1, secrets={"TOKEN": "env:TOKEN"})
    attempt.launch({"TOKEN": "s3cr3t-value"})
    cause = attempt.wait()["first_cause"]
    assert cause["kind"] == "file_permission"
    assert "`/data/***`" in cause["explanation"]["meaning"]
