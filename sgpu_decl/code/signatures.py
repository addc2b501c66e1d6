"""Checks entrypoints and their arguments against the source. Nothing is imported or run.

Where the source cannot tell (decorators, `*args`, re-exports), there is no finding.
"""

import ast
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sgpu_decl.code.bindings import Binding, Function, binding_of
from sgpu_decl.code.sources import parse_source
from sgpu_decl.config.entry import entrypoint_hint
from sgpu_decl.config.right_forms import argument_list
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json
from sgpu_decl.text.shape import TEXT, Shape

Locate = Callable[[str], Place | None]

# `--prompt=two words` is one option. A short one may have its value, with spaces, behind it.
_OPTIONS = re.compile(r"--[A-Za-z][\w-]*(?:\s+\S|=\S*\s+--?[A-Za-z])")
_JOINED = re.compile(rf"{_OPTIONS.pattern}|(?:--)?[A-Za-z_][\w.-]*=\S*\s+(?:--?)?[A-Za-z_][\w.-]*=")
_ARGUMENTS = "args: [--epochs, '5']"
_SEQUENCES = frozenset({"list", "List", "Sequence", "Iterable", "Collection", "set", "Set"})
_MAPPINGS = frozenset({"dict", "Dict", "Mapping"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """What an entrypoint names in the source.

    Attributes:
        findings: what is wrong with it. A finding that has no place in the source is about the
            field.
        elsewhere: whether its top package is not below the root.
        tree: that of its file, if arguments can be compared with it.
        binding: of the name of its function.
    """

    findings: tuple[Diagnostic, ...] = ()
    elsewhere: bool = False
    file: str = ""
    tree: ast.Module | None = None
    binding: Binding | None = None


class EntrypointChecks:
    """Checks entrypoints below a folder of code, and reads each of them once: thousands of runs may
    call the same function."""

    def __init__(self, root: Path) -> None:
        """`root` is absolute."""
        self.root = root
        self._targets: dict[str, _Target] = {}

    def findings(
        self,
        entrypoint: str | None,
        command: Sequence[str] | str | None,
        args: Mapping[str, Json] | Sequence[Json] | None,
        place: Locate,
        *,
        installed: Callable[[str], bool],
    ) -> tuple[Diagnostic, ...]:
        """The findings about the entrypoint of a run.

        Args:
            entrypoint: `FILE.py`, `FILE.py:FUNCTION` or `package.module:FUNCTION`; `None`
                for a command.
            args: as written.
            place: gives the place of a dotted field path.
            installed: whether ranks may find a top-level package outside of the root.
        """
        if entrypoint is None:
            return _check_command_args(command, args, place)
        if entrypoint not in self._targets:
            self._targets[entrypoint] = _target(self.root, entrypoint)
        target = self._targets[entrypoint]
        module, _, function = entrypoint.partition(":")
        if target.elsewhere:  # an installed package, or a mistake
            top = module.partition(".")[0]
            return () if installed(top) else (_not_installed(self.root, top, place("entrypoint")),)
        findings = tuple(_at(one, place("entrypoint")) for one in target.findings)
        if target.tree is None:
            return findings
        if target.binding is None:
            return (*findings, *_check_script_args(args, place))
        return (*findings, *_check_function(target, target.binding, function, args, place))


def _target(root: Path, entrypoint: str) -> _Target:
    target, _, function = entrypoint.partition(":")
    findings: tuple[Diagnostic, ...] = ()
    if target.endswith(".py"):
        written = root / target
        path = Path(os.path.realpath(written))
        if not os.path.isfile(path):
            return _Target(findings=(_missing_file(root, target),))
        named_inside = path == written and not os.path.isabs(
            target
        )  # most are: no links to resolve
        if not named_inside and not path.is_relative_to(os.path.realpath(root)):
            findings = (_outside(target),)
    else:
        module = _module_file(root, target)
        if not isinstance(module, Path):
            return _Target(findings=(module,)) if module is not None else _Target(elsewhere=True)
        path = module
    tree, problem = _parse(path, root)
    if tree is None:
        return _Target(findings=(*findings, *problem))
    binding = None
    if function:
        first = function.partition(".")[0]
        binding = binding_of(tree, first, partial(_imported, root, path))
    return _Target(findings=findings, file=path.name, tree=tree, binding=binding)


def text_arguments(root: Path, entrypoint: str) -> dict[str, Shape]:
    """The parameters of an entrypoint whose values are text, and those with text inside, by their
    annotations: `str`, `str | None`, `list[str]`. None where the source cannot tell."""
    target, _, name = entrypoint.partition(":")
    path = root / target if target.endswith(".py") else _module_file(root, target)
    if not name or not isinstance(path, Path) or not os.path.isfile(path):
        return {}
    path = Path(os.path.realpath(path))
    tree, _ = _parse(path, root)
    function = None
    if tree is not None:
        function = binding_of(tree, name, partial(_imported, root, path)).function
    if function is None or function.decorator_list:
        return {}
    shapes = {
        parameter.arg: _text_shape(parameter.annotation)
        for parameter in (*function.args.args, *function.args.kwonlyargs)
    }
    return {name: shape for name, shape in shapes.items() if shape is not None}


def _text_shape(annotation: ast.expr | None) -> Shape | None:
    """Where the values of an annotation are text; `None` where another type may stand too."""
    match annotation:
        case ast.Name(id="str"):
            return TEXT
        case ast.Constant(value=str(source)):  # an annotation in quotes
            try:
                return _text_shape(ast.parse(source, mode="eval").body)
            except SyntaxError:
                return None
        case ast.BinOp(op=ast.BitOr(), left=left, right=ast.Constant(value=None)):
            return _text_shape(left)
        case ast.BinOp(op=ast.BitOr(), left=ast.Constant(value=None), right=right):
            return _text_shape(right)
        case ast.Subscript(value=ast.Name(id=kind) | ast.Attribute(attr=kind), slice=inner):
            return _generic_shape(kind, inner)
    return None


def _generic_shape(kind: str, inner: ast.expr) -> Shape | None:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if kind == "Optional":
        return _text_shape(inner)
    if kind == "Annotated":
        return _text_shape(parts[0])
    if kind == "Literal":
        texts = (isinstance(one, ast.Constant) and isinstance(one.value, str) for one in parts)
        return TEXT if all(texts) else None
    below = _text_shape(parts[-1] if kind in _MAPPINGS else parts[0])
    if below is None:
        return None
    if kind in _MAPPINGS:
        return Shape(values=below)
    return Shape(items=below) if kind in _SEQUENCES else None


def _check_command_args(
    command: Sequence[str] | str | None, args: object, place: Locate
) -> tuple[Diagnostic, ...]:
    if command is None or not isinstance(args, Sequence) or isinstance(args, str):
        words = command if command is not None and not isinstance(command, str) else ()
        return _joined_words(words, "command", place)
    return (
        Diagnostic(
            code="args_of_command",
            summary="a command takes no `args`",
            place=place("args"),
            hint="write them into `command`",
        ),
    )


def _check_script_args(args: object, place: Locate) -> tuple[Diagnostic, ...]:
    if not isinstance(args, Mapping):
        words = args if isinstance(args, Sequence) and not isinstance(args, str) else ()
        return _joined_words(words, "args", place)
    return (
        Diagnostic(
            code="args_not_a_list",
            summary="a script takes its arguments as a list",
            place=place("args"),
            hint=f"write `{argument_list(args) or _ARGUMENTS}`, or name a function: "
            "`FILE.py:FUNCTION`",
        ),
    )


def _joined_words(words: Sequence[object], field: str, place: Locate) -> tuple[Diagnostic, ...]:
    """Warn of words that are several ones of a command line: `--lr=1e-3 --wd=0`, `--lr 1e-3`. A
    program would take all of it for one option, or for its value."""
    return tuple(
        Diagnostic(
            code="joined_arguments",
            severity=Severity.WARNING,
            summary=f"`{word[:80]}` is one word for the program, with its spaces",
            place=place(f"{field}.{position}") or place(field),
            hint=f"write each word on its own: `[{', '.join(word.split())}]`",
        )
        for position, word in enumerate(words)
        if isinstance(word, str) and (_OPTIONS if field == "command" else _JOINED).match(word)
    )


def _check_function(
    target: _Target, binding: Binding, name: str, args: object, place: Locate
) -> tuple[Diagnostic, ...]:
    file = target.file
    if "." in name and not binding.missing:
        return ()  # members of a class or module are known only at run time
    if binding.missing:
        body = target.tree.body if target.tree is not None else []
        functions = [node.name for node in body if isinstance(node, Function)]
        close = nearest(name, sorted(functions))
        return (
            Diagnostic(
                code="function_missing",
                summary=f"`{file}` defines no function `{name}`",
                place=place("entrypoint"),
                hint=f"did you mean `{close}`?" if close else f"define `def {name}(…):` in it",
            ),
        )
    if binding.other is not None:
        return (
            Diagnostic(
                code="entrypoint_not_function",
                summary=f"`{name}` in `{file}` is {binding.other}, not a function",
                place=place("entrypoint"),
                hint="name a function; to run the file as a script, leave out `:NAME`",
            ),
        )
    function = binding.function
    if function is None:
        return ()
    if isinstance(args, Sequence) and not isinstance(args, str):
        return (
            Diagnostic(
                code="args_not_a_mapping",
                summary=f"`{name}` is a function: its `args` are a mapping",
                place=place("args"),
                hint="write `args: {name: value}`",
            ),
        )
    if function.decorator_list:
        return ()
    return _check_arguments(function, dict(args) if isinstance(args, Mapping) else {}, place)


def _check_arguments(
    function: Function, values: Mapping[str, object], place: Locate
) -> tuple[Diagnostic, ...]:
    spec = function.args
    parameters = [argument.arg for argument in (*spec.args, *spec.kwonlyargs)]
    findings = []
    if spec.kwarg is None:
        for name in values:
            if name in parameters or name in {posonlyarg.arg for posonlyarg in spec.posonlyargs}:
                continue
            close = nearest(name, parameters)
            findings.append(
                Diagnostic(
                    code="argument_unknown",
                    summary=f"`{function.name}` takes no argument `{name}`",
                    place=place(f"args.{name}"),
                    hint=f"did you mean `{close}`?"
                    if close
                    else f"it takes: {', '.join(f'`{take}`' for take in parameters) or 'nothing'}",
                )
            )
    positional = [*spec.posonlyargs, *spec.args]
    required = [item.arg for item in positional[: len(positional) - len(spec.defaults)]]
    unreachable = [posonlyarg.arg for posonlyarg in spec.posonlyargs if posonlyarg.arg in required]
    required += [
        item.arg
        for item, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
        if not default
    ]
    missing = [name for name in required if name not in values and name not in unreachable]
    if unreachable:
        findings.append(
            Diagnostic(
                code="argument_positional",
                summary=f"`{function.name}` takes `{unreachable[0]}` by position only, and `args` "
                "gives names",
                place=place("entrypoint"),
                hint="remove the `/` from its signature",
            )
        )
    if missing:
        words = ", ".join(f"`{name}`" for name in missing)
        findings.append(
            Diagnostic(
                code="argument_missing",
                summary=f"`{function.name}` needs {words}, which `args` does not give",
                place=place("args") or place("entrypoint"),
                hint=f"write `args: {{{missing[0]}: …}}`",
            )
        )
    return tuple(findings)


def _module_file(root: Path, module: str) -> Path | Diagnostic | None:
    """The file of a module in the tree; `None` if its top package is not in the tree."""
    parts = module.split(".")
    top = root / parts[0]
    if not os.path.isdir(top) and not os.path.isfile(f"{top}.py"):
        return None
    for candidate in (
        root.joinpath(*parts, "__init__.py"),
        root.joinpath(*parts).with_suffix(".py"),
    ):
        if os.path.isfile(candidate):
            return candidate
    return Diagnostic(
        code="module_missing",
        summary=f"there is no module `{module}` under the code root",
        hint=f"`{parts[0]}` is there: check the rest of the name",
    )


def _imported(root: Path, path: Path, node: ast.ImportFrom, name: str) -> ast.Module | None:
    """The module in the code that `from … import name` reads; `None` if that is not certain, or if
    `name` is a module."""
    base = root
    if node.level:
        base = path.parents[node.level - 1]
    module = _module_file(base, f"{node.module}.{name}" if node.module else name)
    if isinstance(module, Path):
        return None
    source = _module_file(base, node.module) if node.module else base / "__init__.py"
    if not isinstance(source, Path) or source == path or not source.is_relative_to(root):
        return None
    return _parse(source, root)[0]


def _parse(path: Path, root: Path) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
    real = os.path.realpath(root)
    shown = str(path.relative_to(real)) if path.is_relative_to(real) else str(path)
    try:
        return parse_source(path), ()
    except SyntaxError as error:
        at = Place(shown, error.lineno or 1, error.offset or 1)
        summary = f"`{shown}` is not valid Python: {error.msg}"
        return None, (Diagnostic(code="python_syntax", summary=summary, place=at),)
    except (RecursionError, MemoryError):  # raised by the parser if its stack is too small
        return None, (
            Diagnostic(code="python_unreadable", summary=f"`{shown}` is nested too deeply"),
        )
    except (OSError, ValueError) as error:
        return None, (
            Diagnostic(code="python_unreadable", summary=f"`{shown}` cannot be read: {error}"),
        )


def _missing_file(root: Path, target: str) -> Diagnostic:
    folder = (root / target).parent
    names = (
        sorted(path.name for path in folder.glob("*.py") if path.is_file())
        if os.path.isdir(folder)
        else []
    )
    if "\\" in target:
        hint = f"write `/` between folders: `entrypoint: {target.replace(chr(92), '/')}`"
    elif (close := nearest(Path(target).name, names)) is not None:
        hint = f"did you mean `{close}`?"
    elif " " in target:
        hint = entrypoint_hint(target)
    else:
        hint = f"it is looked for in `{root}`"
    return Diagnostic(
        code="entrypoint_missing",
        summary=f"the entrypoint `{target}` does not exist",
        hint=hint,
    )


def _not_installed(root: Path, top: str, at: Place | None) -> Diagnostic:
    modules = {path.stem for path in root.glob("*.py")} | {
        path.parent.name for path in root.glob("*/*.py")
    }
    close = nearest(top, sorted(modules))
    return Diagnostic(
        code="module_not_found",
        severity=Severity.WARNING,
        summary=f"there is no module `{top}` under the code root, and none is installed",
        place=at,
        hint=f"did you mean `{close}`?" if close else "ranks will find it only if it is installed",
    )


def _outside(target: str) -> Diagnostic:
    return Diagnostic(
        code="entrypoint_unpinned",
        severity=Severity.WARNING,
        summary=f"`{target}` lies outside of the code root, so the plan does not pin it",
        hint="move it into the root, or set `code.root` to a folder that holds it",
    )


def _at(finding: Diagnostic, at: Place | None) -> Diagnostic:
    return finding if finding.place is not None else replace(finding, place=at)
