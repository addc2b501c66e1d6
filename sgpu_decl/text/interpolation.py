"""References of ours in values: `${var.x} ${target.name} ${project.name} ${matrix.axis}
${git.commit} ${env.NAME}`. Everything else with a `$` belongs to the shell and stays as it is.
"""

import re
from collections.abc import Callable
from collections.abc import Mapping as Names
from dataclasses import field, replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.diagnostics.tokens import names_secret
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.variable_types import of_type
from sgpu_decl.text.yaml_nodes import Node, Scalar, Sequence, children, place_of

SPACES = ("var", "target", "project", "matrix", "git", "env")
"""What stands before the dot of a reference."""

_REFERENCE = re.compile(rf"\$\{{({'|'.join(SPACES)})\.([^{{}}]*)\}}")
_NAME = re.compile(r"\w[\w.-]*")
_AXIS = re.compile(r"\$\{matrix\.([^{}]*)\}")
_LONGEST = 1 << 20
_DEEPEST = 50
_MOST_VALUES = 100_000


@dataclass(slots=True, kw_only=True)
class Scope:
    """What references mean here.

    Attributes:
        variables: the value of every variable that has one.
        types: the types of the variables that have one.
        git: asked once, and only when a value refers to it.
        axes: the axes of the matrix, `None` while they are left for later.
    """

    variables: Names[str, Node]
    types: Names[str, str] = field(default_factory=dict)
    target: str
    project: str | None
    environ: Names[str, str]
    git: Callable[[], Names[str, str]]
    axes: Names[str, Scalar] | None = None
    findings: list[Diagnostic] = field(default_factory=list)
    _facts: Names[str, str] | None = None
    _open: set[str] = field(default_factory=set)
    _done: dict[str, Node] = field(default_factory=dict)
    _collected: int = 0

    def value(self, space: str, name: str, place: Place) -> Node | None:
        """What `${space.name}` stands for; notes and returns `None` where there is nothing."""
        if space == "var":
            return self._variable(name, place)
        if space == "matrix":
            return self._axis(name, place)
        if space == "env":
            if names_secret(name):
                return self._unknown(
                    "secret_reference",
                    f"`${{env.{name}}}` looks like a secret: its value would stand in plans and "
                    "in the state",
                    place,
                    f"write `env: {{secrets: {{{name}: env:{name}}}}}`: ranks find it in their "
                    "environment; if it is no secret, pass it with `--var` to a variable",
                )
            if name in self.environ:
                return _text(self.environ[name], place)
            hint = _named("env", name, f"set it before calling sgpu: `export {name}=…`")
            near = nearest(name, self.environ)
            return self._unknown(
                "undefined_env",
                f"the environment has no `{name}`",
                place,
                f"did you mean `${{env.{near}}}`? else {hint}" if near else hint,
            )
        if space == "git":
            return self._git(name, place)
        if name != "name":
            return self._unknown(
                "unknown_reference",
                f"there is no `${{{space}.{name}}}`",
                place,
                f"did you mean `${{{space}.name}}`?",
            )
        if space == "target":
            return _text(self.target, place)
        if self.project is None:
            return self._unknown(
                "unknown_reference",
                "a run file has no `${project.name}`",
                place,
                "it belongs to project files (`sgpu.yml`)",
            )
        return _text(self.project, place)

    def text(self, space: str, name: str, place: Place) -> Scalar | None:
        """What `${space.name}` stands for inside of text."""
        value = self.value(space, name, place)
        if value is None or isinstance(value, Scalar):
            return value
        return self._unknown(
            "wrong_type",
            f"`{name}` is a list or a mapping, which cannot stand inside of text",
            place,
            f"make it the whole value: `${{{space}.{name}}}` alone",
        )

    def collection(self, value: Node, place: Place) -> Node | None:
        """A list or mapping that takes the place of a reference, unless there are too many."""
        self._collected += _size(value, _MOST_VALUES)
        if self._collected <= _MOST_VALUES:
            return value
        return self._unknown(
            "too_many_values",
            f"there are more than {_MOST_VALUES:,} values once references are filled in",
            place,
            "use shorter lists, and fewer references from one to another",
        )

    def _variable(self, name: str, place: Place) -> Node | None:
        if name not in self.variables:
            return self._unknown(
                "unknown_reference",
                f"there is no variable `{name}`",
                place,
                _meant("var", name, self.variables)
                or _named("var", name, f"declare it: `variables: {{{name}: value}}`"),
            )
        if name in self._done:
            return self._done[name]
        if name in self._open or len(self._open) >= _DEEPEST:
            return self._unknown(
                "recursive_variable",
                f"the variable `{name}` refers to itself, or through too many others",
                place_of(self.variables[name]),
                "give one of the variables a plain value",
            )
        self._open.add(name)
        written = self.variables[name]
        filled = interpolate(written, self)
        self._done[name] = filled if filled is written else of_type(filled, self.types.get(name))
        self._open.discard(name)
        return self._done[name]

    def _axis(self, name: str, place: Place) -> Scalar | None:
        axes = self.axes or {}
        if name in axes:
            return axes[name]
        return self._unknown(
            "unknown_reference",
            f"the matrix has no axis `{name}`",
            place,
            _meant("matrix", name, axes)
            or _named("matrix", name, f"add it: `matrix: {{{name}: […]}}`"),
        )

    def _git(self, name: str, place: Place) -> Scalar | None:
        known = ("commit", "branch", "dirty")
        if name not in known:
            return self._unknown(
                "unknown_reference",
                f"there is no `${{git.{name}}}`",
                place,
                _meant("git", name, known) or "known: commit, branch, dirty",
            )
        if self._facts is None:
            self._facts = self.git()
        if name in self._facts:
            return _text(self._facts[name], place)
        return self._unknown(
            "no_git",
            f"git has no {name} to tell here",
            place,
            f"git says: {self._facts['refusal']}"
            if "refusal" in self._facts
            else "is this a git checkout with a commit?",
        )

    def _unknown(self, code: str, summary: str, place: Place, hint: str) -> Scalar | None:
        self.findings.append(Diagnostic(code=code, summary=summary, place=place, hint=hint))
        return None


def interpolate(node: Node, scope: Scope) -> Node:
    """Replace every reference inside a node; `scope.findings` collects what cannot be.

    A value that is one reference takes the type of what it refers to; inside longer text the text
    as written is inserted. Keys are never touched. Nodes without references are returned as they
    are. With `scope.axes` unset, references to the matrix are left.
    """
    if isinstance(node, Scalar):
        return _scalar(node, scope) if "${" in node.text else node
    if isinstance(node, Sequence):
        items = tuple(interpolate(item, scope) for item in node.items)
        if all(new is old for new, old in zip(items, node.items, strict=True)):
            return node
        return replace(node, items=items)
    changed: dict[str, Node] = {}
    for key, value in node.entries.items():
        new = interpolate(value, scope)
        if new is not value:
            changed[key] = new
    return replace(node, entries={**node.entries, **changed}) if changed else node


def axes_in(node: Node) -> frozenset[str]:
    """The axes that `${matrix.…}` references inside a node name."""
    if isinstance(node, Scalar):
        return frozenset(_AXIS.findall(node.text)) if "${" in node.text else frozenset()
    inside = node.items if isinstance(node, Sequence) else node.entries.values()
    return frozenset().union(*(axes_in(item) for item in inside))


def _size(node: Node, most: int) -> int:
    """How many values there are in a node; counting ends soon after `most`."""
    count, left = 0, [node]
    while left and count <= most:
        count += 1
        left += children(left.pop())
    return count


def _scalar(node: Scalar, scope: Scope) -> Node:
    text, place = node.text, place_of(node)
    if "${" not in text:
        return node
    whole = _REFERENCE.fullmatch(text)
    if whole is not None:
        if whole[1] == "matrix" and scope.axes is None:
            return node
        value = scope.value(whole[1], whole[2], place)
        if value is not None and not isinstance(value, Scalar):
            value = scope.collection(value, place)
        if value is None:
            return node
        if not isinstance(value, Scalar):
            return replace(value, reference=node)
        return node._replace(text=value.text, plain=value.plain, filled=_sources(value, place))

    grown = len(text)
    sources: dict[Place, Scalar] = {}

    def put(match: re.Match[str]) -> str:
        nonlocal grown
        if grown > _LONGEST:
            return ""
        if match[1] == "matrix" and scope.axes is None:
            return match[0]
        value = scope.text(match[1], match[2], place)
        if value is None:
            return match[0]
        grown += len(value.text)
        sources.update((place_of(one), one) for one in _sources(value, place))
        return value.text

    result = _REFERENCE.sub(put, text)
    if result == text:
        return node
    if grown > _LONGEST:
        scope.findings.append(
            Diagnostic(
                code="too_long",
                summary=f"the text passes {_LONGEST:,} characters once references are filled in",
                place=place,
                hint="use shorter variables",
            )
        )
        return node
    # Text with a reference inside is text, whatever the outcome looks like.
    return node._replace(text=result, plain=False, filled=tuple(sources.values()))


def _sources(value: Scalar, reference: Place) -> tuple[Scalar, ...]:
    """The value that was written somewhere; none for one of the surroundings, which has the place
    of the reference."""
    return () if place_of(value) == reference else (value,)


def _text(text: str, place: Place) -> Scalar:
    return Scalar(text, False, place.line, place.column, place.file)  # noqa: FBT003


def _named(space: str, name: str, hint: str) -> str:
    """The hint about a name that is not known, where it is one."""
    return hint if _NAME.fullmatch(name) else f"write a name: `${{{space}.NAME}}`"


def _meant(
    space: str, name: str, known: "Names[str, Node] | Names[str, Scalar] | tuple[str, ...]"
) -> str | None:
    near = nearest(name, known)
    return f"did you mean `${{{space}.{near}}}`?" if near else None
