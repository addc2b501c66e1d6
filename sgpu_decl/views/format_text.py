"""What `sgpu fmt` changes, as a diff."""

from sgpu_decl.views.terminal import Colour, paint

_COLOURS = {"+": Colour.GREEN, "-": Colour.RED, "@": Colour.CYAN}


def format_diff(name: str, before: bytes, after: str, *, colour: bool) -> str:
    """The unified diff of a file, which `patch` takes."""
    from difflib import unified_diff

    old = before.decode("utf-8", "replace").splitlines()
    lines = unified_diff(old, after.splitlines(), name, name, lineterm="")
    return "\n".join(
        paint(line, _COLOURS[line[0]], on=colour) if line[:1] in _COLOURS else line
        for line in lines
    )
