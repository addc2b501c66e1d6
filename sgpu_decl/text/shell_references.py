"""What a shell would fill in where no shell reads it: `$HOME/data`, `${DATA:-/tmp}`, `~/data`.

Programs get it as it is written. Only words that a shell would have taken as a path or a name are
told: a sentence, a program for awk or a pattern may have a `$` of its own.
"""

import re
from collections.abc import Iterator

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.tokens import names_secret
from sgpu_decl.text.shell_text import SHELLS
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, place_of

_VARIABLE = re.compile(r"\$(?:\{([A-Z][A-Z0-9_]+)(?::?[-=?+][^{}]*)?\}|([A-Z][A-Z0-9_]+)\b)")
_HOME = re.compile(r"~/")
_WORD = re.compile(r"[\w./:=,@%+~-]*")
_SHELLS = SHELLS | {"fish", "ssh"}
# What only a rank knows, so that no reference of ours could stand for it.
_OF_RANKS = re.compile(
    r"(LOCAL_|GROUP_|NODE_|ROLE_)?(RANK|WORLD_SIZE)|NUM_NODES|MASTER_(ADDR|PORT)|(SGPU|TORCHELASTIC)_.*"
)


def has_shell_references(text: str) -> bool:
    """Whether there may be one in a text: what costs least to know of a whole file."""
    return "~" in text or _VARIABLE.search(text) is not None


def shell_references(root: Mapping, *, project: bool) -> Iterator[Diagnostic]:
    """One warning for each value of a run with one, where its program gets it unread.

    Args:
        project: the root is that of a project, with runs by their names under `runs`.
    """
    if not project:
        yield from _of_run(root)
        return
    runs, defaults = root.entries.get("runs"), root.entries.get("defaults")
    blocks = [*runs.entries.values()] if isinstance(runs, Mapping) else []
    if isinstance(defaults, Mapping) and "run" in defaults.entries:
        blocks.append(defaults.entries["run"])
    for block in (*blocks, root.entries.get("functions")):
        if isinstance(block, Mapping):
            yield from _of_run(block)


def _of_run(run: Mapping) -> Iterator[Diagnostic]:
    for field in ("args", "matrix", "parameters"):
        yield from _inside(run.entries.get(field))
    command, env = run.entries.get("command"), run.entries.get("env")
    if isinstance(command, Sequence) and not any(map(_starts_shell, command.items)):
        yield from _inside(command)
    if isinstance(env, Mapping):
        yield from _inside(env.entries.get("variables"))


def _starts_shell(node: Node) -> bool:
    return isinstance(node, Scalar) and node.text.rpartition("/")[2] in _SHELLS


def _inside(node: Node | None) -> Iterator[Diagnostic]:
    if isinstance(node, Scalar):
        yield from _of_scalar(node)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _inside(item)
    elif isinstance(node, Mapping):
        for value in node.entries.values():
            yield from _inside(value)


def _of_scalar(node: Scalar) -> Iterator[Diagnostic]:
    text = node.text
    names = [braced or plain for braced, plain in _VARIABLE.findall(text)]
    if not names and not _HOME.match(text):
        return
    if not _WORD.fullmatch(_VARIABLE.sub("", text)):
        return
    match = _VARIABLE.search(text)
    yield Diagnostic(
        code="shell_reference",
        severity=Severity.WARNING,
        summary=f"no shell reads this: `{match[0][:80] if match else '~/'}` stays as it is",
        place=place_of(node),
        hint=_hint(names[0] if names else "HOME"),
    )


def _hint(name: str) -> str:
    if _OF_RANKS.fullmatch(name):
        return f"read `{name}` from the environment in your program, or write a text `command`"
    if names_secret(name):
        return f"give it by `env.secrets`, as `env:{name}`, and read it in your program"
    return f"write `${{env.{name}}}` for the value that it has where sgpu is called"
