"""Whether a process may fork. A fork copies only the calling thread.

A thread that is not known here may hold a lock for ever in the copy, or be needed there. So there
must be no Python thread but the main one, no child, no socket, pipe or GPU device that an import
left open, and no native thread but those of known pools, told by the libraries on their stack. Else
the ranks are started one by one, and the agent's log says why.
"""

import ctypes
import os
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class ThreadPool:
    """Native threads that a fork does not harm, known by their own name, or by their library.

    `library` is how the file name of that library begins; `why` says what happens to the threads
    at a fork.
    """

    def __init__(
        self, *, why: str, source: str, thread: str | None = None, library: str | None = None
    ) -> None:
        self.why = why
        self.source = source
        self.thread = thread
        self.library = library


_OPENBLAS = "ends its threads in its `pthread_atfork` handler and starts them at the next call"
_OPENBLAS_SOURCE = (
    "https://github.com/OpenMathLib/OpenBLAS/blob/develop/driver/others/memory.c"
    " (openblas_fork_handler)"
)

HARMLESS = (
    ThreadPool(library="libopenblas", why=_OPENBLAS, source=_OPENBLAS_SOURCE),
    # The name under which the wheels of NumPy and SciPy carry it.
    ThreadPool(library="libscipy_openblas", why=_OPENBLAS, source=_OPENBLAS_SOURCE),
    ThreadPool(
        thread="jemalloc_bg_thd",
        why="is stopped before a fork and, in the child, marked as not running",
        source="https://github.com/jemalloc/jemalloc/blob/dev/src/background_thread.c"
        " (background_thread_prefork0, background_thread_postfork_child)",
    ),
)

_THREADS = frozenset(pool.thread for pool in HARMLESS if pool.thread is not None)
_LIBRARIES = tuple(pool.library for pool in HARMLESS if pool.library is not None)
# Part of every thread, whoever started it.
_RUNTIME = ("libc.so", "libc-", "libpthread", "ld-linux", "libstdc++", "[vdso]")
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
_SHARED = ("socket:", "pipe:", "anon_inode:", "/memfd:")
_REST = 1.0  # seconds that a pool has to fall asleep after it was started
_STACK = 1 << 16  # bytes of a thread's stack that are read, from its outermost part
_WORD = 8


def unsafe(before: "Mapping[int, str]", requested: "Collection[int]") -> str | None:
    """Return in words why a fork would not be safe now; None if it is safe.

    Args:
        before: the descriptors from before the imports, with what they point at.
        requested: those of the request.
    """
    if threading.active_count() > 1 or len(sys._current_frames()) > 1:
        main = threading.main_thread()
        names = sorted(thread.name for thread in threading.enumerate() if thread is not main)
        return f"an import started a Python thread, `{names[0] if names else 'unnamed'}`"
    for number, target in open_descriptors().items():
        if before.get(number) == target or number in requested:
            continue
        if target.startswith(_DEVICES):
            return f"an import opened `{target}`: what a GPU holds does not survive a fork"
        if target.startswith(_SHARED):
            return f"an import left `{target}` open, which all ranks would share"
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            if file.read().strip():
                return "an import started a process"
        reason = None if int(thread) == os.getpid() else _strange(thread)
        if reason is not None:
            return reason
    return None


def open_descriptors() -> dict[int, str]:
    """Return the descriptors of this process, with what they point at."""
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[int(name)] = os.readlink("/proc/self/fd/" + name)
        except FileNotFoundError:
            continue  # that of the listing itself
    return descriptors


def cuda_is_bad() -> bool:
    """Say, in a forked process, whether torch would refuse CUDA here."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda._is_in_bad_fork())


def _strange(thread: str) -> str | None:
    """Return why this native thread makes a fork unsafe; None if it is known and harmless."""
    folder = "/proc/self/task/" + thread
    try:
        with open(folder + "/comm") as file:
            name = file.read().strip()
        if name in _THREADS:
            return None
        owners = _libraries_of(folder)
    except FileNotFoundError:
        return None  # it has ended
    except OSError:
        owners = set()
    if owners and all(owner.startswith(_LIBRARIES) for owner in owners):
        return None
    where = ", ".join(sorted(owners)) or "an unknown library"
    return f"an import started the native thread `{name}` of {where}"


def _libraries_of(folder: str) -> set[str]:
    """Return the libraries that a sleeping thread came through, by the code addresses on its stack.

    The outermost part of the stack holds the thread's start routine, so a pool of one library shows
    that library and the C runtime alone. Empty where the thread does not come to rest.
    """
    pointer = _stack_pointer(folder)
    if pointer is None:
        return set()
    mapped = []
    with open("/proc/self/maps") as file:
        for line in file:
            parts = line.split(None, 5)
            low, high = (int(part, 16) for part in parts[0].split("-"))
            mapped.append((low, high, "x" in parts[1], parts[5].strip() if len(parts) > 5 else ""))
    end = [high for low, high, _, _ in mapped if low <= pointer < high]
    if not end:
        return set()
    stack = memoryview(ctypes.string_at(pointer, min(end[0] - pointer, _STACK) & -_WORD)).cast("Q")
    code = [
        (low, high, os.path.basename(path)) for low, high, runs, path in mapped if runs and path
    ]
    paths = {path for word in stack for low, high, path in code if low <= word < high}
    return {path for path in paths if not path.startswith(_RUNTIME)}


def _stack_pointer(folder: str) -> int | None:
    """Return where the stack of a thread ends once it sleeps; None where it does not."""
    deadline = time.monotonic() + _REST
    while True:
        with open(folder + "/syscall") as file:
            words = file.read().split()
        if words[0] != "running":
            return int(words[-2], 16)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)
