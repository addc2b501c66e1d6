"""The interpreters that tests run Ray with: the newest release, and the oldest that sgpu supports.

The newest is installed beside the tests themselves (the extra `testing`). The oldest has a virtual
environment of its own, because one interpreter holds one Ray; `make test-all` makes it. A test that
takes the fixture `ray_python` (`tests/conftest.py`) runs with both: quickly with the newest, and as
an `expensive` test with the oldest. Of a test that is expensive with both, `make test-all` runs
one, and `make test-ray` both: see `one_version`. `SGPU_TEST_RAY=.venv/ray-2.49.1/bin/python` in
the environment runs the tests of the newest with that one instead, those of the newest alone too.

Cases of the shared cluster and something else, as ("cluster", "victims"), need `scope="session"`:
without it, pytest starts a cluster for each of them.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.sampling import SAMPLE

__all__ = [
    "BOTH_RAYS",
    "NEWEST_CLUSTER",
    "NEWEST_RAY",
    "OLDEST_CLUSTER",
    "OLDEST_RAY",
    "forget_outer_ray",
    "interpreter_with",
    "one_version",
]

OLDEST_RAY: Final = "2.49.1"
"""The oldest Ray that sgpu supports. `make test-all` installs it."""

_NEWEST: Final = "newest"
_NEWEST_PYTHON: Final = os.path.abspath(os.environ.get("SGPU_TEST_RAY", sys.executable))
_OLDEST_PYTHON: Final = Path(__file__).parents[1] / f".venv/ray-{OLDEST_RAY}/bin/python"

BOTH_RAYS: Final = (_NEWEST, pytest.param(OLDEST_RAY, marks=pytest.mark.expensive))
"""Parameters of a test or a fixture, each of which `interpreter_with` takes."""

NEWEST_CLUSTER: Final = pytest.mark.parametrize("cluster", [_NEWEST], indirect=True)
OLDEST_CLUSTER: Final = pytest.mark.parametrize("cluster", BOTH_RAYS[1:], indirect=True)
NEWEST_RAY: Final = pytest.mark.parametrize("ray_python", [_NEWEST], indirect=True)
"""For tests about sgpu alone: one version of Ray is enough, on the shared cluster or their own."""


def interpreter_with(version: str) -> str:
    """Return the path of the interpreter that has a version of Ray; fail the test if there is
    none."""
    if version == _NEWEST:
        return _NEWEST_PYTHON
    if not _OLDEST_PYTHON.exists():
        pytest.fail(f"Ray {OLDEST_RAY} is not installed: run `make test-all`", pytrace=False)
    return str(_OLDEST_PYTHON)


def one_version(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with one version of Ray for each that is expensive with both: half of them
    with the newest, the others with the oldest."""
    by_name: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    if SAMPLE != "all":
        for item in items:
            if item.get_closest_marker("ray") and item.get_closest_marker("expensive"):
                by_name[item.nodeid.replace(OLDEST_RAY, _NEWEST)].append(item)
    left_out = {
        item
        for name, versions in by_name.items()
        for number, item in enumerate(versions)
        if number != (crc32(name.encode()) + int(SAMPLE)) % len(versions)
    }
    return [item for item in items if item not in left_out]


def forget_outer_ray() -> None:
    """Remove what the outer environment says about Ray from this process, so that those which it
    starts do not inherit it.

    Ray takes its address, its token and hundreds of settings from variables named `RAY_*`. A test
    that runs inside a Ray job, or beside a cluster of its user, would join that cluster. A token in
    the home folder (`~/.ray/auth_token`) would be used too, unless `RAY_AUTH_MODE` says otherwise.
    """
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    os.environ["RAY_AUTH_MODE"] = "disabled"
