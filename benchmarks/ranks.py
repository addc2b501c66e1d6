"""Rank groups: the node agent beside a bare loop of processes (the floor) and torchrun.

All three run the same scripts, in alternating rounds. A rank writes the times that count, by
CLOCK_MONOTONIC, to a file of its own; the time of the command is taken right before it is started.
"""

import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from measuring import Row

from sgpu_decl.agent.attempt.attempt_files import IDENTITY, STATUS, read_json
from sgpu_decl.agent.attempt.attempt_status import read_attempt
from sgpu_decl.agent.attempt.monitor_files import MONITOR
from sgpu_decl.agent.launching.agent_launch import launch
from sgpu_decl.agent.system.locks import wait_until_free
from sgpu_decl.backends.host.host_spec import write_entrypoint
from sgpu_decl.backends.preimports import warm_start
from sgpu_decl.rendering.spec import Entry, Gpus, LaunchSpec

__all__ = ["launch_ranks", "ranks"]

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
HAS_TORCH = find_spec("torch") is not None
SCRIPT = Entry(kind="script", path="main.py")
NOTE = """
import os, time
def note(word):
    with open(os.environ["BENCH_OUT"] + "/" + os.environ["RANK"] + "-" + word, "w") as file:
        file.write(repr(time.monotonic()))
"""
FIRST_LINE = NOTE + "note('up')\n"
ALL_REDUCE = (
    """
import os
import time
import torch
import torch.distributed as dist
"""
    + NOTE
    + """
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
note("up")
dist.destroy_process_group()
"""
)
STEPS = """
import os
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
def steps():
    started = time.monotonic()
    for _ in range(100):
        model(torch.ones(64, 256)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    return (time.monotonic() - started) / 100
steps()
quickest = min(steps() for _ in range(10))
with open(os.environ["BENCH_OUT"] + "/" + os.environ["RANK"] + "-step", "w") as file:
    file.write(repr(quickest))
dist.destroy_process_group()
"""
DEATH = (
    NOTE
    + """
import signal, sys
def told(*_):
    note("told")
    os._exit(0)
signal.signal(signal.SIGTERM, told)
note("up")
if os.environ["RANK"] == "1":
    while len([n for n in os.listdir(os.environ["BENCH_OUT"]) if n.endswith("up")]) < 4:
        time.sleep(0.01)
    time.sleep(0.2)
    note("died")
    os._exit(1)
while True:
    signal.pause()
"""
)
PRINT = (
    NOTE
    + """
line = "x" * 99
for _ in range(250_000):
    print(line)
note("up")
"""
)
COMPUTE = NOTE + "note('up')\nn = 0\nwhile True: n += 1\n"
MANY_THREADS = """
import signal, threading
for _ in range(20):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pause()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One command: when it was started and had returned, and what its ranks noted."""

    started: float
    returned: float
    notes: dict[str, float]

    def last(self, word: str) -> float:
        return max(at for name, at in self.notes.items() if name.endswith("-" + word))


Way = Callable[[Path, str, int], Done]


def by_agent(folder: Path, source: str, count: int) -> Done:
    started = _launch(folder, source, count)
    wait_until_free(str(folder / "supervisor.lock"))
    return _done(folder / "output", started)


def by_agent_unrecorded(folder: Path, source: str, count: int) -> Done:
    """The same, without torch's flight recorder."""
    started = _launch(folder, source, count, recorded=False)
    wait_until_free(str(folder / "supervisor.lock"))
    return _done(folder / "output", started)


def by_loop(folder: Path, source: str, count: int) -> Done:
    """The floor: a process per rank, and a wait on all that stops the others at a failure."""
    script, output = _script(folder, source)
    started = time.monotonic()
    running = {}
    poller = select.poll()
    port = str(20_000 + os.getpid() % 5000 + hash(folder.name) % 5000)
    for rank in range(count):
        environ = {**os.environ, "BENCH_OUT": str(output), "RANK": str(rank),
                   "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                   "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}  # fmt: skip
        with (folder / f"{rank}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, script], env=environ, stdout=log, stderr=log
            )
        handle = os.pidfd_open(process.pid)
        running[handle] = process
        poller.register(handle, select.POLLIN)
    while running:
        for handle, _ in poller.poll():
            poller.unregister(handle)
            os.close(handle)
            if running.pop(handle).wait() != 0:
                for other in running.values():
                    other.terminate()
    return _done(output, started)


def by_torchrun(folder: Path, source: str, count: int) -> Done:
    script, output = _script(folder, source)
    argv = [*TORCHRUN, f"--nproc-per-node={count}", str(script)]
    started = time.monotonic()
    with (folder / "log").open("wb") as log:
        environ = {**os.environ, "BENCH_OUT": str(output)}
        subprocess.run(argv, env=environ, stdout=log, stderr=log, check=False)
    return _done(output, started)


def ranks(scratch: Path) -> Iterator[Row]:
    """The lines of the table. Without torch there is no torchrun, and only the floor beside us."""
    if not HAS_TORCH:
        print("torch is not installed: no figures beside torchrun")
    everybody = (by_agent, by_loop, by_torchrun)
    for count in (4, 16):
        what = f"{count} ranks to their first line"
        results = _alternate(scratch, FIRST_LINE, count, 7, everybody)
        yield from _to_the_last(what, results, floor=2.5, torchrun=None)
    if HAS_TORCH:
        for count, limit, ways in (
            (4, 0.75, everybody),
            (8, 0.4, (by_agent, by_torchrun)),  # where the floor takes minutes
            (16, 0.25, (by_agent, by_torchrun)),
        ):
            what = f"{count} ranks to torch's all_reduce"
            results = _alternate(scratch, ALL_REDUCE, count, 3, ways)
            yield from _to_the_last(what, results, floor=None, torchrun=limit)
        yield _recorded(scratch)
    yield from _deaths(scratch)
    yield from _idle(scratch)
    yield from _monitored(scratch)
    yield from _printing(scratch)


def _to_the_last(
    what: str, results: dict[Way, list[Done]], *, floor: float | None, torchrun: float | None
) -> Iterator[Row]:
    seconds = {
        way: [done.last("up") - done.started for done in column] for way, column in results.items()
    }
    own = seconds[by_agent]
    if by_loop in seconds:
        yield _compare(what, own, "a bare loop", seconds[by_loop], floor)
    if by_torchrun in seconds:
        yield _compare(what, own, "torchrun", seconds[by_torchrun], torchrun)


def _deaths(scratch: Path) -> Iterator[Row]:
    """A rank of four dies: how soon the others are told, and the command returns."""
    results = _alternate(scratch, DEATH, 4, 9, (by_agent, by_loop, by_torchrun))

    def notified(done: Done) -> list[float]:
        died = done.last("died")
        return [at - died for name, at in done.notes.items() if name.endswith("-told")]

    each = sorted(one for done in results[by_agent] for one in notified(done))
    slow = each[int(0.95 * (len(each) - 1))]
    yield Row(
        what="a rank dies, to the TERM of its peers (p95)",
        took=f"{slow * 1000:.1f} ms",
        against="20 ms",
        ratio=slow / 0.02,
        limit=1.0,
    )
    back = {
        way: [done.returned - done.last("died") for done in column]
        for way, column in results.items()
    }
    middle = statistics.median(back[by_agent])
    what = "a rank dies, to the command's return"
    yield Row(
        what=what,
        took=f"{middle * 1000:.0f} ms",
        against="150 ms",
        ratio=middle / 0.15,
        limit=1.0,
    )
    yield _compare(what, back[by_agent], "a bare loop", back[by_loop], None)
    if by_torchrun in back:
        yield _compare(what, back[by_agent], "torchrun", back[by_torchrun], None)


def _idle(scratch: Path) -> Iterator[Row]:
    """What guardian and supervisor take while the ranks only compute."""
    folder = scratch / "idle"
    _launch(folder, COMPUTE, 4)
    while len(list((folder / "output").iterdir())) < 4:
        time.sleep(0.01)
    identity = read_json(str(folder), IDENTITY)
    assert identity is not None
    agents = (identity["pid"], identity["guardian"])
    time.sleep(0.5)  # for the last snapshot of the start
    before = sum(map(_processor_time, agents))
    time.sleep(3)
    processor_seconds = sum(map(_processor_time, agents)) - before
    memory = sum(map(_memory, agents))
    os.kill(identity["pid"], signal.SIGTERM)
    wait_until_free(str(folder / "supervisor.lock"))
    yield Row(
        what="memory of the agent, both processes",
        took=f"{memory / 1e6:.1f} MB",
        against="25 MB",
        ratio=memory / 25e6,
        limit=1.0,
    )
    yield Row(
        what="processor time of the agent while ranks compute",
        took=f"{processor_seconds / 3e3:.0f} us per s",
        against="one thousandth of a core",
        ratio=processor_seconds / 3e6,
        limit=1.0,
    )


def _monitored(scratch: Path) -> Iterator[Row]:
    """What the monitor takes beside eight ranks with twenty threads each."""
    folder = scratch / "monitored"
    _launch(folder, MANY_THREADS, 8)
    while not (folder / MONITOR).exists():
        time.sleep(0.05)
    identity = read_json(str(folder), IDENTITY)
    status = read_json(str(folder), STATUS)
    assert identity is not None and status is not None  # noqa: PT018
    supervisor = identity["pid"]
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (monitor,) = set(map(int, children)) - {rank.get("pid") for rank in status["ranks"]}
    before = _processor_time(monitor)
    time.sleep(10)
    spent = _processor_time(monitor) - before
    os.kill(supervisor, signal.SIGTERM)
    wait_until_free(str(folder / "supervisor.lock"))
    yield Row(
        what="processor time of the monitor of 8 ranks",
        took=f"{spent / 1e4:.0f} us per s",
        against="one hundredth of a core",
        ratio=spent / 1e8,
        limit=1.0,
    )


def _recorded(scratch: Path) -> Row:
    """A step with eight collectives, while torch records them and ranks are asked."""
    results = _alternate(scratch, STEPS, 2, 3, (by_agent, by_agent_unrecorded))
    own, bare = ([done.last("step") for done in column] for column in results.values())
    return _compare("a step with the flight recorder", own, "without it", bare, 1.1)


def _printing(scratch: Path) -> Iterator[Row]:
    """Four ranks print 100 MB together, in lines of 100 bytes."""
    results = _alternate(scratch, PRINT, 4, 3, (by_agent, by_loop))
    own, bare = ([done.last("up") - done.started for done in column] for column in results.values())
    yield _compare("4 ranks print 100 MB", own, "the same, unbuffered too, alone", bare, 1.0)


def _alternate(
    scratch: Path, source: str, count: int, rounds: int, ways: Sequence[Way]
) -> dict[Way, list[Done]]:
    """Return what each of the ways took, after a round that only warms the file cache."""
    results: dict[Way, list[Done]] = {
        way: [] for way in ways if HAS_TORCH or way is not by_torchrun
    }
    for number in range(rounds + 1):
        for way, column in results.items():
            folder = scratch / f"ranks-{way.__name__}-{number}"
            folder.mkdir()
            done = way(folder, source, count)
            shutil.rmtree(folder)
            if number:
                column.append(done)
    return results


def _compare(
    what: str, own: list[float], name: str, other: list[float], limit: float | None
) -> Row:
    mine, theirs = statistics.median(own), statistics.median(other)
    return Row(
        what=what,
        took=f"{mine * 1000:.0f} ms",
        against=f"{name}, {theirs * 1000:.0f} ms, n={len(own)}",
        ratio=mine / theirs,
        limit=limit,
    )


def _script(folder: Path, source: str) -> tuple[Path, Path]:
    output = folder / "output"
    output.mkdir(parents=True)
    script = folder / "main.py"
    script.write_text(source)
    return script, output


def _launch(folder: Path, source: str, count: int, *, recorded: bool = True) -> float:
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "main.py").write_text(source)
    return launch_ranks(folder, SCRIPT, count, recorded=recorded)


def launch_ranks(folder: Path, entry: Entry, count: int, *, recorded: bool = True) -> float:
    """Start the agent for an attempt folder as apply leaves it, with the code in `code/`,
    with torch's flight recorder on if `recorded`; return when that was."""
    code, output = folder / "code", folder / "output"
    output.mkdir()
    spec = LaunchSpec(
        token=f"bench-{os.getpid()}-{folder.name}",
        address="run.bench",
        name="bench",
        attempt=1,
        lineage="bench",
        project_dir=str(folder),
        run_dir=str(folder),
        output_dir=str(output),
        code_dir=str(code),
        world_size=count,
        entry=entry,
        python=sys.executable,
        gpus=Gpus(lock_dir=str(folder / "gpus")),
        port_lock_dir=str(folder / "ports"),
        env={"BENCH_OUT": str(output)},
        flight_recorder=recorded,
        warm=warm_start(entry, code, setting="auto", ranks=count),
    )
    write_entrypoint(folder, spec, folder.parent / "shared")
    started = time.monotonic()
    launch(folder, secrets={})
    return started


def _done(output: Path, started: float) -> Done:
    returned = time.monotonic()
    folder = output.parent
    notes = {path.name: float(path.read_text()) for path in output.iterdir()}
    if not notes:
        logs = [path for path in folder.rglob("*") if path.suffix == ".log" or path.name == "log"]
        text = "".join(path.read_text(errors="replace") for path in logs)
        sys.exit(f"the ranks noted nothing: {read_attempt(folder)}\n{text[-3000:]}")
    return Done(started=started, returned=returned, notes=notes)


def _processor_time(pid: int) -> int:
    """Return the nanoseconds that a process of one thread has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _memory(pid: int) -> int:
    """Return a process's proportional share of memory: what two have in common counts once."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise LookupError("no Pss in smaps_rollup")
