"""Attempts with a Ray cluster of their own."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system.processes import variables
from sgpu_decl.rendering.spec import Entry, RaySpec
from tests.support import PATIENCE

SMALL: dict[str, Any] = {"num_gpus": 0, "num_cpus": 1, "object_store_memory": 80 << 20}
MAIN = Entry(kind="file_function", path="main.py", function="main")

# What the source of a driver begins with.
DRIVER = """
import os, signal, time
def leave(name, text=""):
    path = os.path.join(os.environ["SGPU_OUTPUT_DIR"], name)
    with open(path + ".tmp", "w") as file:
        file.write(text)
    os.rename(path + ".tmp", path)
"""


@pytest.fixture
def make_driver(make_attempt: Callable[..., Any], ray_python: str) -> Callable[..., Any]:
    """Make an attempt on one node: its `main` is the driver of a small cluster."""

    def make(source: str, *, ray: dict[str, Any] | None = None, **fields: Any) -> Any:
        fields = {"world_size": 1, "per": "node", "entry": MAIN, "python": ray_python, **fields}
        return make_attempt(DRIVER + source, ray=RaySpec(**{**SMALL, **(ray or {})}), **fields)

    return make


def ray_folder(attempt: Any) -> Path:
    """Return the folder of Ray of a running attempt."""
    token = variables(int(attempt.events("ray_started")[-1]["pid"]))["RAY_AUTH_TOKEN_PATH"]
    return Path(token).parent


def ray_pid(attempt: Any, name: str) -> int:
    """Return the pid of the process of Ray with that name."""
    for pid in attempt.left():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return pid
        except OSError:
            continue
    raise AssertionError(f"there is no {name}")


# Asks the head of a cluster for its nodes, as the start of a driver does.
ASKS = """
import sys
from ray._raylet import GcsClient
from ray.exceptions import RayError
try:
    print(len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10)))
except RayError as error:
    print(error)
"""


def answer_of_head(python: str, address: str, token_path: str | None) -> str:
    """Return how many nodes the head of a cluster tells a client with that token, or why none."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    variables["RAY_AUTH_MODE"] = "disabled" if token_path is None else "token"
    if token_path is not None:
        variables["RAY_AUTH_TOKEN_PATH"] = token_path
    argv = [python, "-c", ASKS, address]
    return subprocess.check_output(
        argv, env=variables, stderr=subprocess.DEVNULL, text=True, timeout=PATIENCE
    ).strip()


def output(attempt: Any) -> Path:
    return Path(os.path.join(attempt.folder, "output"))
