"""The rank, node and world size of the calling rank; and how far it is.

They come from the environment of the rank. If torch's process group is initialized, it must have
the same values. torch is never imported for that: if there is a group, it is imported already.

A process that is no rank (a notebook, a script under `python`) is rank 0 of 1. In a process that
has some variables of a rank and lacks the one that is needed, nothing is guessed.
"""

import os
import sys
from datetime import timedelta
from importlib import import_module
from types import MappingProxyType, ModuleType

__all__ = [
    "get_global_rank",
    "get_local_rank",
    "get_local_world_size",
    "get_node_ip",
    "get_node_rank",
    "get_replica_rank",
    "get_world_size",
    "init_process_group",
    "report_progress",
]

_ALONE = MappingProxyType(
    {
        "RANK": 0,
        "LOCAL_RANK": 0,
        "NODE_RANK": 0,
        "REPLICA_RANK": 0,
        "WORLD_SIZE": 1,
        "LOCAL_WORLD_SIZE": 1,
    }
)
_LOOPBACK = "127.0.0.1"
_ANY_PORT = 9
_RENDEZVOUS = frozenset({"init_method", "rank", "store", "world_size"})


def get_global_rank() -> int:
    """Return the number of this rank among all, from 0.

    Raises:
        RankUnknown: the environment does not say it, or the process group says another.
    """
    return _agreed("RANK", "get_rank")


def get_world_size() -> int:
    """Return the number of all ranks.

    Raises:
        RankUnknown: the environment does not say it, or the process group says another.
    """
    return _agreed("WORLD_SIZE", "get_world_size")


def get_local_rank() -> int:
    """Return the number of this rank on its node, from 0: the index of its GPU.

    Raises:
        RankUnknown: the environment does not say it.
    """
    return _from_environment("LOCAL_RANK")


def get_local_world_size() -> int:
    """Return the number of ranks on this node.

    Raises:
        RankUnknown: the environment does not say it.
    """
    return _from_environment("LOCAL_WORLD_SIZE")


def get_node_rank() -> int:
    """Return the number of this node, from 0.

    Raises:
        RankUnknown: the environment does not say it.
    """
    return _from_environment("NODE_RANK")


def get_node_ip() -> str:
    """Return the IP address of this node: the one from which it reaches the node of rank 0, so the
    other nodes of a run can reach it there. It is loopback where a run has one node.

    Raises:
        RankUnknown: the environment does not say where rank 0 is, or there is no way to it.
    """
    address = os.environ.get("MASTER_ADDR")
    if address is None:
        if _is_rank():
            raise _unknown(
                "`MASTER_ADDR` is not set, though other variables of a rank are",
                "start the ranks with sgpu, or set it to an address of the node of rank 0",
            )
        return _LOOPBACK
    import socket  # only who asks needs it

    try:
        family, kind, number, _, target = socket.getaddrinfo(
            address, _ANY_PORT, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, number) as probe:
            probe.connect(target)  # of a datagram socket: it finds the route, and sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise _unknown(
            f"there is no way from this node to `{address}`, where rank 0 is: {error.strerror}",
            "see that `MASTER_ADDR` is an address of that node, and that the network has a route",
        ) from error


def get_replica_rank() -> int:
    """Return the number of this copy of the world of ranks, from 0; there is one copy today.

    Raises:
        RankUnknown: the environment does not say it.
    """
    return _from_environment("REPLICA_RANK")


def init_process_group(
    backend: str | None = None, *, timeout: float | timedelta | None = None, **options: object
) -> None:
    """Bring up torch's default process group, as `torch.distributed.init_process_group` does.

    One that is up already is kept as it is, its timeout and options too. In a process that is no
    rank, the group is this one process, unless `options` say where to meet others.

    Args:
        backend: by default `nccl` where CUDA is available, else `gloo`.
        timeout: of every operation, in seconds; torch has its own default.
        options: what else torch takes (`device_id`, `store`, ...), passed on.

    Raises:
        RankUnknown: the group and the environment do not say the same.
        SgpuError: a group is up that has another backend than `backend`.
        ModuleNotFoundError: torch is not installed.
    """
    torch, dist = import_module("torch"), import_module("torch.distributed")
    if not dist.is_initialized():
        if timeout is not None:
            whole = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
            options["timeout"] = whole
        if not (_is_rank() or options.keys() & _RENDEZVOUS):
            options.update(rank=0, world_size=1, store=dist.HashStore())
        suitable = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend or suitable, **options)
    elif backend and backend.lower() not in (dist.get_backend(), dist.get_backend_config()):
        from sgpu_decl.errors import SgpuError

        raise SgpuError(
            f"the process group that is up has the backend `{dist.get_backend_config()}`, "
            f"not `{backend}`",
            hint="call `torch.distributed.destroy_process_group()` first, or leave the backend out",
            code="group_differs",
        )
    get_global_rank()
    get_world_size()


def report_progress(step: float, total: float | None = None, **metrics: float) -> None:
    """Say how far this rank is, for `sgpu status` and all that shows it. Call it at each step: it
    writes at most twice a second, and never fails. In a process that is no rank it does nothing.

    Args:
        step: the steps that are done.
        total: how many there will be, if you know.
        metrics: the newest values, such as `loss=1.83`; at most 20 are kept.
    """
    from sgpu_decl.rank.progress_file import is_due, write_progress  # only who reports needs it

    if is_due("reported") or step == total:
        write_progress(step, total, metrics)


def _agreed(name: str, question: str) -> int:
    """Return what the environment and the process group both say, or the one of them that is
    there."""
    group = _group()
    if group is None:
        return _from_environment(name)
    answer = int(getattr(group, question)())
    if name in os.environ and (declared := _from_environment(name)) != answer:
        raise _unknown(
            f"`{name}` is {declared}, but the process group says {answer}",
            "bring the group up with `sgpu_decl.runtime.init_process_group()`, "
            "and leave the variables of the rank as they are",
        )
    return answer


def _from_environment(name: str) -> int:
    """Return what the environment says."""
    text = os.environ.get(name)
    if text is None:
        if _is_rank():
            raise _unknown(
                f"`{name}` is not set, though other variables of a rank are",
                "ask in a rank: the driver of a Ray cluster is none, and a process that starts the "
                "ranks of its node is none",
            )
        group = _group()
        if group is not None and group.get_world_size() > 1:
            raise _unknown(
                f"`{name}` is not set, though a process group is up",
                "start the ranks with sgpu, or set the variable where they are started",
            )
        return _ALONE[name]
    if not (text.isascii() and text.isdecimal()):
        raise _unknown(
            f"`{name}` must be a whole number, not `{text}`", "leave the variables of a rank alone"
        )
    return int(text)


def _is_rank() -> bool:
    return any(name in os.environ for name in _ALONE)


def _group() -> ModuleType | None:
    """`torch.distributed`, if somebody imported it and a process group is up."""
    dist = sys.modules.get("torch.distributed")
    is_up = getattr(dist, "is_initialized", None)  # not there where torch was built without
    return dist if is_up is not None and is_up() else None


def _unknown(message: str, hint: str) -> Exception:
    from sgpu_decl.errors import RankUnknown  # only a mistake needs it

    return RankUnknown(message, hint=hint)
