"""The codes that sgpu can emit, read from its source without running it.

A code enters at a *sink*: the `code` of a `Diagnostic`, or of an
error. A function that hands one of its parameters on to a sink is a sink itself. A value that
cannot be followed back to text in the source is listed in `Emitted.unknown`, with its place.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import sgpu_decl
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.errors import SgpuError

__all__ = ["Emitted", "emitted"]

PACKAGE = Path(sgpu_decl.__file__).parent
_APART = ("agent", "rank")
"""Rooms that know no diagnostics."""


@dataclass(frozen=True)
class Sink:
    """`code` is the parameter that takes the code, `at` its place among positional arguments. A
    finding has a severity, which is fixed where the parameter `severity` does not say one."""

    code: str = "code"
    at: int | None = None
    severity: str | None = None
    fixed: frozenset[str] = frozenset()
    error: bool = False


_ERROR = frozenset({"error"})
_SINKS = {
    "Diagnostic": Sink(severity="severity", fixed=_ERROR),
    "problem": Sink(at=0, fixed=_ERROR),
    "UvWarning": Sink(at=0, fixed=frozenset({"warning"})),
    "UvReport": Sink(fixed=_ERROR, error=True),  # of a plan, and where a build fails
    "__init__": Sink(error=True),
}
_SINKS_OF_MODULES = {
    "backends/databricks/api/sdk_errors.py": ("_Wording", Sink(at=0, error=True)),
    "environments/declared/interpreter_lock.py": ("UnusableLock", Sink(at=0, fixed=_ERROR)),
    "planner/plan_json.py": ("_Refused", Sink(fixed=_ERROR)),
}
_PASSED_ON = frozenset({"code", "id", "type"})
"""Attributes and keys that hold what went through a sink already."""

_READ_BACK = frozenset(
    {
        "environments/captured/outcome_cache.py",
        "environments/declared/resolution_cache.py",
    }
)
"""Modules that read findings back which were made elsewhere."""


@dataclass(frozen=True)
class Emitted:
    """The severities of each finding, the exit codes of each error, and the places of both."""

    severities: Mapping[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    exits: Mapping[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    places: Mapping[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unknown: set[str] = field(default_factory=set)

    @property
    def codes(self) -> set[str]:
        return {*self.severities, *self.exits}


@dataclass(frozen=True)
class _Site:
    """A call of a sink, in its module and the functions around it, the innermost first."""

    module: "_Module"
    around: tuple[ast.FunctionDef, ...]
    call: ast.Call
    where: str


class _Module:
    def __init__(self, path: Path, package: Path) -> None:
        self.name = str(path.relative_to(package))
        self.path = "sgpu_decl." + self.name.removesuffix(".py").replace("/", ".")
        self.tree = ast.parse(path.read_text())
        self.calls: dict[str, list[_Site]] = defaultdict(list)
        self.classes: list[ast.ClassDef] = []
        self._imported: set[tuple[str, str]] = set()
        self._visit(self.tree, ())

    def reaches(self, source: "_Module") -> bool:
        """Whether what that module has can be called here: a method by an object of its class."""
        return self is source or any(path == source.path for path, _ in self._imported)

    def imports(self, name: str, source: "_Module") -> bool:
        """Whether the name comes from that module here."""
        return (source.path, name) in self._imported

    def _visit(self, node: ast.AST, around: tuple[ast.FunctionDef, ...]) -> None:
        if isinstance(node, ast.FunctionDef):
            around = (node, *around)
        if isinstance(node, ast.ClassDef):
            self.classes.append(node)
        if isinstance(node, ast.ImportFrom):
            self._imported |= {(str(node.module), name.name) for name in node.names}
        if isinstance(node, ast.Call):
            site = _Site(self, around, node, f"{self.name}:{node.lineno}")
            self.calls[_called(node)].append(site)
        for child in ast.iter_child_nodes(node):
            self._visit(child, around)


def emitted(package: Path = PACKAGE) -> Emitted:
    """Read the package."""
    paths = sorted(package.rglob("*.py"))
    modules = [
        _Module(path, package) for path in paths if path.relative_to(package).parts[0] not in _APART
    ]
    return _Search(modules).run()


class _Search:
    def __init__(self, modules: list[_Module]) -> None:
        self._modules = modules
        self._found = Emitted()
        self._classes = _error_classes(modules)
        self._making_their_own = {
            node.name
            for module in modules
            for node in module.classes
            if any(isinstance(one, ast.FunctionDef) and one.name == "__init__" for one in node.body)
        } - {"SgpuError"}
        self._todo: list[tuple[str, Sink, _Module | None]] = [
            *((name, sink, None) for name, sink in _SINKS.items()),
            *((name, Sink(error=True), None) for name in self._classes),
            *(
                (*_SINKS_OF_MODULES[module.name], module)
                for module in modules
                if module.name in _SINKS_OF_MODULES
            ),
        ]

    def run(self) -> Emitted:
        done: set[object] = set()
        while self._todo:
            entry = name, sink, only = self._todo.pop()
            if entry in done:
                continue
            done.add(entry)
            for module in self._modules:
                if only is not None and not module.reaches(only):
                    continue
                for site in module.calls.get(name, ()):
                    self._take(site, sink, name)
        return self._found

    def _take(self, site: _Site, sink: Sink, name: str) -> None:
        given = _argument(site.call, sink.code, sink.at)
        if given is None and name in self._classes:
            code, exit_code = self._classes[name]
            if code is not None:
                self._note(site, code, frozenset(), exit_code)
            elif name not in self._making_their_own:
                self._found.unknown.add(f"{site.where}: an error without a code")
            return
        if given is None:
            return
        severities = self._severities(site, sink)
        own_exit_code = self._classes.get(name, (None, 1))[1] if sink.error else None
        for value in self._texts(site, given):
            if isinstance(value, str):
                self._note(site, value, severities, own_exit_code)
            elif isinstance(value, ast.arg):
                self._hand_on(site, value, sink, severities)
            elif site.module.name in _READ_BACK:
                continue
            else:
                self._found.unknown.add(f"{site.where}: `{ast.unparse(given)}`")

    def _note(
        self, site: _Site, code: str, severities: frozenset[str], exit_code: int | None
    ) -> None:
        self._found.places[code].add(site.where)
        if exit_code is not None:
            self._found.exits[code].add(exit_code)
        if exit_code is None or severities:
            self._found.severities[code].update(severities)

    def _hand_on(
        self,
        site: _Site,
        argument: ast.arg,
        sink: Sink,
        severities: frozenset[str],
    ) -> None:
        """The function around is a sink too, of its own parameter."""
        function = next(one for one in site.around if argument in _arguments(one))
        at = _position(function, argument.arg)
        name = function.name
        if name == "__init__":
            name = next(one.name for one in site.module.classes if function in one.body)
        handed = Sink(argument.arg, at, None, severities, sink.error)
        self._todo.append((name, handed, site.module))

    def _severities(self, site: _Site, sink: Sink) -> frozenset[str]:
        given = _argument(site.call, sink.severity, None) if sink.severity else None
        return sink.fixed if given is None else frozenset(self._severity(site, given))

    def _severity(self, site: _Site, value: ast.expr) -> Iterator[str]:
        """The severities that an expression can be: also those that callers of a function give."""
        match value:
            case ast.IfExp(body=body, orelse=orelse):
                yield from self._severity(site, body)
                yield from self._severity(site, orelse)
            case ast.Attribute(attr=name) if name in Severity.__members__:
                yield str(Severity[name])
            case ast.Name(id=name):
                for function in site.around:
                    if name in [one.arg for one in _arguments(function)]:
                        yield from self._severities_given(site, function, name)

    def _severities_given(
        self, site: _Site, function: ast.FunctionDef, parameter: str
    ) -> Iterator[str]:
        for module in self._modules:
            if module is site.module or module.imports(function.name, site.module):
                for call in module.calls.get(function.name, ()):
                    given = _argument(call.call, parameter, _position(function, parameter))
                    if given is not None:
                        yield from self._severity(call, given)

    def _texts(self, site: _Site, value: ast.expr) -> Iterator[str | ast.arg | None]:
        """The texts that an expression can be, or the parameter that it is; `None`: not known."""
        match value:
            case ast.Constant(value=str(text)):
                yield text
            case ast.IfExp(body=body, orelse=orelse):
                yield from self._texts(site, body)
                yield from self._texts(site, orelse)
            case (
                ast.Attribute(attr=name)
                | ast.Subscript(slice=ast.Constant(value=name))
                | ast.Call(args=[ast.Constant(value=name)])
            ) if name in _PASSED_ON:
                return
            case ast.Name(id=name):
                yield from self._named(site, name)
            case _:
                yield None

    def _named(self, site: _Site, name: str) -> Iterator[str | ast.arg | None]:
        for function in site.around:
            for argument in _arguments(function):
                if argument.arg == name:
                    yield argument
                    return
        for scope in (*site.around, site.module.tree):
            if values := list(_assigned(scope, name)):
                for value, at in values:
                    yield from self._part(site, value, at)
                return
        sources = [module for module in self._modules if site.module.imports(name, module)]
        for value, at in _assigned(sources[0].tree, name) if sources else ():
            yield from self._part(site, value, at)
        if not sources:
            yield None

    def _part(self, site: _Site, value: ast.expr, at: int | None) -> Iterator[str | ast.arg | None]:
        """The texts of a value, or of one member of it: of what a function returns, or of each row
        of a table."""
        match value:
            case _ if at is None:
                yield from self._texts(site, value)
            case ast.Tuple(elts=members) if not any(isinstance(one, ast.Tuple) for one in members):
                yield from self._texts(site, members[at])
            case ast.Tuple(elts=rows) | ast.List(elts=rows):
                for row in rows:
                    yield from self._part(site, row, at)
            case ast.Constant(value=None):
                return
            case ast.Call():
                for inside, returned in _returns(site, _called(value)):
                    yield from self._part(inside, returned, at)
            case ast.Name(id=name):
                for scope in (*site.around, site.module.tree):
                    if values := list(_assigned(scope, name)):
                        for inner, _ in values:
                            yield from self._part(site, inner, at)
                        return
                yield None
            case _:
                yield None


def _error_classes(modules: list[_Module]) -> dict[str, tuple[str | None, int]]:
    """The classes of errors by name, with the code and the exit code that they set or inherit."""
    classes: dict[str, tuple[str | None, int]] = {"SgpuError": (None, SgpuError.exit_code)}
    left = [node for module in modules for node in module.classes]
    while more := [
        node for node in left
        if node.name not in classes and any(ast.unparse(one) in classes for one in node.bases)
    ]:  # fmt: skip
        for node in more:
            code, exit_code = next(
                classes[ast.unparse(one)] for one in node.bases if ast.unparse(one) in classes
            )
            for line in node.body:
                match line:
                    case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=text)):
                        code = str(text)
                    case ast.Assign(
                        targets=[ast.Name(id="exit_code")], value=ast.Constant(value=int(number))
                    ):
                        exit_code = number
            classes[node.name] = code, exit_code
    return classes


def _returns(site: _Site, name: str) -> Iterator[tuple[_Site, ast.expr]]:
    """What a function of the same module returns."""
    for function in ast.walk(site.module.tree):
        if isinstance(function, ast.FunctionDef) and function.name == name:
            inside = _Site(site.module, (function,), site.call, site.where)
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield inside, node.value


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _argument(call: ast.Call, name: str, at: int | None) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if at is not None and at < len(call.args):
        given = call.args[at]
        return given.value if isinstance(given, ast.Starred) else given
    return None


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _position(function: ast.FunctionDef, parameter: str) -> int | None:
    """Where the parameter stands among positional arguments, if it may."""
    names = [one.arg for one in function.args.args if one.arg not in ("self", "cls")]
    return names.index(parameter) if parameter in names else None


def _assigned(scope: ast.AST, name: str) -> Iterator[tuple[ast.expr, int | None]]:
    """What is assigned to a name, and which member of it, where a name is one of several."""
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield value, None
            case ast.AnnAssign(target=ast.Name(id=found), value=value) if found == name and value:
                yield value, None
            case (
                ast.Assign(targets=[ast.Tuple(elts=names)], value=value)
                | ast.For(target=ast.Tuple(elts=names), iter=value)
            ) if name in map(ast.unparse, names):
                yield value, [ast.unparse(one) for one in names].index(name)
