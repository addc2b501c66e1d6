"""Finds packages that are installed in editable mode through an import finder.

The finders of setuptools (`__editable___NAME_finder.py`), of the library `editables` (used by
hatchling and others), of scikit-build-core and of meson-python are read, never run.
"""

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

_IMPORTS = re.compile(r"import[ \t]+(\w+)")
_MAPPED = re.compile(r"__editable___\w+_finder|_editable_impl_\w+|__editables_\w+")
_SCIKIT_BUILD = re.compile(r"_editable_skbc_\w+|_\w+_editable")
_MESON = re.compile(r"_\w+_editable_loader")
_IMPORTED = re.compile(r"\{py_(?:pure|plat)lib\}/(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Editable:
    """The content of the finder in the file `finder`. `packages` maps dotted names to the absolute
    paths of their folders or files. `files` maps paths in the folder of packages to the absolute
    paths of the files or folders that belong there."""

    finder: str
    packages: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def editable_of(site: str, line: str) -> Editable | None:
    """Read the finder that a line of a `.pth` file starts; `None` for any other line."""
    match = _IMPORTS.match(line)
    if match is None:
        return None
    name, finder = match[1], os.path.join(site, match[1] + ".py")
    tree = _tree(finder)
    if tree is None:
        return None
    if _MAPPED.fullmatch(name):
        mapping = dict(_literal_mapping(tree)) or dict(_mapped_modules(tree))
        places = {name: place for name, path in mapping.items() if (place := _place(path))}
        return Editable(finder=finder, packages=places)
    if _MESON.fullmatch(name) and (build := _meson_build(tree)) is not None:
        return Editable(finder=finder, files=dict(_meson_files(build)))
    if _SCIKIT_BUILD.fullmatch(name) and (sources := _scikit_build_sources(tree)) is not None:
        return Editable(finder=finder, files=dict(_whole_packages(sources)))
    return None


def editable_folders(site: str) -> Iterator[tuple[str, str]]:
    """The packages that are editable by their metadata (PEP 610), each with its source folder."""
    for name in sorted(os.listdir(site)):
        if not name.endswith(".dist-info"):
            continue
        try:
            with open(os.path.join(site, name, "direct_url.json"), "rb") as file:
                origin = json.load(file)
            if origin.get("dir_info", {}).get("editable") is True:
                yield name.partition("-")[0], unquote(urlsplit(origin["url"]).path)
        except (OSError, ValueError, KeyError, AttributeError):
            continue


def named_places(site: str, line: str) -> Iterator[str]:
    """The absolute paths of folders and Python files in a line of a `.pth` file, and in the modules
    that the line imports."""
    modules = [os.path.join(site, f"{name}.py") for name in _IMPORTS.findall(line)]
    for tree in (_parsed(line), *map(_tree, modules)):
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                path = node.value
                if os.path.isabs(path) and (path.endswith(".py") or os.path.isdir(path)):
                    yield path


def _tree(path: str) -> ast.Module | None:
    try:
        with open(path, "rb") as file:
            return _parsed(file.read())
    except OSError:
        return None


def _parsed(text: str | bytes) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _scikit_build_sources(tree: ast.Module) -> Mapping[str, str] | None:
    """`install({'name.part': '/path/name/part.py'}, …)`. Built files lie in the site."""
    for node in tree.body:
        match node:
            case ast.Expr(
                value=ast.Call(func=ast.Name(id="install"), args=[ast.Dict() as first, *_])
            ):
                try:
                    return {str(name): str(path) for name, path in ast.literal_eval(first).items()}
                except ValueError:
                    return None
    return None


def _whole_packages(sources: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Packages as whole folders, with their data, and modules outside of any package."""
    packages: dict[str, str] = {}
    for name, path in sorted(sources.items()):
        above = name.rpartition(".")[0]
        inner, package = name.replace(".", "/"), os.path.basename(path) == "__init__.py"
        place = os.path.dirname(path) if package else path
        if above in packages and os.path.dirname(place) == packages[above]:
            if package:
                packages[name] = place  # with the package above it
            continue
        if os.path.exists(place):
            yield inner if package else inner + os.path.splitext(path)[1], place
            if package:
                packages[name] = place


def _meson_build(tree: ast.Module) -> str | None:
    """`MesonpyMetaFinder('name', {…}, '/path/of/the/build', …)`, and `install(…)` of old."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id="MesonpyMetaFinder" | "install"),
                args=[_, _, ast.Constant(value=str(build)), *_],
            ):
                return build
    return None


def _meson_files(build: str) -> Iterator[tuple[str, str]]:
    """The files that meson would install among packages, and where they lie now."""
    try:
        with open(os.path.join(build, "meson-info", "intro-install_plan.json"), "rb") as file:
            plan = json.load(file)
        pairs = [
            (path, entry["destination"]) for kind in plan.values() for path, entry in kind.items()
        ]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return
    for path, destination in pairs:
        match = _IMPORTED.fullmatch(destination)
        if match is not None and os.path.exists(path):
            yield match[1], path


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
    mapping = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "map_module"
            and len(node.args) == 2
            and all(
                isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                for argument in node.args
            )
        ):
            name, path = (ast.literal_eval(argument) for argument in node.args)
            mapping[name] = path.removesuffix(os.sep + "__init__.py")
    return mapping


def _place(path: str) -> str | None:
    for candidate in (path, f"{path}.py"):
        if os.path.isabs(candidate) and os.path.exists(candidate):
            return candidate
    return None
