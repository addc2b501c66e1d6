"""Executes itself, as launchers and updaters do: by its argv, and by how Python was started."""

import inspect
import linecache
import multiprocessing
import os
import pickle
import sys

STAGE = os.environ.get("STAGE", "argv")


class Item:
    """Pickled by the name of this module."""


def twice(number: int) -> int:
    return 2 * number


def described() -> list[object]:
    spawning = multiprocessing.get_context("spawn")
    with spawning.Pool(1) as pool:
        doubled = pool.map(twice, [21])
    return [
        STAGE,
        sys.argv,
        sys.orig_argv[1:],
        __spec__,
        type(__loader__).__name__,
        __loader__.get_source("__main__").count("\n"),
        os.path.relpath(__file__),
        linecache.getline(twice.__code__.co_filename, 1),
        inspect.getsource(twice),
        type(pickle.loads(pickle.dumps(Item()))) is Item,
        doubled,
    ]


if __name__ == "__main__":
    print(described())
    if STAGE == "argv":
        os.environ["STAGE"] = "orig_argv"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if STAGE == "orig_argv":
        os.environ["STAGE"] = "done"
        os.execv(sys.executable, sys.orig_argv)
