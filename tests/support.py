"""What tests of many rooms need: waiting for an event, golden files, the simplest run files."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

import pytest

from sgpu_decl.errors import SgpuError

__all__ = [
    "COMMAND_RUN",
    "FUNCTION_RUN",
    "PATIENCE",
    "REGEN",
    "check_golden",
    "refusing",
    "require",
    "shell_program",
    "some",
    "until",
]

PATIENCE: Final = 300.0
"""Seconds after which a test gives up, on however slow and busy a machine. A limit, not a claim:
what a test waits for comes at once, or never."""

REGEN: Final = os.environ.get("SGPU_REGEN") == "1"
"""Whether golden files are written anew. No other variable does that."""

COMMAND_RUN: Final = (
    "name: hello\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n"
)
"""A run file whose rank ends at once, for tests that need any run."""

FUNCTION_RUN: Final = (
    "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\nmlflow: {enabled: false}\n"
)
"""A run file that calls `main` of `train.py`, which the test writes."""

_Found = TypeVar("_Found")


def until(condition: Callable[[], _Found], context: Callable[[], object] | None = None) -> _Found:
    """Wait until `condition` returns something true, and return that.

    Args:
        condition: asked again and again.
        context: what the failure shows, if the condition never holds.
    """
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened" if context is None else context()
        time.sleep(0.01)
    return found


def some(value: _Found | None) -> _Found:
    """The value, which is there."""
    assert value is not None
    return value


@contextmanager
def refusing(
    code: str, kind: type[SgpuError] = SgpuError, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[SgpuError]]:
    """Expects an error with this code."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert caught.value.code == code


def require(*modules: str) -> None:
    """Skip a test, or all of a file, where a package is not installed. Nothing is imported: MLflow,
    torch and the SDK take seconds each, in every process that collects tests."""
    for module in modules:
        try:
            found = find_spec(module)
        except ModuleNotFoundError:  # nor the package around it
            found = None
        if found is None:
            pytest.skip(f"`{module}` is not installed", allow_module_level=True)


def shell_program(path: Path, text: str) -> Path:
    """Write an executable that a shell runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def check_golden(path: Path, text: str) -> None:
    """Compare a text with a golden file; `SGPU_REGEN=1` writes the file anew."""
    if REGEN:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
