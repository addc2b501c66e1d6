"""Plans for pull requests: Markdown beside JSON, a comparison with a base beside a plan, and what
git adds to a plan of one run."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, alternating
from workloads import blocks

__all__ = ["reviews"]

CHANGES = 10_000
COMPARED = 2_000
# A runner that is new knows nothing of the code: each round has a cache of its own.
FRESH = 'XDG_CACHE_HOME=$(mktemp -d "$PWD/../cache-XXXXXX") exec "$0" plan "$@"'


def reviews(scratch: Path, sgpu: str, repeats: int) -> Iterator[Row]:
    folder = scratch / "reviewed"
    blocks(folder, CHANGES)
    formats = (("-o", "json"), ("-o", "markdown"), ("-o", "markdown", "--limit", "0"))
    (json, *texts), _ = alternating([((sgpu, "plan", *words), folder) for words in formats], 3)
    for name, measurement in zip(("Markdown", "Markdown without a limit"), texts, strict=True):
        yield Row(
            what=f"{name} of {CHANGES:,} changes",
            took=str(measurement),
            against=f"the JSON, {json}",
            ratio=measurement.seconds / json.seconds,
            limit=1.2,
        )
    folder = scratch / "compared"
    blocks(folder, COMPARED)
    _commit(folder)
    shell = ("sh", "-c", FRESH, sgpu)
    (alone, compared), _ = alternating([(shell, folder), ((*shell, "--base", "HEAD"), folder)], 3)
    yield Row(
        what=f"plan of {COMPARED:,} runs with `--base`",
        took=str(compared),
        against=f"the plan without it, {alone}",
        ratio=compared.seconds / alone.seconds,
        limit=1.8,
    )
    outside, inside = scratch / "outside", scratch / "inside"
    for one in (outside, inside):
        blocks(one, 1)
    _commit(inside)
    (without, within), _ = alternating(
        [((sgpu, "plan"), outside), ((sgpu, "plan"), inside)], repeats, warm=True
    )
    yield Row(
        what="plan of one run in a git checkout",
        took=f"{within.seconds * 1000:.0f} ms",
        against=f"outside of one, {without.seconds * 1000:.0f} ms",
        ratio=within.seconds / without.seconds,
        limit=1.15,
    )


def _commit(folder: Path) -> None:
    git = ("git", "-C", folder, "-c", "user.name=b", "-c", "user.email=b@localhost")
    for words in (("init", "-q"), ("add", "sgpu.yml"), ("commit", "-q", "-m", "b")):
        subprocess.run((*git, *words), check=True)
