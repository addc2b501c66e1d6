"""Variables that change how ranks talk to each other, and break or slow it down most often.

Names and meanings: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html and, for
gloo, https://docs.pytorch.org/docs/stable/distributed.html#common-environment-variables.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.doctor.network import has_infiniband
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn

_CHECK = "nccl"
_PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_")
_SLOW = {
    "NCCL_P2P_DISABLE": "GPUs do not copy to each other directly",
    "NCCL_SHM_DISABLE": "ranks talk over the network instead of shared memory",
    "CUDA_LAUNCH_BLOCKING": "the CPU waits for each kernel",
}
_BREAKING = ("NCCL_SOCKET_IFNAME", "NCCL_NET", "GLOO_SOCKET_IFNAME")
_FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE")
_WATCHDOGS = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")


def check_collectives(
    runs: tuple[LoadedRun, ...], environ: Mapping[str, str], *, gpus: bool
) -> Iterator[Finding]:
    """Look at the variables of this shell, of NCCL's own files and of each run.

    Args:
        gpus: whether this machine has GPUs; without them NCCL is not used.
    """
    problems: list[Finding] = []
    others: list[str] = []
    looked_at: set[tuple[str, str]] = set()
    interfaces = [name for _, name in socket.if_nameindex()]
    for source, variables in _sources(runs, environ):
        for name, value in variables.items():
            if (name, value) in looked_at:
                continue
            looked_at.add((name, value))
            complaint = _complaint(name, value, interfaces)
            if complaint is not None:
                text, hint = complaint
                breaks = name in _BREAKING and (gpus or not name.startswith("NCCL_"))
                grade = fail if breaks else warn
                problems.append(grade(_CHECK, f"`{name}={value}` ({source}): {text}", hint))
            elif name.startswith(_PREFIXES):
                others.append(f"`{name}={value}` ({source})")
    if others or not problems:
        yield ok(_CHECK, ", ".join(others) or "no variable changes how ranks talk to each other")
    yield from problems


def _sources(
    runs: tuple[LoadedRun, ...], environ: Mapping[str, str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "of this shell", environ
    names = set(environ)
    # As `initEnv` of NCCL's src/misc/param.cc: both files count, and what is set already stays.
    for path in (
        environ.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf"),
        "/etc/nccl.conf",
    ):
        variables = _configured(path)
        yield (
            f"of `{path}`",
            {variable: variables[variable] for variable in variables if variable not in names},
        )
        names |= set(variables)
    for run in runs:
        yield f"of {run.address}", run.config.env.variables


def _configured(path: str) -> dict[str, str]:
    """The variables of a file of NCCL, which keeps spaces around names and values."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name: value for name, equals, value in pairs if equals}


def _complaint(name: str, value: str, interfaces: list[str]) -> tuple[str, str] | None:
    """The problem of a variable and its hint. An empty variable counts as not set."""
    if not value:
        return None
    if name == "NCCL_SOCKET_IFNAME" and not _interfaces_of_nccl(value, interfaces):
        return _no_interface(name, interfaces)
    if name == "GLOO_SOCKET_IFNAME" and not set(value.split(",")) <= set(interfaces):
        return _no_interface(name, interfaces)
    if name in _SLOW and value == "1":
        return f"{_SLOW[name]}, which is slow", f"unset `{name}` unless it works around a fault"
    if name in _FILES and not os.path.isfile(value):
        return "there is no such file", f"unset `{name}`, or name a file that is there"
    if name in _WATCHDOGS and value == "0":
        return (
            "a rank whose peer failed waits until the timeout",
            f"unset `{name}`; a run's `progress_timeout` ends ranks that hang in any case",
        )
    if name == "NCCL_NET" and value == "IB" and not has_infiniband():
        return "this machine has no InfiniBand, and NCCL refuses to start", "unset `NCCL_NET`"
    return None


def _interfaces_of_nccl(value: str, interfaces: list[str]) -> list[str]:
    """The interfaces that NCCL takes: those that begin as one of the names, `=` for the whole name,
    `^` in front of all names for the others."""
    excluding = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    names = [name for name in value.removeprefix("=").split(",") if name]

    def matches(interface: str) -> bool:
        return any(interface == name if exact else interface.startswith(name) for name in names)

    return [item for item in interfaces if matches(item) is not excluding]


def _no_interface(name: str, interfaces: list[str]) -> tuple[str, str]:
    return (
        f"this machine has no such interface; it has {', '.join(interfaces)}",
        f"unset `{name}`: sgpu chooses the interface, `lo` for ranks on one machine",
    )
