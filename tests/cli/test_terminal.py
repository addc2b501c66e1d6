"""A person at a terminal: being asked, and Ctrl-C while a run is followed."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

RUN = """\
name: sleepy
gpus: 1
type: CPU
command: [python3, -c, "import time; print('lift' + 'off', flush=True); time.sleep(300)"]
mlflow: {enabled: false}
grace: 500ms
"""


class Terminal:
    """The person's side of a pseudo-terminal."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self._master = master
        self._process = process
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str, limit: float = 20) -> None:
        deadline = time.monotonic() + limit
        while text not in self.seen:
            ready, _, _ = select.select([self._master], [], [], deadline - time.monotonic())
            assert ready, f"`{text}` did not come; seen: {self.seen}"
            try:
                self.seen += os.read(self._master, 4096).decode()
            except OSError:  # the other side has closed
                assert text in self.seen, self.seen
        self.seen = self.seen.partition(text)[2]

    def press_until_ended(self) -> int:
        """Ctrl-C, again where one fell between the question and the reading of the answer."""
        for _ in range(20):
            self.type("\x03")
            try:
                return self._process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
        return self.ended()

    def ended(self) -> int:
        return self._process.wait(timeout=20)


@contextmanager
def at_terminal(sgpu, *arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sgpu_decl", *arguments],
        cwd=sgpu.folder,
        env=sgpu.environ,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_anything_but_yes_changes_nothing(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    with at_terminal(sgpu, "apply") as terminal:
        terminal.until("Only `yes`")
        terminal.type("y\n")
        terminal.until("nothing was changed")
        assert terminal.ended() == 1
    assert not (sgpu.folder / ".sgpu").exists()


def test_ctrl_c_at_the_question_is_130(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    with at_terminal(sgpu, "apply") as terminal:
        terminal.until("Only `yes`")
        assert terminal.press_until_ended() == 130
    assert not (sgpu.folder / ".sgpu").exists()


def test_two_presses_cancel_the_run_and_wait_for_it(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    with at_terminal(sgpu, "apply") as terminal:
        terminal.until("Only `yes`")
        terminal.type("yes\n")
        terminal.until("liftoff")
        terminal.type("\x03")
        terminal.until("detaching in 5 s, press again to cancel the run")
        terminal.type("\x03")
        terminal.until("sleepy#1 cancelled")
        assert terminal.ended() == 130
    (run,) = sgpu("status", "-o", "json").json["data"]["runs"]
    assert run["state"] == "cancelled"


def test_replacing_an_active_run_takes_its_name(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    assert sgpu("apply", "-y", "--detach").code == 0
    options = ("--set", "gpus=2", "--on-active", "replace", "-y", "--detach")
    with at_terminal(sgpu, "apply", *options) as terminal:
        terminal.until("Type its name to go on")
        terminal.type("sleep\n")
        terminal.until("nothing was changed")
        assert terminal.ended() == 1
    with at_terminal(sgpu, "apply", *options) as terminal:
        terminal.until("Type its name to go on")
        terminal.type("sleepy\n")
        assert terminal.ended() == 0
    (run,) = sgpu("status", "-o", "json").json["data"]["runs"]
    assert run["attempt"] == 2
