"""The environment in which the platform runs a node's command."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Position", "inherited", "node_environment"]

_INHERITED = ("LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A node among the others."""

    node: int
    nodes: int
    gpus_per_node: int
    master_port: int


def node_environment(position: Position) -> dict[str, str]:
    """The variables that tell a node where it stands. `RANK` and `LOCAL_RANK` are not among them:
    the command runs once a node, and makes its own ranks."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(position.master_port),
        "NUM_NODES": str(position.nodes),
        "NODE_RANK": str(position.node),
        "POD_RANK": str(position.node),
        "WORLD_SIZE": str(position.nodes * position.gpus_per_node),
        "LOCAL_WORLD_SIZE": str(position.gpus_per_node),
        "PYTHONUNBUFFERED": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_CUMEM_ENABLE": "0",
    }


def inherited(python: str, home: str) -> dict[str, str]:
    """What comes from this machine: its programs, with `python` being the interpreter given."""
    path = os.environ.get("PATH", os.defpath)
    kept: Mapping[str, str] = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**kept, "PATH": f"{os.path.dirname(python)}{os.pathsep}{path}", "HOME": home}
