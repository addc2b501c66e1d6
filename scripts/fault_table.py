"""Run the fault tests and write what was seen to docs/faults.md, beside torchrun's behaviour.

    python scripts/fault_table.py [OUTPUT]

Takes eight minutes: torchrun waits 30 s for ranks that ignore TERM, a run that hangs is given up
after 60 s, and supervisors are stopped for 60 s. Without torch the columns of torchrun stay empty.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/agent", "-m", "fault")
PATIENCE = 60.0
STOPPED = "60"
HEAD = """# Faults

What the node agent reports for each fault. `scripts/fault_table.py` writes this page from the tests
in `tests/agent`.

Each run has two ranks without torch. Rank 1 causes the fault, unless the name of the fault says
otherwise. Between TERM and KILL there are 0.4 s (30 s with torchrun).

- *noticed*: the time from the fault to the first event of the agent about it. A rank that hangs is
  noticed by `progress_timeout: 0.4s`, one that spins by `timeout: 1s`, full memory when it has run
  out, and a lost node by `--silence 1.5`.
- *over*: the time until the outcome is written and no process is left; for torchrun, until it
  returns.
- *left*: processes of the run after that, found by their environment.
- *blames*: the rank that torchrun's report calls the root cause. It ran the same script with
  `--standalone`.

| fault | verdict | rank | noticed | over | left | torchrun: blames | over | left |
|---|---|---|---|---|---|---|---|---|
"""


class Torchrun:
    """The same script under torchrun, with the doors that a fault's `act` uses."""

    def __init__(self, prelude: str, fault: Any, folder: Path) -> None:
        self.folder = folder
        self._fault = fault
        self._cookie = f"SGPU_COOKIE=torchrun-{time.monotonic_ns()}"
        (folder / "main.py").write_text(prelude + fault.source)
        (folder / "output").mkdir()

    def run(self) -> str:
        """Return the cells of the table."""
        name, _, value = self._cookie.partition("=")
        environment = {**os.environ, **self._fault.arrange(self.folder).get("env", {}),
                       name: value, "SGPU_OUTPUT_DIR": str(self.folder / "output"),
                       "SGPU_RUN_DIR": str(self.folder)}  # fmt: skip
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node", "2", str(self.folder / "main.py")]  # fmt: skip
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                argv, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            return self._watch()
        finally:
            for pid in self._living():
                os.kill(pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()

    def _watch(self) -> str:
        if self._fault.acts:
            self.until(lambda: all((self.folder / f"output/up{rank}").exists() for rank in (0, 1)))
            self.mark()
            self._fault.act(self)
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return f"nobody | over {PATIENCE:.0f} s | {len(self._living())}"
        now = time.monotonic_ns()
        moment = int((self.folder / "output" / "moment").read_text())
        text = (self.folder / "log").read_text(errors="replace")
        blamed = re.search(r"Root Cause.*?rank\s+: (\d+)", text, re.DOTALL)
        found = f"rank {blamed[1]}" if blamed else f"nobody (exit {code})" if code else "-"
        time.sleep(0.5)  # what is about to end by itself may do so
        return f"{found} | {shown((now - moment) / 1e6)} | {len(self._living())}"

    def mark(self) -> None:
        (self.folder / "output" / "moment").write_text(str(time.monotonic_ns()))

    @property
    def supervisor(self) -> int:
        return self._process.pid

    def rank_pid(self, rank: int) -> int:
        return int((self.folder / "output" / f"up{rank}").read_text())

    def seen_signal(self, _count: int) -> None:
        time.sleep(0.7)  # torchrun does not say when it has

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _living(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self._process.pid:
                try:
                    if self._cookie.encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found


class Table:
    """A pytest plugin that keeps what the tests recorded."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.faults: dict[str, Any] = {}
        self.reports: list[Any] = []
        self.prelude = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            if (marker := item.get_closest_marker("fault")) is not None:
                self.names[item.nodeid] = marker.args[0]
            if "fault" in getattr(item, "callspec", item).__dict__.get("params", {}):
                self.faults[item.nodeid] = item.callspec.params["fault"]

    def pytest_plugin_registered(self, plugin: object) -> None:
        self.prelude = getattr(plugin, "PRELUDE", self.prelude)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.skipped:
            self.reports.append(report)


def main(arguments: list[str]) -> int:
    os.environ.setdefault("SGPU_STOPPED", STOPPED)
    os.chdir(ROOT)
    table = Table()
    code = pytest.main([*TESTS, "-q", "-p", "no:xdist"], [table])
    rows: list[str] = []
    others: dict[str, set[str]] = {}
    for report in table.reports:
        name, fault = table.names[report.nodeid], table.faults.get(report.nodeid)
        if report.passed and "verdict" in dict(report.user_properties):
            rows.append(f"| {name} | {ours(report)} | {theirs(table.prelude, fault)} |\n")
        elif fault is not None:
            rows.append(f"| {name} | {why(report)} | | | | | | | |\n")
        else:
            others.setdefault(name, set()).add("passed" if report.passed else why(report))
    tail = "\nFaults without a verdict of their own, each a test:\n\n" + "".join(
        f"- {name}: {', '.join(sorted(seen))}\n" for name, seen in others.items()
    )
    output = Path(arguments[0]) if arguments else ROOT / "docs" / "faults.md"
    output.parent.mkdir(exist_ok=True)
    output.write_text(HEAD + "".join(rows) + tail)
    return int(code)


def ours(report: Any) -> str:
    facts = dict(report.user_properties)
    verdict = facts["verdict"]
    cause = verdict["first_cause"] or {"rank": None}
    words = f"{verdict['state']}, {verdict['class']}" if verdict["class"] else verdict["state"]
    rank = "-" if cause["rank"] is None else cause["rank"]
    return (
        f"{words} | {rank} | {shown(facts['noticed'])} | {shown(facts['over'])} | {facts['left']}"
    )


def theirs(prelude: str, fault: Any) -> str:
    if fault is None or not fault.torchrun or find_spec("torch") is None:
        return "| | "
    print(f"torchrun: {fault.name}", flush=True)  # noqa: T201
    folder = Path(tempfile.mkdtemp(prefix="torchrun-"))
    try:
        return Torchrun(prelude, fault, folder).run()
    finally:
        shutil.rmtree(folder)


def why(report: Any) -> str:
    if not report.skipped:
        return "**failed**"
    return str(report.longrepr[2]).removeprefix("Skipped: ")


def shown(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
