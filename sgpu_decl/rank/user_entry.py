"""The user's code: a script, or a function that is imported and called."""

import builtins
import sys
from _frozen_importlib_external import SourceFileLoader  # importlib itself is not loaded yet

from sgpu_decl.rank.attempt_folder import UnusableSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence
    from types import CodeType
    from typing import Any


def run_script(code_dir: str, path: str, args: object) -> None:
    """Run a file as `python -u FILE ARGS` would: as `__main__`, which stays that to the very end.

    Args:
        path: as the user wrote it, relative to the code folder, where ranks work; or absolute.
    """
    if not isinstance(args, list):
        raise UnusableSpec("a script takes `args` as a list; only functions take a mapping")
    file_path = path if path.startswith("/") else f"{code_dir}/{path}"
    loader = SourceFileLoader("__main__", file_path)
    try:
        code = _code(loader)
    except FileNotFoundError:
        raise UnusableSpec(f"the entrypoint `{file_path}` does not exist") from None
    module = type(sys)("__main__")
    module.__dict__.update(
        __file__=file_path, __loader__=loader, __builtins__=builtins, __cached__=None
    )
    sys.modules["__main__"] = module
    sys.argv[:] = [path, *map(str, args)]
    sys.orig_argv[:] = [sys.executable, "-u", *sys.argv]
    folder = file_path.rpartition("/")[0]
    if folder not in sys.path:
        sys.path.insert(1, folder)
    exec(code, module.__dict__)  # noqa: S102


def _code(loader: SourceFileLoader) -> "CodeType":
    """Return the code of a script, from the bytecode that was staged with it if there is one.

    As under `python FILE`, no bytecode is written, so that each rank shows the warnings of
    `compile`.
    """
    leave, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return loader.get_code("__main__")  # type: ignore[return-value]  # a file has code
    finally:
        sys.dont_write_bytecode = leave


def call_function(spec: "Mapping[str, Any]") -> object:
    """Import the function that the spec names, call it, and return its value."""
    entry = spec["entry"]
    args, path = entry.get("args") or {}, None
    if entry["kind"] == "file_function":
        path = entry["path"]
        path = path if path.startswith("/") else spec["code_dir"] + "/" + path
    function = _module(entry["module"]) if path is None else _module_of_file(path)
    for part in entry["function"].split("."):
        try:
            function = getattr(function, part)
        except AttributeError:
            place = entry["path"] or entry["module"]
            raise UnusableSpec(f"`{place}` has no function `{entry['function']}`") from None
    return call(function, args, {}) if isinstance(args, list) else call(function, (), args)


def call(function: "Any", positional: "Sequence[object]", named: "Mapping[str, object]") -> object:
    """Call a function; one that is asynchronous runs in an event loop of its own."""
    value = function(*positional, **named)
    if hasattr(value, "__await__"):
        import asyncio

        value = asyncio.run(_settle(value))
    return value


async def _settle(value: "Awaitable[object]") -> object:
    return await value


def _module(name: str) -> "Any":
    """Import the entry module; only its own absence is `Unusable`."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise UnusableSpec(f"there is no module `{name}` in the code of this run") from None
        raise


def _module_of_file(path: str) -> "Any":
    import os
    from importlib.util import module_from_spec, spec_from_file_location

    if not os.path.isfile(path):
        raise UnusableSpec(f"the entrypoint `{path}` does not exist")
    folder, base = os.path.split(path)
    if folder not in sys.path:
        sys.path.insert(1, folder)
    name = base.removesuffix(".py")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnusableSpec(f"the entrypoint `{path}` is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
