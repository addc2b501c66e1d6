"""What code does that does not go with the Ray cluster of its run, read from the source.

A call counts where an import would (`sources`): one below a condition may never happen.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.staging.sources import Import, Source, certain_imports, certain_statements
from sgpu_decl.staging.syntax_trees import parse_source

__all__ = ["function_ray_calls", "ray_calls"]

# `ray.init` raises ValueError for them where a cluster runs (ray/_private/worker.py).
_REFUSED = frozenset({"num_cpus", "num_gpus", "resources", "labels", "object_store_memory"})


def ray_calls(executed: Iterable[Source]) -> tuple[Diagnostic, ...]:
    """Return what is wrong with the calls of `ray.init`, and the first import of Ray Serve.

    Args:
        executed: the files that the run executes. Places are relative to the root of the code.
    """
    findings: dict[str, Diagnostic] = {}
    for source in executed:
        if any(item.module.partition(".")[0] == "ray" for item in source.imports):
            tree = _parsed(source.path)
            for finding in (*_serve(source.imports, source.shown), *_inits(tree, source.shown)):
                findings.setdefault(finding.code, finding)
    return tuple(findings.values())


def function_ray_calls(path: Path, place: Place) -> tuple[Diagnostic, ...]:
    """Return the same of one function, whose decorator or name is at `place` of the file. Other
    functions of the file are not executed by a call of it, but its imports are."""
    tree = _parsed(path)
    starting = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and min([node.lineno, *(one.lineno for one in node.decorator_list)]) == place.line
    ]
    if not starting:
        return ()
    imports = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    executed = ast.Module(body=[*imports, *starting[0].body], type_ignores=[])
    every = (*_serve(certain_imports(executed), place.file), *_inits(executed, place.file))
    return tuple({finding.code: finding for finding in reversed(every)}.values())


def _parsed(path: Path) -> ast.Module:
    """The tree of a file; an empty one if it cannot be read or parsed any more."""
    try:
        return parse_source(path)
    except (SyntaxError, RecursionError, MemoryError, OSError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _serve(imports: Sequence[Import], shown: str) -> Iterator[Diagnostic]:
    for item in imports:
        if item.module == "ray.serve" or (item.module == "ray" and "serve" in item.names):
            yield Diagnostic(
                code="ray_serve",
                severity=Severity.WARNING,
                summary="Ray Serve answers requests, and none can reach the nodes of a batch run",
                place=Place(shown, item.line, item.column),
                hint="serve the model elsewhere; use Ray Data for inference in a run",
            )


def _inits(tree: ast.Module, shown: str) -> Iterator[Diagnostic]:
    names = _names_of_init(tree)
    for call in _certain_calls(tree):
        if ast.unparse(call.func) not in names:
            continue
        place = Place(shown, call.lineno, call.col_offset + 1)
        if (address := _other_address(call)) is not None:
            yield Diagnostic(
                code="ray_init_elsewhere",
                severity=Severity.WARNING,
                summary=f"`ray.init` names `{address}`: the Ray cluster of the run stays idle",
                place=place,
                hint="write `ray.init()`, which finds the cluster by `RAY_ADDRESS`",
            )
            continue
        for keyword in call.keywords:
            if keyword.arg in _REFUSED and not _is_none(keyword.value):
                yield Diagnostic(
                    code="ray_init_resources",
                    summary=f"`ray.init` refuses `{keyword.arg}`: the cluster of the run exists "
                    "already",
                    place=place,
                    hint="write `ray.init()`, and set the size of the cluster in `ray` of the run",
                )


def _names_of_init(tree: ast.Module) -> frozenset[str]:
    """How the module calls `ray.init`: by the names that its imports give."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [item for item in node.names if item.name == "ray"]
            names |= {f"{item.asname or item.name}.init" for item in modules}
        elif isinstance(node, ast.ImportFrom) and node.module == "ray":
            names |= {item.asname or item.name for item in node.names if item.name == "init"}
    return frozenset(names)


def _certain_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for statement in certain_statements(tree):
        parts: list[ast.AST] = []
        if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return):
            parts = [statement]
        elif isinstance(statement, ast.With | ast.AsyncWith):
            parts = [item.context_expr for item in statement.items]
        for part in parts:
            yield from (node for node in ast.walk(part) if isinstance(node, ast.Call))


def _other_address(call: ast.Call) -> str | None:
    """The address that a call names, if it is not that of the run's own cluster."""
    named = [item.value for item in call.keywords if item.arg == "address"]
    for value in (*call.args[:1], *named):
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return None if value.value == "auto" else value.value
    return None


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
