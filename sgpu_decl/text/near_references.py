"""Misspelt references: `${vars.lr}`, `${ var.lr }`, `${{ matrix.lr }}`, `${env.HOME`. They are not
filled in.

In text for a shell, every name with a dot is one: a shell ends with "bad substitution" where it
expands it, and that is when the run has its GPUs. What a shell does not expand belongs to the
program that reads it."""

import re
from collections.abc import Collection, Iterator

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.tokens import names_secret
from sgpu_decl.text.interpolation import SPACES
from sgpu_decl.text.shell_text import Expansion, expansions, shell_words
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, place_of

_DOTTED = re.compile(r"\$\{\{?\s*([A-Za-z_]{2,20})\s*\.\s*([A-Za-z0-9_]+)\s*\}?\}")
_OUTPUT = re.compile(r"\$\{\{?\s*runs?\s*\.\s*([A-Za-z0-9_-]+)\s*\.\s*output(?:s|_dir)?\s*\}?\}")
_OPEN = re.compile(rf"(\$\{{(?:{'|'.join(SPACES)})\.[\w-]*)[^{{}}]*(?:\{{|\Z)")
_MAYBE_OPEN = re.compile(rf"\$\{{(?:{'|'.join(SPACES)})\.[\w-]*(?![\w}}-])")
_OURS = re.compile(
    rf"\$\{{(?:(?:{'|'.join(SPACES)})\.[^{{}}]*|lookup\.[^{{}}]*|run\.[^{{}}#]+"
    rf"(?:#\d{{1,9}})?\.output)\}}"
)
# What bash refuses. All that may stand after a name: Bash Reference Manual, 3.5.3.
_NO_VARIABLE = re.compile(r"\$\{[!#]?(\w+)\.([^{}]*)\}?")
# All else that it can read: a name, a position or a mark, with an index, and what to do with it;
# since bash 5.3 also a command (`${ date; }`).
_READABLE = re.compile(
    r"\$\{(?:[\s|]|[!#]?(?:[A-Za-z_]\w*|\d+|[@*#?$!-])"
    r"(?:\}|\[(?![^][]*\][.\w])|[-:=?+%#/^,~@*]|\Z))"
)
_NO_OFFSET = re.compile(r"\$\{\w+:\s*[A-Za-z_]\w*\.\w")  # of OmegaConf: `${hydra:job.num}`
# References of Databricks bundles that have one of ours for the same thing.
_OF_BUNDLES = {
    "bundle.target": "target.name", "bundle.environment": "target.name",
    "bundle.name": "project.name", "bundle.git.commit": "git.commit",
    "bundle.git.branch": "git.branch",
}  # fmt: skip
_BUNDLE = re.compile(r"\$\{(bundle\.[a-z.]+)\}")
_OTHER_NAMES = {
    "vars": "var", "variable": "var", "variables": "var",
    "envs": "env", "environ": "env", "environment": "env",
}  # fmt: skip
_LONG = 6  # letters of a name that may have another one in it; three are soon another word
# The fields of a run whose values a program gets as they are, and those that a shell may read.
_ARGUMENTS = frozenset({"args", "matrix", "parameters"})
_COMMAND = "command"
_EXAMPLES = ("var.NAME", "env.NAME", "matrix.AXIS", "target.name", "project.name", "git.commit")
_NO_EXPANSION = (
    f"references are {', '.join(f'`${{{name}}}`' for name in _EXAMPLES)}; quote it (`'…'`) if a "
    "program is to read it as it is"
)


def has_near_references(text: str) -> bool:
    """Whether a text has one: a quick check of a whole file."""
    return "${" in text and (_MAYBE_OPEN.search(text) is not None or any(_misspelt(text)))


def near_references(root: Mapping, *, runs: bool) -> Iterator[Diagnostic]:
    """One finding for each value with one: an error in arguments, else a warning.

    Args:
        runs: the root is that of a project, with runs by their names under `runs`.
    """
    yield from _inside(root, (), runs=runs)


def _inside(node: Node, path: tuple[str, ...], *, runs: bool) -> Iterator[Diagnostic]:
    if isinstance(node, Scalar):
        yield from _of_scalar(node, path, runs=runs)
    elif isinstance(node, Sequence):
        shells: frozenset[int] = frozenset()
        if _field(path, runs=runs) == _COMMAND:
            shells = frozenset(shell_words([_text(item) for item in node.items]))
        for position, item in enumerate(node.items):
            if position not in shells:
                yield from _inside(item, (*path, ""), runs=runs)
    else:
        for key, value in node.entries.items():
            yield from _inside(value, (*path, key), runs=runs)


def _of_scalar(node: Scalar, path: tuple[str, ...], *, runs: bool) -> Iterator[Diagnostic]:
    if "${" not in node.text:
        return
    field = _field(path, runs=runs)
    if field == _COMMAND and path[-1] == _COMMAND:
        return  # text for a shell, which is checked with all references filled in
    for written, meant in _misspelt(node.text):
        # A program may have such references of its own, but none to the output of a run.
        error = field in _ARGUMENTS or (field == _COMMAND and meant.startswith("${run."))
        yield Diagnostic(
            code="near_reference",
            severity=Severity.ERROR if error else Severity.WARNING,
            summary=f"`{written[:80]}` is not a reference, so it is not filled in",
            place=place_of(node),
            hint=f"did you mean `{meant}`?",
        )
        return


def _field(path: tuple[str, ...], *, runs: bool) -> str:
    """The field of a run that a path leads to, or of the file."""
    in_run = (runs and path[:1] == ("runs",)) or path[:2] == ("defaults", "run")
    return next(iter(path[2:3] if in_run else path[:1]), "")


def _text(node: Node) -> str:
    return node.text if isinstance(node, Scalar) else ""


def shell_references_of(
    run: Mapping, *, variables: Collection[str], axes: Collection[str]
) -> Iterator[Diagnostic]:
    """One finding for each text of a run that a shell reads and would refuse.

    Args:
        run: with its references filled in, but for those to the matrix and to other runs.
        variables, axes: what a reference could have meant.
    """
    command = run.entries.get("command")
    texts: list[Node] = [command] if isinstance(command, Scalar) else []
    if isinstance(command, Sequence):
        texts = [command.items[at] for at in shell_words([_text(one) for one in command.items])]
    for node in texts:
        if isinstance(node, Scalar) and "${" in node.text:
            found = (_refused(one, variables, axes) for one in expansions(node.text))
            for summary, hint in [item for item in found if item is not None][:1]:
                yield Diagnostic(
                    code="near_reference", summary=summary, place=place_of(node), hint=hint
                )


def _refused(
    one: Expansion, variables: Collection[str], axes: Collection[str]
) -> tuple[str, str] | None:
    """What a shell refuses, in words, and what to write instead."""
    text = one.text
    shown = text[:80]
    if _OURS.match(text):
        return None
    meant = next((right for written, right in _misspelt(text) if text.startswith(written)), None)
    if meant is not None:
        summary = f"`{shown}` is not a reference, and the shell would refuse it: bad substitution"
        return summary, f"did you mean `{meant}`?"
    match = _NO_VARIABLE.match(text)
    if match is None:
        if _READABLE.match(text) and not _NO_OFFSET.match(text):
            return None
        summary = f"the shell would end at `{shown}`, which is no expansion that it knows"
        return summary, _NO_EXPANSION
    summary = (
        f"the shell would end at `{shown}` with `bad substitution`: a variable cannot have a dot"
    )
    return summary, _instead(match[1], match[2], variables, axes)


def _instead(first: str, rest: str, variables: Collection[str], axes: Collection[str]) -> str:
    name, output, _ = rest.partition(".output")
    if first == "run" and output:
        return f"write `${{run.{name}.output}}` for the folder, and a path behind the brace"
    last = rest.rpartition(".")[2]
    if names_secret(last):
        return f"write `env: {{secrets: {{{last}: env:{last}}}}}`, and `${last}` here"
    for space, names in (("matrix", axes), ("var", variables)):
        near = nearest(last, names)
        if near is not None:
            return f"did you mean `${{{space}.{near}}}`?"
    if first.isupper():
        return f"write `${{{first}}}.{rest}` for the value of `{first}` before the dot"
    return _NO_EXPANSION


def _misspelt(text: str) -> Iterator[tuple[str, str]]:
    """What is not a reference, and the one that was probably meant."""
    for match in _DOTTED.finditer(text):
        if (meant := _meant(match)) is not None:
            yield match[0], meant
    for match in _OUTPUT.finditer(text):
        meant = f"${{run.{match[1]}.output}}"
        if meant != match[0]:
            yield match[0], meant
    for match in _BUNDLE.finditer(text):
        if match[1] in _OF_BUNDLES:
            yield match[0], f"${{{_OF_BUNDLES[match[1]]}}}"
    for match in _OPEN.finditer(text):
        yield match[1], f"{match[1]}}}"


def _meant(match: re.Match[str]) -> str | None:
    """The reference that was probably meant; `None` for a right one, or one of another program."""
    space, name = match.groups()
    known = space if space in SPACES else _near(space.lower())
    meant = f"${{{known}.{name}}}"
    return None if known is None or meant == match[0] else meant


def _near(word: str) -> str | None:
    if word in SPACES or word in _OTHER_NAMES:
        return _OTHER_NAMES.get(word, word)
    return next((space for space in SPACES if _alike(word, space)), None)


def _alike(word: str, space: str) -> bool:
    """Whether one is the other but for letters that are doubled or in another order, or in a long
    name any one letter. `bar`, `vae` and `metric` are words of their own."""
    doubled = len(set(word)) < len(word) and set(word) == set(space)
    if doubled or sorted(word) == sorted(space):
        return True
    return len(space) >= _LONG and _distance(word, space) == 1


def _distance(one: str, other: str) -> int:
    """How many letters have to be put in, left out or replaced."""
    row = list(range(len(other) + 1))
    for count, letter in enumerate(one, start=1):
        before, row[0] = row[0], count
        for index, its in enumerate(other, start=1):
            changed = before + (letter != its)
            before, row[index] = row[index], min(changed, row[index] + 1, row[index - 1] + 1)
    return row[-1]
