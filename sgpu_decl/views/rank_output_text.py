"""What ranks print, and where they are, as text that is safe for a terminal."""

import re
from collections.abc import Sequence

from sgpu_decl.agent.attempt.stack_groups import StackGroup, stack_groups
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_output import RankStack
from sgpu_decl.views.terminal import escape

# colours (SGR) and tabs pass; all else that a terminal obeys is spelled out
_PASSES = re.compile(r"(\x1b\[[0-9;:]*m|\t)")
_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\n"
_RESET = re.compile(r"\x1b\[0*m")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_LEFT_ON = re.compile(r"\x1b\[(?!0*m)[0-9;:]*m[^\x1b\n]*$", re.MULTILINE)


def clean(text: str) -> str:
    """Keep tabs and colours, escape every other control character.

    Of a line that a progress bar rewrote with carriage returns, the last writing is kept, as a
    terminal would show it. A colour that the line leaves on is ended with it.
    """
    if text.isascii() and text.isprintable():
        return text
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    pieces = _PASSES.split(text)
    colours = [piece for piece in pieces[1::2] if piece != "\t"]
    pieces[::2] = [escape(piece) for piece in pieces[::2]]
    left_on = bool(colours) and not _RESET.fullmatch(colours[-1])
    return "".join(pieces) + ("\x1b[0m" if left_on else "")


def plain(text: str) -> str:
    """`clean` without colours and tabs, for a line in a table. Tokens are masked."""
    return _COLOUR.sub("", mask(clean(text))).expandtabs(4)


def clean_lines(text: str, before: str = "") -> str:
    """`clean` for each line of a text, with `before` in front of each.

    A text that is plain but for colours, as most are, is looked at as one. Tokens are masked.
    """
    text, before = mask(text), mask(before)
    if not _plain(text):
        if "\r" not in text and _plain(_COLOUR.sub("", text)):
            text = _LEFT_ON.sub("\\g<0>\x1b[0m", text)
        else:
            text = "\n".join(map(clean, text.split("\n")))
    return before + text.replace("\n", "\n" + before) if before else text


def _plain(text: str) -> bool:
    """Whether nothing in these lines has to be escaped."""
    if text.isascii():  # the ways that differ take a tenth of the time for as much text
        return not text.encode().translate(None, _PLAIN)
    return text.replace("\n", " ").replace("\t", " ").isprintable()


def prefix(label: str, rank: int | None) -> str:
    """What stands before a line where several ranks or runs are shown; a node has no rank."""
    return f"[{label}] " if rank is None else f"[{label} {rank}] "


def stack_groups_text(stacks: Sequence[RankStack]) -> str:
    """Return the stacks of each group once, with the process that they are of."""
    pids = {one.rank: one.pid for one in stacks}
    parts = []
    for group in _groups(stacks):
        first = group.ranks[0]
        process = f"process {pids[first]}"
        if len(group.ranks) > 1:
            process = f"these are of rank {first}, {process}"
        parts.append(f"{group.title} ({process}):\n{group.text.rstrip()}\n")
    return "\n".join(parts)


def stack_groups_json(stacks: Sequence[RankStack]) -> list[Json]:
    """Return `groups` of the JSON."""
    return [
        {"ranks": list(group.ranks), "differs": group.differs, "at": group.at}
        for group in _groups(stacks)
    ]


def _groups(stacks: Sequence[RankStack]) -> list[StackGroup]:
    return stack_groups({one.rank: one.text for one in stacks if one.text is not None})
