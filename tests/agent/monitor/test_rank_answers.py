"""Ranks are asked at once, and none of them keeps the others waiting for long."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sgpu_decl.agent.attempt.error_file import own_frames_left_out
from sgpu_decl.agent.monitor import rank_answers
from sgpu_decl.agent.monitor.rank_answers import ask_ranks

GOOD = json.dumps({"stack": [["main", "/a.py", 3]], "marks": [["0", "5"]], "groups": None})


@pytest.fixture
def listening() -> Iterator[dict[str, socket.socket]]:
    """Sockets of ranks, by what they do."""
    found = {}
    for name in ("good", "silent", "garbage", "endless", "closes"):
        found[name] = socket.socket(socket.AF_UNIX)
        found[name].bind(f"\0sgpu-test/{os.getpid()}/{name}")
        found[name].listen()
    yield found
    for each in found.values():
        each.close()


def test_the_thread_that_answers_is_in_no_stack_that_is_shown() -> None:
    ours = 'File "sgpu_decl/rank/collective_answers.py", line 7 in _serve'
    thread = (
        f'Thread 0x1 (most recent call first):\n  File "socket.py", line 1 in accept\n  {ours}\n'
    )
    own = 'Current thread 0x2 (most recent call first):\n  File "/run/code/a.py", line 3 in main\n'
    spec = {"run_dir": "/run", "code_dir": "/run/code", "code_root": "/home/ann"}
    shown = own.replace("/run/code", "/home/ann")
    assert own_frames_left_out(f"{thread}\n{own}", spec) == shown


def _answer(listening: socket.socket, data: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(1)
        try:
            connection.sendall(data)
        except OSError:
            return  # more than is read


def test_who_answers_is_heard(
    listening: dict[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_answers, "_PATIENCE", 1.0)
    said = {
        "good": GOOD.encode(), "garbage": b"\xff{{", "closes": b"", "endless": b"9" * (100 << 20),
    }  # fmt: skip
    threads = [
        threading.Thread(target=_answer, args=(listening[name], data), daemon=True)
        for name, data in said.items()
    ]
    for thread in threads:
        thread.start()
    addresses = {at: f"sgpu-test/{os.getpid()}/{name}" for at, name in enumerate(listening)}
    answers = ask_ranks({**addresses, 9: "sgpu-test/nobody"}, everything=False)
    assert answers.keys() == {0}
    assert answers[0].stack == (("main", "/a.py", 3),)
    for thread in threads:
        thread.join()


def test_a_rank_without_threads_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import ModuleType

    from sgpu_decl.rank.collective_answers import answer_monitor

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    module = ModuleType("rendezvous")
    module.TCPStore = lambda host: f"store of {host}"  # type: ignore[attr-defined]
    address = f"sgpu-test/{os.getpid()}/none"
    answer_monitor(module, f"\0{address}")
    assert module.TCPStore("here") == "store of here"
    assert ask_ranks({0: address}, everything=True) == {}


ASKED_AT_ITS_END = """
import os, socket, tempfile, time
os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
import torch, torch.distributed as dist
from torch.distributed import rendezvous
from sgpu_decl.rank.collective_answers import answer_monitor

ended = []
for number in range(20):
    address = f"\\0sgpu-test/{os.getpid()}/{number}"
    rank = os.fork()
    if rank == 0:
        answer_monitor(rendezvous, address)
        folder = tempfile.mkdtemp()
        dist.init_process_group("gloo", init_method=f"file://{folder}/s", rank=0, world_size=1)
        for _ in range(200):
            dist.all_reduce(torch.ones(8))
        break  # it ends as any program does
    while True:
        done, status = os.waitpid(rank, os.WNOHANG)
        if done:
            ended.append(status)
            break
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(2)
            try:
                asking.connect(address)
                asking.sendall(b"*")
                asking.recv(1 << 20)
            except OSError:
                time.sleep(0.001)  # it does not listen yet, or does not any more
else:
    print(ended)
"""


@pytest.mark.expensive
def test_a_program_that_ends_while_its_rank_answers_has_not_failed() -> None:
    """Python ends the other threads then. One that is in torch's code would abort the program."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED_AT_ITS_END], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{[0] * 20}\n", done.stderr[-2000:]
