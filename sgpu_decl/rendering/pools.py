"""Native threads that a warm parent may hold when it forks: data, with a source for each.

A fork copies the calling thread alone. A thread that is not named here may hold a lock for ever
in the copy, or be missed there, so the ranks are then started cold.
"""

from dataclasses import dataclass

__all__ = ["HARMLESS", "Pool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Threads known by their own name, or by the library that started them.

    `library` is how the file name of that library begins; `why` says what happens to the threads
    at a fork.
    """

    thread: str | None = None
    library: str | None = None
    why: str
    source: str


_OPENBLAS = "ends its threads in its `pthread_atfork` handler and starts them at the next call"
_OPENBLAS_SOURCE = (
    "https://github.com/OpenMathLib/OpenBLAS/blob/develop/driver/others/memory.c"
    " (openblas_fork_handler)"
)

HARMLESS = (
    Pool(library="libopenblas", why=_OPENBLAS, source=_OPENBLAS_SOURCE),
    # The name under which the wheels of NumPy and SciPy carry it.
    Pool(library="libscipy_openblas", why=_OPENBLAS, source=_OPENBLAS_SOURCE),
    Pool(
        thread="jemalloc_bg_thd",
        why="is stopped before a fork and, in the child, marked as not running",
        source="https://github.com/jemalloc/jemalloc/blob/dev/src/background_thread.c"
        " (background_thread_prefork0, background_thread_postfork_child)",
    ),
)
