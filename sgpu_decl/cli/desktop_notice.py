"""`--notify`: the end of runs rings the terminal, and the desktop shows it."""

import html
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.views.status_text import tally

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_view import AttemptView

_LONGEST = 5.0  # seconds that a program of the desktop may take
_PLAIN = ("dumb", "linux", "unknown")  # terminals that show escape sequences as text
# Terminals that show a title too (OSC 777, of rxvt): https://codeberg.org/dnkl/foot#supported-oscs,
# https://wezterm.org/escape-sequences.html, https://ghostty.org/docs/vt/reference
_WITH_TITLE = ("foot", "rxvt", "wezterm", "ghostty")
_SCRIPT = "display notification (item 2 of argv) with title (item 1 of argv)"

notify_option = click.option(
    "--notify",
    is_flag=True,
    help="When all runs have ended, ring the terminal and notify the desktop.",
)


def ring(views: "Sequence[AttemptView]") -> None:
    """Say on this desktop that runs have ended. An error is ignored: there may be no desktop."""
    if not views:
        return
    title, text = _words(views)
    with suppress(OSError, ValueError):
        argv = desktop_command(title, text, os.environ, sys.platform)
        if sys.stderr.isatty():
            sequence = "" if argv else terminal_sequence(title, text, os.environ)
            sys.stderr.write(f"\a{sequence}")
            sys.stderr.flush()
        if argv and shutil.which(argv[0]):
            with suppress(subprocess.SubprocessError):
                subprocess.run(argv, capture_output=True, timeout=_LONGEST, check=False)


def _words(views: "Sequence[AttemptView]") -> tuple[str, str]:
    if len(views) > 1:
        return "sgpu", tally([view.state_word for view in views])
    (view,) = views
    cause = view.first_cause.summary if view.first_cause is not None else ""
    return f"{view.ref} {view.state_word}", _plain(cause)[:200]


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in mask(text))


def desktop_command(
    title: str, text: str, environ: Mapping[str, str], platform: str
) -> list[str] | None:
    """The program that shows a notification on the desktop of this machine; None if nobody sits
    there, as over ssh: the terminal may show it then."""
    if "SSH_CONNECTION" in environ:
        return None
    if platform == "darwin":
        return ["osascript", "-e", "on run argv", "-e", _SCRIPT, "-e", "end run", title, text]
    if not environ.get("DISPLAY") and not environ.get("WAYLAND_DISPLAY"):
        return None
    # The body is markup: https://specifications.freedesktop.org/notification-spec/latest/
    return ["notify-send", "--app-name=sgpu", "--", title, html.escape(text, quote=False)]


def terminal_sequence(title: str, text: str, environ: Mapping[str, str]) -> str:
    """The escape sequence by which a terminal shows a notification; others ignore it.

    OSC 9 is that of iTerm2 (https://iterm2.com/documentation-escape-codes.html), which kitty and
    others know too (https://sw.kovidgoyal.net/kitty/desktop-notifications/).
    """
    term = environ.get("TERM", "dumb")
    if term in _PLAIN:
        return ""
    names = f"{term} {environ.get('TERM_PROGRAM', '')}".lower()
    if any(name in names for name in _WITH_TITLE):
        return f"\x1b]777;notify;{title.replace(';', ',')};{text}\a"
    return f"\x1b]9;{title}{': ' if text else ''}{text}\a"
