"""Entrypoints and their arguments, checked against the source. Nothing is imported or run.

Where the source cannot tell (decorators, `*args`, re-exports), nothing is said.
"""

import ast
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.diagnostics.suggesting import nearest
from sgpu_decl.model.jsonable import Json
from sgpu_decl.staging.parsing import parse_source

__all__ = ["check_entrypoint"]

Locate = Callable[[str], Place | None]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_entrypoint(
    root: Path,
    entrypoint: str | None,
    command: Sequence[str] | str | None,
    args: Mapping[str, Json] | Sequence[Json] | None,
    place: Locate,
    *,
    installed: Callable[[str], bool],
) -> tuple[Diagnostic, ...]:
    """Say what is wrong with the entrypoint of a run.

    Args:
        root: the code root, absolute.
        entrypoint: `FILE.py`, `FILE.py:FUNCTION` or `package.module:FUNCTION`; `None`
            for a command.
        args: as written.
        place: gives the place of a dotted field path.
        installed: says whether ranks may find a top-level package outside of the root.
    """
    if entrypoint is None:
        return _check_command_args(command, args, place)
    target, _, function = entrypoint.partition(":")
    at = place("entrypoint")
    if target.endswith(".py"):
        path = Path(os.path.realpath(root / target))
        findings: list[Diagnostic] = []
        if not path.is_relative_to(os.path.realpath(root)):
            findings.append(_outside(target, at))
        if not os.path.isfile(path):
            return (*findings, _missing_file(root, target, at))
    else:
        found = _module_file(root, target)
        if isinstance(found, Diagnostic):
            return (_at(found, at),)
        if found is None:  # not ours: an installed package, or a mistake
            top = target.partition(".")[0]
            return () if installed(top) else (_not_installed(root, top, at),)
        path, findings = found, []
    tree, problem = _parse(path, root)
    if tree is None:
        return (*findings, *problem)
    if not function:
        return (*findings, *_check_script_args(args, place))
    return (*findings, *_check_function(tree, path.name, function, args, place))


def _check_command_args(
    command: Sequence[str] | str | None, args: object, place: Locate
) -> tuple[Diagnostic, ...]:
    if command is None or not isinstance(args, Sequence) or isinstance(args, str):
        return ()
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
        return ()
    return (
        Diagnostic(
            code="args_not_a_list",
            summary="a script takes its arguments as a list",
            place=place("args"),
            hint="write `args: [--epochs, '5']`, or name a function: `FILE.py:FUNCTION`",
        ),
    )


def _check_function(
    tree: ast.Module, file: str, name: str, args: object, place: Locate
) -> tuple[Diagnostic, ...]:
    functions = {it.name: it for it in tree.body if isinstance(it, Function)}
    if name not in functions:
        if name in _other_names(tree):
            return ()
        close = nearest(name, sorted(functions))
        return (
            Diagnostic(
                code="function_missing",
                summary=f"`{file}` defines no function `{name}`",
                place=place("entrypoint"),
                hint=f"did you mean `{close}`?" if close else f"define `def {name}(…):` in it",
            ),
        )
    function = functions[name]
    if isinstance(function, ast.AsyncFunctionDef) and not function.decorator_list:
        return (
            Diagnostic(
                code="function_async",
                summary=f"`{name}` in `{file}` is an async function: calling it runs nothing",
                place=place("entrypoint"),
                hint=f"name a plain function that calls `asyncio.run({name}(…))`",
            ),
        )
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
    function: Function, given: Mapping[str, object], place: Locate
) -> tuple[Diagnostic, ...]:
    spec = function.args
    takes = [it.arg for it in (*spec.args, *spec.kwonlyargs)]
    findings = []
    if spec.kwarg is None:
        for name in given:
            if name in takes or name in {it.arg for it in spec.posonlyargs}:
                continue
            close = nearest(name, takes)
            findings.append(
                Diagnostic(
                    code="argument_unknown",
                    summary=f"`{function.name}` takes no argument `{name}`",
                    place=place(f"args.{name}"),
                    hint=f"did you mean `{close}`?"
                    if close
                    else f"it takes: {', '.join(f'`{it}`' for it in takes) or 'nothing'}",
                )
            )
    positional = [*spec.posonlyargs, *spec.args]
    required = [it.arg for it in positional[: len(positional) - len(spec.defaults)]]
    unreachable = [it.arg for it in spec.posonlyargs if it.arg in required]
    required += [
        it.arg for it, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if not default
    ]
    missing = [name for name in required if name not in given and name not in unreachable]
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


def _other_names(tree: ast.Module) -> set[str]:
    """Names that a module may bind other than by a top-level `def`; `*` may bind anything."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(it.asname or it.name).partition(".")[0] for it in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
    nested = {
        it.name
        for outer in tree.body
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        for it in ast.walk(outer)
        if isinstance(it, Function) and it is not outer
    }
    if "*" in names or any(
        isinstance(it, Function) and it.name == "__getattr__" for it in tree.body
    ):
        return _Everything()
    return names - nested


class _Everything(set[str]):
    def __contains__(self, _: object) -> bool:
        return True


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


def _parse(path: Path, root: Path) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
    real = os.path.realpath(root)
    shown = str(path.relative_to(real)) if path.is_relative_to(real) else str(path)
    try:
        return parse_source(path), ()
    except SyntaxError as error:
        at = Place(shown, error.lineno or 1, error.offset or 1)
        summary = f"`{shown}` is not valid Python: {error.msg}"
        return None, (Diagnostic(code="python_syntax", summary=summary, place=at),)
    except (RecursionError, MemoryError):  # how Python's parser says that its stack is too small
        return None, (
            Diagnostic(code="python_unreadable", summary=f"`{shown}` is nested too deeply"),
        )
    except (OSError, ValueError) as error:
        return None, (
            Diagnostic(code="python_unreadable", summary=f"`{shown}` cannot be read: {error}"),
        )


def _missing_file(root: Path, target: str, at: Place | None) -> Diagnostic:
    folder = (root / target).parent
    there = sorted(it.name for it in folder.glob("*.py")) if os.path.isdir(folder) else []
    close = nearest(Path(target).name, there)
    return Diagnostic(
        code="entrypoint_missing",
        summary=f"the entrypoint `{target}` does not exist",
        place=at,
        hint=f"did you mean `{close}`?" if close else f"it is looked for in `{root}`",
    )


def _not_installed(root: Path, top: str, at: Place | None) -> Diagnostic:
    modules = {it.stem for it in root.glob("*.py")} | {it.parent.name for it in root.glob("*/*.py")}
    close = nearest(top, sorted(modules))
    return Diagnostic(
        code="module_not_found",
        severity=Severity.WARNING,
        summary=f"there is no module `{top}` under the code root, and none is installed",
        place=at,
        hint=f"did you mean `{close}`?" if close else "ranks will find it only if it is installed",
    )


def _outside(target: str, at: Place | None) -> Diagnostic:
    return Diagnostic(
        code="entrypoint_unpinned",
        severity=Severity.WARNING,
        summary=f"`{target}` lies outside of the code root, so the plan does not pin it",
        place=at,
        hint="move it into the root, or set `code.root` to a folder that holds it",
    )


def _at(found: Diagnostic, at: Place | None) -> Diagnostic:
    from dataclasses import replace

    return replace(found, place=at)
