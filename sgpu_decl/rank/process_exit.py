"""The last step of a rank that was forked for a call.

Python ends as ever: it joins threads, calls `atexit` functions, and deletes the modules and what
they hold. Then the destructors of the C libraries run. Those of torch take longer than all else:
they take tables of operators apart whose memory the rank shares with the process that imported
torch, and the kernel copies each page that they touch. So the destructors of libraries that were
loaded before the fork are left out. Forked processes of `multiprocessing` leave out all of them:
they end by `os._exit`, see `Popen._launch` in
https://github.com/python/cpython/blob/3.11/Lib/multiprocessing/popen_fork.py

What C has buffered is written, and functions run that the call's own libraries have registered.
"""

import ctypes
import os

__all__ = ["leave_early_destructors_out"]


def leave_early_destructors_out() -> None:
    """Have this process end before it comes to the destructors that are known by now.

    The functions of `exit(3)` are called in the reverse order of their registration. A preloaded
    library, such as a profiler or a sanitizer, may report in its destructor: then they all run. So
    they do where C has no `on_exit(3)`.
    """
    libc = ctypes.CDLL(None)
    if "LD_PRELOAD" in os.environ or not hasattr(libc, "on_exit"):
        return
    libc.on_exit(libc._exit, None)  # is given the exit status
    libc.__cxa_atexit(libc.fflush, None, None)
