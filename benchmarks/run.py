"""The benchmark table: ratios taken in one run, so that they mean the same on any machine.

    make bench
    python benchmarks/run.py [--sizes 1000,10000] [--applies 250,1000] [--repeats 15]
                                   [--only start,plans,applies,code,watched,ranks,calls,
                                   environments,databricks,ray,slurm]
                                   [--without-terraform]

Times are wall clock; memory is the peak of the one process. Start-up and plans are medians of
alternating rounds (a round that takes minutes is the last one; `n` says how many there were), each
apply is taken once. Beside `terraform` where it is on the PATH: as many built-in `terraform_data`,
so no plugin takes part: blocks against as many blocks, a matrix against one block with a `count`.
These runs are bare: a program that is on each machine, without tracking. Runs as people write them,
which start programs of the project and are tracked, stand beside as many bare ones.
"""

import argparse
import compileall
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import Measurement, Row, alternating, measure
from workloads import (
    blocks,
    matrix,
    remember_apart,
    terraform_blocks,
    terraform_count,
    terraform_state,
)

PARTS = "start,plans,applies,code,watched,ranks,calls,environments,databricks,ray,slurm"
ROOT = Path(__file__).resolve().parents[1]
SGPU = str(Path(sys.executable).with_name("sgpu"))
OLDER = "bfccb5d"  # what launches are measured against
LAUNCH_ROUNDS = 4
# A first plan knows nothing of code and environments: each round has a cache of its own.
FIRST = 'XDG_CACHE_HOME=$(mktemp -d "$PWD/../cache-XXXXXX") exec "$0" plan "$1"'
LIMITS = {
    ("blocks", "first"): 0.15,
    ("blocks", "no-op"): 0.15,
    ("matrix", "first"): 0.25,
    ("matrix", "no-op"): 0.25,
}


def starting(scratch: Path, repeats: int) -> Iterator[Row]:
    """The commands that a user runs most, against an interpreter that does nothing."""
    folder = scratch / "one"
    blocks(folder, 1)
    remember_apart(folder / "sgpu.yml")
    commands = (
        ("sgpu --help", ("--help",), 8),
        ("sgpu status", ("status",), 12),
        ("sgpu show", ("show", "r00000"), 12),
        ("sgpu wait, of a run that has ended", ("wait", "r00000"), 12),
        ("the Tab key, a run", ("completion", "values", "--", "logs", "r"), 8),
        ("the Tab key, a field", ("completion", "values", "--", "plan", "--set", "e"), 8),
        ("the Tab key, a target", ("completion", "values", "--", "logs", "-t", ""), 8),
        ("sgpu plan, one unchanged run", ("plan",), 30),
        ("sgpu validate, one run", ("validate",), 30),
    )
    new = scratch / "new"
    blocks(new, 1)
    (empty, first, *columns), _ = alternating(
        [
            ((sys.executable, "-c", "pass"), folder),
            (("sh", "-c", FIRST, SGPU, "sgpu.yml"), new),
            *[((SGPU, *words), folder) for _, words, _ in commands],
        ],
        repeats,
        warm=True,
    )
    rows = [("sgpu plan, one run, first", 30, first)]
    rows += [
        (what, limit, measurement)
        for (what, _, limit), measurement in zip(commands, columns, strict=True)
    ]
    for what, limit, measurement in rows:
        yield Row(
            what=what,
            took=f"{measurement.seconds * 1000:.0f} ms",
            against=f"python -c pass, {empty.seconds * 1000:.0f} ms",
            ratio=measurement.seconds / empty.seconds,
            limit=limit,
        )


def planning(scratch: Path, sizes: Sequence[int], *, terraform: str | None) -> Iterator[Row]:
    """Plans of many runs, first and no-op: growth from size to size, and beside terraform's."""
    for shape, write in (("blocks", blocks), ("matrix", matrix)):
        before: dict[str, tuple[int, Measurement]] = {}
        for size in sizes:
            folder = scratch / f"{shape}{size}"
            file = write(folder, size)
            peer = None if terraform is None else scratch / f"tf{shape}{size}"
            if terraform is not None and peer is not None:
                (terraform_count if shape == "matrix" else terraform_blocks)(peer, size)
                measure((terraform, "init", "-no-color"), peer)
            for kind in ("first", "no-op"):
                if kind == "no-op":
                    remember_apart(file)
                    measure((SGPU, "plan", file.name), folder)  # its code is known afterwards
                    if peer is not None:
                        terraform_state(peer, size, counted=shape == "matrix")
                # The exit code of a no-op that is none would be 2, which is not fine.
                exact = kind == "no-op"
                mine = (SGPU, "plan", "--detailed-exitcode", file.name)
                commands: list[tuple[Sequence[str], Path]] = [
                    (mine if exact else ("sh", "-c", FIRST, SGPU, file.name), folder)
                ]
                if terraform is not None and peer is not None:
                    plan = (terraform, "plan", "-no-color", "-lock=false")
                    commands.append(((*plan, *["-detailed-exitcode"] * exact), peer))
                (measurement, *peers), rounds = alternating(commands, 3)
                what = f"plan of {size:,} runs, {shape}, {kind}"
                if kind in before:
                    less, earlier = before[kind]
                    yield Row(
                        what=what,
                        took=str(measurement),
                        against=f"{size // less} x the time of {less:,}",
                        ratio=measurement.seconds / (earlier.seconds * size / less),
                        limit=1.3,
                    )
                before[kind] = (size, measurement)
                limit = LIMITS[shape, kind] if size >= 10_000 else None
                for other in peers:
                    for aspect, ratio in (
                        ("time", measurement.seconds / other.seconds),
                        ("memory", measurement.memory / other.memory),
                    ):
                        yield Row(
                            what=f"{what}: {aspect}",
                            took=str(measurement),
                            against=f"terraform, {other}, n={rounds}",
                            ratio=ratio,
                            limit=limit if aspect == "time" else 0.25 if limit else None,
                        )


def applying(scratch: Path, counts: Sequence[int], *, terraform: str | None) -> Iterator[Row]:
    """Applies of many short runs, detached: the time of each must not grow with their number."""
    before: tuple[int, Measurement] | None = None
    for count in counts:
        folder = scratch / f"apply{count}"
        file = matrix(folder, count)
        measurement = measure((SGPU, "apply", "-y", "--detach", file.name), folder)
        started = time.perf_counter()
        measure((SGPU, "wait", "run.*"), folder)
        after = time.perf_counter() - started
        what = f"apply of {count:,} runs (the last ended {after:.0f} s later)"
        if before is not None:
            less, earlier = before
            yield Row(
                what=what,
                took=str(measurement),
                against=f"{count / less:g} x the time of {less:,}, {earlier.seconds:.1f} s",
                ratio=measurement.seconds / (earlier.seconds * count / less),
                limit=1.3,
            )
        before = (count, measurement)
        if terraform is not None:
            peer_folder = scratch / f"tfapply{count}"
            terraform_blocks(peer_folder, count)
            measure((terraform, "init", "-no-color"), peer_folder)
            peer = measure((terraform, "apply", "-auto-approve", "-no-color"), peer_folder)
            yield Row(
                what=what,
                took=str(measurement),
                against=f"terraform, {peer}",
                ratio=measurement.seconds / peer.seconds,
                limit=None,
            )


def tables(scratch: Path, count: int, repeats: int) -> Iterator[Row]:
    """The table of a sweep that `applying` ran, after each rank has returned a value."""
    folder = scratch / f"apply{count}"
    for number, rank in enumerate(sorted(folder.glob(".sgpu/default/runs/*/1/ranks/0"))):
        (rank / "output.json").write_text(f'{{"loss": {number / 7}, "epochs": {number}}}')
    commands = [((SGPU, "results", "many", "--sort", "loss"), folder)]
    (measurement,), _ = alternating(commands, repeats, warm=True)
    yield Row(
        what=f"table of a sweep of {count:,} runs",
        took=str(measurement),
        against="a second",
        ratio=measurement.seconds,
        limit=1 if count <= 1000 else None,
    )


def launching(scratch: Path, count: int) -> Iterator[Row]:
    """Applies of short runs, detached, beside those of an older commit, in turns."""
    older = scratch / "older"
    older.mkdir()
    packed = subprocess.run(("git", "-C", ROOT, "archive", OLDER), capture_output=True, check=False)
    if packed.returncode:
        print(f"the commit {OLDER} is not here: no figures beside it")
        return
    subprocess.run(("tar", "-x", "-C", older), input=packed.stdout, check=True)
    compileall.compile_dir(older / "sgpu_decl", quiet=2)
    each = count // LAUNCH_ROUNDS
    times: dict[Path, list[float]] = {older: [], ROOT: []}
    for number in range(LAUNCH_ROUNDS):
        for checkout, seconds in times.items():
            folder = scratch / f"launch-{checkout.name}-{number}"
            file = matrix(folder, each)
            sgpu = ("env", f"PYTHONPATH={checkout}", sys.executable, "-m", "sgpu_decl")
            seconds.append(measure((*sgpu, "apply", "-y", "--detach", file.name), folder).seconds)
            measure((*sgpu, "wait", "run.*"), folder)
    before, now = (sum(seconds) for seconds in times.values())
    yield Row(
        what=f"{count:,} detached ranks launched, {each} at a time",
        took=f"{now:.1f} s",
        against=f"commit {OLDER}, {before:.1f} s",
        ratio=now / before,
        limit=0.75,
    )


def _clusters(parts: set[str], scratch: Path) -> list[Iterator[Row]]:
    rows: list[Iterator[Row]] = []
    if "ray" in parts:
        from ray_clusters import ray_clusters
        from ray_content import ray_content
        from ray_launches import ray_launches
        from ray_logs import ray_logs
        from ray_plans import ray_plans
        from ray_programs import ray_programs

        rows += [ray_plans(scratch), ray_clusters(scratch)]
        rows += [ray_launches(scratch), ray_logs(scratch), ray_content(scratch)]
        rows.append(ray_programs(scratch))
    if "slurm" in parts:
        from slurm_ranks import slurm_ranks

        rows.append(slurm_ranks(scratch))
    return rows


def _show(row: Row) -> None:
    limit = "" if row.limit is None else f"{row.limit:g}"
    verdict = "" if row.limit is None else ("ok" if row.ratio <= row.limit else "OVER")
    took = f"{row.took:<18}"
    print(f"{row.what:<58} {took} {row.ratio:>7.2f} x  {limit:>5} {verdict:<5} {row.against}")
    sys.stdout.flush()


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description="the benchmark table of sgpu, as ratios")
    parser.add_argument("--sizes", type=_numbers, default=[1000, 10_000])
    parser.add_argument("--applies", type=_numbers, default=[250, 1000])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default=PARTS)
    parser.add_argument("--without-terraform", action="store_true")
    options = parser.parse_args()
    terraform = None if options.without_terraform else shutil.which("terraform")
    parts = set(options.only.split(","))
    # An import that compiles its module would be measured as one that loads it.
    compileall.compile_dir(ROOT / "sgpu_decl", quiet=2)

    print(f"{'what':<58} {'took':<18} {'ratio':>9}  {'limit':>5} {'':<5} against")
    over = 0
    with tempfile.TemporaryDirectory(prefix="sgpu-bench-") as text:
        scratch = Path(text)
        rows: list[Iterator[Row]] = []
        if "start" in parts:
            from formatting import formatting

            rows.append(starting(scratch, options.repeats))
            rows.append(formatting(scratch, SGPU, options.repeats))
        if "plans" in parts:
            from included_files import included_files
            from real_runs import real_runs
            from reviews import reviews

            rows.append(planning(scratch, options.sizes, terraform=terraform))
            rows.append(real_runs(scratch, SGPU, max(options.sizes)))
            rows.append(included_files(scratch, SGPU, options.repeats))
            rows.append(reviews(scratch, SGPU, options.repeats))
        if "applies" in parts:
            from shared_states import shared_states

            rows.append(applying(scratch, options.applies, terraform=terraform))
            rows.append(shared_states(scratch, SGPU, options.repeats))
            rows.append(tables(scratch, max(options.applies), min(options.repeats, 5)))
            rows.append(launching(scratch, max(options.applies)))
        if "code" in parts:
            from boxes import boxes
            from code_copies import code_copies

            rows.append(code_copies(scratch, SGPU))
            rows.append(boxes(scratch, SGPU, min(options.repeats, 7)))
        if "watched" in parts:
            from watching import watching

            rows.append(watching(scratch, options.repeats))
        if "ranks" in parts:
            from progress import progress  # both with what the agent's folders are made of
            from ranks import ranks

            rows += [ranks(scratch), progress(scratch)]
        if "calls" in parts:
            from calls import calls

            rows.append(calls(scratch, repeats=options.repeats))
        if "environments" in parts:
            from environments import environments
            from uncompiled import uncompiled

            rows.append(environments(scratch))
            rows.append(uncompiled(scratch, SGPU))
        if "databricks" in parts:
            from workspaces import workspaces

            rows.append(workspaces(scratch, options.repeats))
        rows += _clusters(parts, scratch)
        for part in rows:
            for row in part:
                _show(row)
                over += row.limit is not None and row.ratio > row.limit
    if terraform is None:
        print("terraform is not on the PATH: no figures beside it")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
