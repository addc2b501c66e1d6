"""A terminal that shows one frame after the other, and the keys that are pressed. However it is
left, the terminal is as it was before."""

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from rich.console import Console
from rich.screen import Screen
from rich.text import Text

from sgpu_decl.diagnostics.masks import mask

_KEYS = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up",
    "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[C": "right", "\x1bOC": "right", "l": "right",
    "\x1b[D": "left", "\x1bOD": "left", "h": "left",
    "\x1b[H": "first", "\x1bOH": "first", "g": "first",
    "\x1b[F": "last", "\x1bOF": "last", "G": "last",
    "\r": "enter", "\n": "enter", "\x1b": "escape", "\x7f": "escape", "\b": "escape",
    "q": "quit", "Q": "quit",
}  # fmt: skip
_ESCAPE = "\x1b"
_INCOMPLETE = 0.05  # seconds after which the Escape key was pressed, and no other
_AGAIN = "redraw"


class FullScreen:
    """Made by `full_screen`."""

    def __init__(self, console: Console, keyboard: int, signals: int) -> None:
        self._console = console
        self._keyboard = keyboard
        self._signals = signals
        self._typed = ""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return self._console.size.width, self._console.size.height

    def draw(self, lines: Sequence[Text]) -> None:
        frame = Text("\n", no_wrap=True, overflow="crop", end="").join(lines)
        if mask(frame.plain) != frame.plain:  # a token in a text of ours
            frame = Text(mask(frame.plain), no_wrap=True, overflow="crop", end="")
        self._console.print(Screen(frame), end="")

    def key(self, seconds: float) -> str | None:
        """The key that is pressed within so many seconds, as one of the names in `_KEYS`; `redraw`
        if the terminal has another size, or shows something else; `quit` if it is gone; None for
        no key, or one without a name."""
        deadline = time.monotonic() + seconds
        while True:
            if self._typed:
                key, self._typed = next_key(self._typed)
                if key is not None:
                    return key
            waits = deadline - time.monotonic()
            if self._typed:
                waits = min(waits, _INCOMPLETE)
            ready, _, _ = select.select([self._keyboard, self._signals], [], [], max(0.0, waits))
            if self._signals in ready:
                os.read(self._signals, 1024)
                return _AGAIN
            if self._keyboard in ready:
                try:
                    typed = os.read(self._keyboard, 1024)
                except OSError:
                    typed = b""
                if not typed:
                    return "quit"
                self._typed += typed.decode(errors="ignore")
            elif self._typed:  # nothing followed the Escape
                self._typed = ""
                return "escape"
            else:
                return None


def next_key(typed: str) -> tuple[str | None, str]:
    """The name of the first key that was typed, and what follows it. The name is None where there
    is none; what follows begins with an Escape if nobody knows yet which key that is."""
    if typed[0] != _ESCAPE:
        return _KEYS.get(typed[0]), typed[1:]
    if typed in (_ESCAPE, "\x1b[", "\x1bO"):
        return None, typed
    if typed[1] not in "[O":
        return "escape", typed[1:]
    end = next((at for at in range(2, len(typed)) if "@" <= typed[at] <= "~"), None)
    if end is None:
        return None, typed if len(typed) < 20 else ""
    return _KEYS.get(typed[: end + 1]), typed[end + 1 :]


@contextmanager
def full_screen() -> Iterator[FullScreen]:
    """Take the terminal of stdin and stdout. SIGTERM ends it as Ctrl-C does, by KeyboardInterrupt.
    Ctrl-Z gives the terminal back until the program goes on."""
    console, keyboard = Console(), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    waker, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def take() -> None:
        tty.setcbreak(keyboard, termios.TCSANOW)
        console.set_alt_screen(enable=True)
        console.show_cursor(show=False)

    def give_back() -> None:
        console.show_cursor(show=True)
        console.set_alt_screen(enable=False)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)

    def again(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signal module's signature
        with suppress(BlockingIOError):
            os.write(wake, b".")

    def pause(number: int, frame: FrameType | None) -> None:
        give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, pause)
        take()
        again(number, frame)

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    wanted = {signal.SIGWINCH: again, signal.SIGTSTP: pause, signal.SIGTERM: end}
    replaced = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        take()
        yield FullScreen(console, keyboard, waker)
    finally:
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number, handler in replaced.items():
            signal.signal(number, handler)
        try:
            give_back()
        except (OSError, termios.error):
            pass  # the terminal is gone
        finally:
            signal.signal(signal.SIGINT, interrupt)
            os.close(waker)
            os.close(wake)
