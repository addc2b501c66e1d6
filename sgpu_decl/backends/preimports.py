"""What the ranks of a run can import once, together: read from the source, which is never run.

Importing ahead must change nothing that the code could notice. So only the imports that the
entrypoint begins with count, up to the first statement that may have an effect (it may set a
variable that a library reads when it is imported) or to a package that no list here knows.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sgpu_decl.code.sources import Source, parse_source
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.rendering.spec import Entry, Warm

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        "accelerate": "reads a rank's variables when its classes are made, none at import",
        "datasets": "starts processes and threads at the first call, none at import",
        "einops": "functions alone",
        "numpy": "its OpenBLAS ends and renews its threads at a fork",
        "pandas": "its pyarrow starts threads at the first call",
        "safetensors": "functions alone",
        "scipy": "as numpy",
        "sklearn": "as numpy; its OpenMP starts threads at the first call",
        "tokenizers": "starts threads at the first call",
        "torch": "starts threads, and CUDA, at the first call",
        "torchvision": "as torch",
        "transformers": "imports what is named, and starts nothing",
    }
)
"""Packages that `warm: auto` imports ahead, with why that is harmless. Whether it was is looked at
in the process itself each time before it forks."""

LATER = frozenset(
    {"PIL", "click", "cloudpickle", "matplotlib", "mlflow", "pydantic", "rich", "sgpu_decl",
     "tqdm", "yaml"}
)  # fmt: skip
"""Packages that are left to each rank, but do not mind, nor matter to those above, coming after
them. (mlflow waits for the id of its run, which the ranks look up.)"""

_QUIET = (ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.BinOp)


def warm_start(
    entry: Entry, code: Path, *, setting: str | tuple[str, ...], ranks: int
) -> Warm | None:
    """Return what to import ahead, or why that cannot be; None where nothing speaks for it.

    Args:
        entry: what ranks run.
        code: the folder of the run's code.
        setting: `launch.warm`: `auto`, `off`, or modules.
        ranks: how many there are on the machine; one alone gains nothing.
    """
    if entry.kind in ("command", "shell") or setting == "off":
        return None
    if isinstance(setting, tuple):
        return Warm(imports=tuple((name, ()) for name in setting), required=True)
    if ranks < 2:
        return None
    imports: list[tuple[str, tuple[str, ...]]] = []
    for path in _files(entry, code):
        try:
            tree = parse_source(path)
        except (SyntaxError, RecursionError, MemoryError, OSError, ValueError):
            return None  # the ranks will say what is wrong with it
        leading, stop = _leading_imports(tree)
        imports += leading
        if any(name.partition(".")[0] == "torch" for name, _ in imports):
            return Warm(imports=tuple(imports))
        if stop is not None:
            if not _imports_torch(tree):
                return None
            where = path.relative_to(code) if path.is_relative_to(code) else path
            return Warm(refused=f"`{where}` imports torch after {stop}")
    return None


def cold_starts(executed: Sequence[Source], ranks: int) -> Iterator[Diagnostic]:
    """Find a function of the entrypoint's file that imports torch, which its file does not: nothing
    is then imported ahead, and each rank imports torch by itself.

    Args:
        executed: the files that a run executes.
        ranks: how many there are on a machine.
    """
    entry = next((one for one in executed if one.is_main or one.function is not None), None)
    if entry is None or ranks < 2:
        return
    tree = entry.tree()
    late = (
        (function.name, node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and _is_torch(node)
    )
    name, node = next(late, (None, None))
    if node is None or any(map(_is_torch, _outside(tree))):
        return
    yield Diagnostic(
        code="torch_imported_late",
        severity=Severity.INFO,
        summary=f"`{name}` imports torch inside, so ranks start cold: each of the {ranks} on a "
        "machine imports it by itself",
        place=Place(entry.shown, node.lineno, node.col_offset + 1),
        hint=f"import it at the top of `{entry.shown}`, or write `launch: {{warm: [torch]}}`: then "
        "ranks fork from one process that has imported it",
    )


def warm_call(
    loads: frozenset[str], *, setting: str | tuple[str, ...], ranks: int, kept: bool = False
) -> Warm | None:
    """As `warm_start`, for a function in memory.

    Args:
        loads: the packages that are imported when it is loaded; one that no list here knows could
            notice that torch was there before it.
        kept: whether later calls use what is imported; then one rank alone gains by it, too.
    """
    if setting == "off":
        return None
    if isinstance(setting, tuple):
        return Warm(imports=tuple((name, ()) for name in setting), required=True)
    if (ranks < 2 and not kept) or "torch" not in loads:
        return None
    if loads - KNOWN.keys() - LATER - sys.stdlib_module_names:
        return None
    others = sorted(loads & KNOWN.keys() - {"torch"})
    return Warm(imports=tuple((name, ()) for name in ("torch", *others)))


def _files(entry: Entry, code: Path) -> list[Path]:
    """Return the files that are executed up to the entry module, in this order."""
    if entry.path is not None:
        return [code / entry.path]
    if entry.module is None:
        return []
    *packages, last = entry.module.split(".")
    files = []
    folder = code
    for name in packages:
        folder /= name
        files.append(folder / "__init__.py")
    files += [folder / f"{last}.py", folder / last / "__init__.py"]
    return [path for path in files if path.is_file()]


def _leading_imports(tree: ast.Module) -> tuple[list[tuple[str, tuple[str, ...]]], str | None]:
    """Return the imports that a module begins with, and what ended them: None at its end."""
    imports: list[tuple[str, tuple[str, ...]]] = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, names in _imported(node):
                top = name.partition(".")[0]
                if top in sys.stdlib_module_names or top in LATER:
                    continue
                if top not in KNOWN:
                    return imports, f"`{name}`, which is not known to be harmless ahead"
                imports.append((name, names))
        elif not _quiet(node):
            return imports, f"line {node.lineno}, which may have an effect"
    return imports, None


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, ()
    else:
        names = tuple(alias.name for alias in node.names if alias.name != "*")
        yield "." * node.level + (node.module or ""), names


def _quiet(node: ast.stmt) -> bool:
    """Say whether executing a statement can only bind names: no call, no item or attribute set."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) for target in node.targets) and _plain(node.value)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and (node.value is None or _plain(node.value))
    if isinstance(node, ast.If) and not node.orelse:
        return ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    return isinstance(node, ast.Pass)


def _plain(value: ast.expr) -> bool:
    parts = (part for part in ast.walk(value) if isinstance(part, ast.expr))
    return all(isinstance(part, _QUIET) for part in parts)


def _imports_torch(tree: ast.Module) -> bool:
    return any(map(_is_torch, ast.walk(tree)))


def _is_torch(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) and any(
        name.partition(".")[0] == "torch" for name, _ in _imported(node)
    )


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """What of a module is in no function."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _outside(child)
