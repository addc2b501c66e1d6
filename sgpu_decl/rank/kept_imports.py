"""A warm server: it imports what a call's ranks import, and later calls run in forks of it.

    _air.py ─▶ run_rank ─▶ serve_calls: imports ─▶ launch_servers.serve ─▶ forks agents of calls
                 ▲                                                     └─▶ their warm parents
                 └── in ranks: run_rank goes on ◀── fork_server ◀── serve_calls ◀──┘

The caller starts it beside its first call. The warm parent of a later call is a fork of a fork of
this process, so ranks are forked from what was imported once, and never from one another. It has
left the frames of the agent, closed its descriptors, and forgotten its modules.
"""

import gc
import json
import os
import signal
import socket
import sys

from sgpu_decl.rank.attempt_folder import AttemptFolder
from sgpu_decl.rank.fork_safety import open_descriptors, unsafe
from sgpu_decl.rank.fork_server import ForkServer, Imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_AGENT = "sgpu_decl.agent"
_COOKIE = b"SGPU_COOKIE="
_STREAMS = 3
_REALTIME = 32  # the first signal that is not a standard one
_RESET = (  # `HANDLED` and what else `agent/system/loop.py` resets, which ranks cannot import
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGIO,
)


def serve_calls(
    folder: AttemptFolder, channel: int, logs: str, kept: str
) -> tuple[AttemptFolder, tuple[str, str]]:
    """Import what the spec names, then serve calls until the caller has ended.

    Args:
        kept: JSON of what `agent.launching.launch_servers.serve` needs, and the folder `agent`.

    Returns:
        In ranks alone: the folder of their attempt, and what the imports printed.
    """
    if os.fork():
        os._exit(0)  # the caller waits for this process only
    _stop_ignoring()
    settings = json.loads(kept)
    before = open_descriptors()
    imports = Imports(frozenset(sys.modules), logs)
    imports.carry_out(folder.read_spec())
    reason = unsafe(before, ())
    if reason is not None:
        raise SystemExit(f"sgpu: calls are not kept warm: {reason}")
    stamps = _stamps()
    before_agent = _ProcessState(dropped=channel, logs=logs)
    gc.collect()
    gc.freeze()  # so that collections in forks leave these pages shared
    become = _load_agent(settings["agent"]).serve(
        socket.socket(fileno=channel), settings, lambda: _stamps(stamps) != stamps
    )
    before_agent.restore(keep=become.channel)
    return _be_parent(become, imports)


def _stop_ignoring() -> None:
    """Handle the signals that `nohup`, or a shell that started the caller in the background, had
    it ignore: ranks of other calls handle them, because their agent resets them."""
    for number in _RESET:
        if signal.getsignal(number) == signal.SIG_IGN:
            interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupt else signal.SIG_DFL)


class _ProcessState:
    """What the agent changes in this process: modules, descriptors and signal handlers.

    Args:
        dropped: a descriptor that is not kept, and so are those of files in the folder `logs`.
    """

    def __init__(self, *, dropped: int, logs: str) -> None:
        self._modules = _own_modules()
        self._descriptors = {
            number
            for number, target in open_descriptors().items()
            if number < _STREAMS or not (number == dropped or target.startswith(logs + "/"))
        }
        self._handlers = {number: signal.getsignal(number) for number in range(1, _REALTIME)}

    def restore(self, *, keep: int) -> None:
        """Make it as it was, but for the descriptor `keep`."""
        for name in _own_modules() - self._modules:
            del sys.modules[name]
        gc.collect()  # the agent's objects close their descriptors, whose numbers will be others'
        for number in open_descriptors().keys() - self._descriptors - {keep}:
            os.close(number)
        for number, handler in self._handlers.items():
            if handler is not None and number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, handler)


def _own_modules() -> set[str]:
    return {name for name in sys.modules if name.partition(".")[0] == "sgpu_decl"}


def _be_parent(become: "Any", imports: Imports) -> tuple[AttemptFolder, tuple[str, str]]:
    """Be the warm parent of an attempt, as a new process of its `_air.py` would be."""
    from sgpu_decl.rank import main

    path = become.attempt + "/_air.py"
    sys.argv[:] = [path]
    sys.modules["__main__"].__file__ = path
    sys.modules["sgpu_decl.rank"].__path__ = [become.attempt + "/rank.zip"]
    os.environ.clear()
    os.environ.update(become.environment)
    _mark(os.environ["SGPU_COOKIE"].encode())
    main.arm_faulthandler(become.logs)
    folder = AttemptFolder(become.attempt, _sha256_of(path))
    return folder, ForkServer(become.channel, folder.read_spec()).serve(imports)


def _load_agent(folder: str) -> "Any":
    """Import the agent from its folder, whatever sgpu this interpreter has."""
    kind = type(sys)
    for name, places in (("sgpu_decl", []), (_AGENT, [folder])):
        if name not in sys.modules:
            module: Any = kind(name)
            module.__path__ = places
            sys.modules[name] = module
    return __import__(_AGENT + ".launching.launch_servers", {}, {}, ["serve"])


def _stamps(known: "Mapping[str, object] | None" = None) -> dict[str, object]:
    """What tells whether the files of the imported modules, or those in `known`, are others."""
    if known is None:
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        known = dict.fromkeys(file for file in files if isinstance(file, str))
    stamps: dict[str, object] = {}
    for file in known:
        try:
            facts = os.stat(file)
        except OSError:
            stamps[file] = None  # it is gone, or in an archive
        else:
            stamps[file] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
    return stamps


def _sha256_of(air: str) -> str:
    """The checksum of the spec that an entrypoint was rendered for."""
    with open(air, encoding="utf-8") as file:
        for line in file:
            if line.startswith("SPEC_SHA256 = "):
                return line.partition('"')[2].rpartition('"')[0]
    raise SystemExit(f"`{air}` is damaged")


def _mark(cookie: bytes) -> None:
    """Put the attempt's cookie where `/proc/PID/environ` shows it: into the memory of the variable
    that this process was started with."""
    import ctypes

    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # proc(5): env_start and env_end
    shown = ctypes.string_at(start, end - start)
    at = shown.find(_COOKIE)
    if at >= 0:
        room = shown.index(b"\0", at) - at - len(_COOKIE)
        ctypes.memmove(start + at + len(_COOKIE), cookie[:room], min(room, len(cookie)))
