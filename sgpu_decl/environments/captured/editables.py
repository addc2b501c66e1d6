"""Where packages lie that are installed in editable mode through a finder of their own.

The finders of setuptools (`__editable___NAME_finder.py`) and of the library `editables` (used by
hatchling and others) are read, never run.
"""

import ast
import os
import re
from collections.abc import Mapping

__all__ = ["mapped_packages"]

_IMPORTS = re.compile(r"import[ \t]+(__editable___\w+_finder|_editable_impl_\w+|__editables_\w+)\b")


def mapped_packages(site: str, line: str) -> tuple[str, Mapping[str, str]] | None:
    """Read the finder that a line of a `.pth` file starts.

    Returns:
        The finder's file, and dotted names with the absolute paths of what they stand for, a
        folder or a file; `None` where the line starts no finder that is known.
    """
    found = _IMPORTS.match(line)
    if found is None:
        return None
    finder = os.path.join(site, found.group(1) + ".py")
    try:
        with open(finder, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    mapping = dict(_literal_mapping(tree)) or dict(_mapped_modules(tree))
    places = {name: place for name, path in mapping.items() if (place := _place(path))}
    return finder, places


def _literal_mapping(tree: ast.Module) -> Mapping[str, str]:
    """`MAPPING: dict[str, str] = {…}`, as setuptools writes it."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        else:
            continue
        if node.value is None or not any(
            isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets
        ):
            continue
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            return {}
        if isinstance(value, dict):
            return {str(name): str(path) for name, path in value.items()}
    return {}


def _mapped_modules(tree: ast.Module) -> Mapping[str, str]:
    """`F.map_module('name', '/path/name/__init__.py')`, as `editables` writes it."""
    found = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "map_module"
            and len(node.args) == 2
            and all(isinstance(it, ast.Constant) and isinstance(it.value, str) for it in node.args)
        ):
            name, path = (ast.literal_eval(it) for it in node.args)
            found[name] = path.removesuffix(os.sep + "__init__.py")
    return found


def _place(path: str) -> str | None:
    for candidate in (path, f"{path}.py"):
        if os.path.isabs(candidate) and os.path.exists(candidate):
            return candidate
    return None
