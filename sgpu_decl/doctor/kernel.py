"""The system calls of the kernel that supervisors of ranks use."""

import errno
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.agent.system.kernel_features import COSTS, OK, kernel_features
from sgpu_decl.model.doctor_finding import Finding, ok, warn
from sgpu_decl.system_errors import error_text

_CHECK = "kernel"
_OLDEST = (5, 4)
# A full or read-only disk says nothing about the kernel; `disk` and `limits` say it.
_OF_THE_DISK = frozenset({"EACCES", "EDQUOT", "EFBIG", "ENOSPC", "EROFS"})
_FILE_FEATURES_COST = {
    "flock": "two commands at once do not exclude each other",
    "hard_link": "runs cannot be asked to stop",
    "punch_hole": "logs of ranks cannot be bounded",
    "seek_data": "bounded logs are read with their holes",
    "fallocate": "room for the outcome is written instead of set aside",
    "directory_notify": "a deleted attempt folder stops its ranks up to 2 seconds later",
}


def check_kernel(attempts: Path) -> Iterator[Finding]:
    """Try out each call that the agent makes; those about files where attempts are written."""
    system = f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        hint = "use a target with another backend for runs"
        yield warn(_CHECK, f"{system}: runs on this machine need Linux", hint)
        return
    version = tuple(int(item) for item in platform.release().split(".")[:2] if item.isdigit())
    if len(version) == 2 and version < _OLDEST:
        yield warn(_CHECK, f"{system} is older than 5.4, which sgpu is tested with", None)
    usable = os.path.isdir(attempts) and os.access(attempts, os.W_OK)
    try:
        features = kernel_features(os.fspath(attempts) if usable else None)
    except OSError as error:
        if errno.errorcode.get(error.errno or 0) not in _OF_THE_DISK:
            raise
        text = f"the system calls for files could not be tried: {error_text(error)}"
        yield warn(_CHECK, text, "see `disk` and `limits`")
        return
    refused = {name: word for name, word in features.items() if word not in {OK, *_OF_THE_DISK}}
    for name, word in refused.items():
        cost = COSTS.get(name) or _FILE_FEATURES_COST.get(name, "")
        yield warn(_CHECK, f"`{name}` is refused ({word}): {cost}", _way_out(name))
    if not refused:
        yield ok(_CHECK, f"{system} has all system calls that supervisors use")


def _way_out(name: str) -> str:
    if name in COSTS:
        return "a sandbox refuses it: allow it in the seccomp profile of the container"
    return "the file system of the project lacks it: keep the project on a local disk"
