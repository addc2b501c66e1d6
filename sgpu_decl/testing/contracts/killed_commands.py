"""The command line, killed or stopped at a step: for tests of what a crash leaves behind, and of
what others do meanwhile."""

import signal
import sys

__all__ = ["dying"]

# Gets a signal right before or after the n-th call of a function.
_DRIVER = """\
import importlib, signal, sys, threading
module, owner, name, when, nth = sys.argv[1].split(",")
holder = importlib.import_module(module)
if owner:
    holder = getattr(holder, owner)
real = getattr(holder, name)
how = signal.Signals[sys.argv[2]]
calls = 0
def send():  # to this thread: another one may take its time, while this one goes on
    signal.pthread_kill(threading.get_ident(), how)
def dying(*args, **kwargs):
    global calls
    calls += 1
    mine = calls
    if mine == int(nth) and when == "before":
        send()
    value = real(*args, **kwargs)
    if mine == int(nth) and when == "after":
        send()
    return value
setattr(holder, name, dying)
from sgpu_decl.cli.main import main
sys.exit(main(sys.argv[3:]))
"""


def dying(step: str, *arguments: str, by: signal.Signals = signal.SIGKILL) -> list[str]:
    """A command that runs `sgpu` and dies at a step; by SIGSTOP it waits there for SIGCONT.

    Args:
        step: `MODULE,CLASS,NAME,before,2`: before the second call of a function. The class may be
            empty.
        arguments: those of `sgpu`.
    """
    return [sys.executable, "-c", _DRIVER, step, by.name, *arguments]
