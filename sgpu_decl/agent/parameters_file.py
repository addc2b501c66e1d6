"""The file of the run's parameters, beside its code."""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt_files import write_atomic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["VARIABLE", "parameters_path", "write_parameters"]

VARIABLE = "HYPERPARAMETERS_PATH"
"""Names the file; it is called so by AI Runtime of Databricks (evidence: B, F)."""


def parameters_path(spec: Mapping[str, Any]) -> str | None:
    """Where the file lies; None where the run has no parameters."""
    return os.path.join(spec["run_dir"], "parameters.yaml") if spec.get("parameters") else None


def write_parameters(spec: Mapping[str, Any]) -> None:
    """Have the file as the spec has it, whatever ranks made of it before.

    Raises:
        OSError: the disk is full.
    """
    path = parameters_path(spec)
    if path is None:
        return
    write_atomic(os.path.dirname(path), os.path.basename(path), spec["parameters"].encode())
