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
    """The terminal of stdin and stdout, between `take` and `give_back`. `woken` is readable once a
    signal came."""

    def __init__(self, woken: int) -> None:
        self._console, self._keyboard = Console(), sys.stdin.fileno()
        self._before = termios.tcgetattr(self._keyboard)
        self._woken = woken
        self._typed = ""
        self.paused = False

    def take(self) -> None:
        tty.setcbreak(self._keyboard, termios.TCSANOW)
        self._console.set_alt_screen(enable=True)
        self._console.show_cursor(show=False)

    def give_back(self) -> None:
        self._console.show_cursor(show=True)
        self._console.set_alt_screen(enable=False)
        termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._before)

    def _pause(self) -> None:
        """Stop this process, as Ctrl-Z does, until it is told to go on."""
        self.paused = False
        self.give_back()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self.take()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return self._console.size.width, self._console.size.height

    def draw(self, lines: Sequence[Text]) -> None:
        frame = Text("\n", no_wrap=True, overflow="crop", end="").join(lines)
        if mask(frame.plain) != frame.plain:  # a token in a text of ours
            frame = Text(mask(frame.plain), no_wrap=True, overflow="crop", end="")
        self._console.update_screen(frame)

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
            ready, _, _ = select.select([self._keyboard, self._woken], [], [], max(0.0, waits))
            if self._woken in ready:
                os.read(self._woken, 1024)
                if self.paused:
                    self._pause()
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
    """Take the terminal. SIGTERM ends that as Ctrl-C does, by KeyboardInterrupt; Ctrl-Z gives the
    terminal back until the program goes on."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    screen = FullScreen(woken)

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signal module's signature
        screen.paused = screen.paused or number == signal.SIGTSTP
        with suppress(BlockingIOError):
            os.write(wake, b".")

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    handlers = {signal.SIGWINCH: note, signal.SIGTSTP: note, signal.SIGTERM: end}
    replaced = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        screen.take()
        yield screen
    finally:
        replaced[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(OSError, termios.error):  # the terminal is gone
            screen.give_back()
        for number, before in replaced.items():
            signal.signal(number, before)
        os.close(woken)
        os.close(wake)
