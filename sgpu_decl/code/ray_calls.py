"""What code does that does not go with the Ray cluster of its run, read from the source.

A call counts where an import would (`sources`): one below a condition may never happen. It is an
error where it is a statement of a file that is executed, or of the function that the run calls, and
nothing before it may return, raise or exit; else it is a warning.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence

from sgpu_decl.code.bindings import binding_of
from sgpu_decl.code.sources import (
    Import,
    Source,
    certain_statements,
    is_main_guard,
)
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place

# `ray.init` raises ValueError for them where a cluster runs (ray/_private/worker.py).
_REFUSED = frozenset({"num_cpus", "num_gpus", "resources", "labels", "object_store_memory"})
_LEAVING = ast.Return | ast.Raise
_EXITS = frozenset({"exit", "quit", "sys.exit", "os._exit", "os.abort"})
_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def ray_calls(executed: Iterable[Source]) -> tuple[Diagnostic, ...]:
    """Return what is wrong with the calls of `ray.init`, and the first import of Ray Serve.

    Args:
        executed: what the run executes. Places are as it shows them.
    """
    findings: dict[str, Diagnostic] = {}
    for source in executed:
        if any(item.module.partition(".")[0] == "ray" for item in source.imports):
            for finding in (*_serve(source.imports, source.shown), *_inits(source)):
                before = findings.setdefault(finding.code, finding)
                if before.severity is not Severity.ERROR and finding.severity is Severity.ERROR:
                    findings[finding.code] = finding
    return tuple(findings.values())


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


def _inits(source: Source) -> Iterator[Diagnostic]:
    tree = source.tree()
    names = _names_of_init(tree)
    possible = [call for call in _possible_calls(tree, source) if ast.unparse(call.func) in names]
    certain = {id(call) for call in _certain_calls(tree, source)} if possible else set()
    for call in possible:
        place = Place(source.shown, call.lineno, call.col_offset + 1)
        if (address := _other_address(call)) is not None:
            yield Diagnostic(
                code="ray_init_elsewhere",
                severity=Severity.WARNING,
                summary=f"`ray.init` names `{address}`: the Ray cluster of the run stays idle",
                place=place,
                hint="write `ray.init()`, which finds the cluster by `RAY_ADDRESS`",
            )
            continue
        happens = id(call) in certain and not _may_be_ignored(call)
        for keyword in call.keywords:
            if keyword.arg in _REFUSED and not _is_none(keyword.value):
                yield Diagnostic(
                    code="ray_init_resources",
                    severity=Severity.ERROR if happens else Severity.WARNING,
                    summary=f"`ray.init` {'refuses' if happens else 'would refuse'} "
                    f"`{keyword.arg}` here: the cluster of the run exists already",
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


def _possible_calls(tree: ast.Module, source: Source) -> Iterator[ast.Call]:
    """Yield the calls that happen if the function around them is called."""
    for statement in certain_statements(tree, is_main=source.is_main):
        parts: list[ast.AST] = []
        if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return):
            parts = [statement]
        elif isinstance(statement, ast.With | ast.AsyncWith):
            parts = [item.context_expr for item in statement.items]
        for part in parts:
            yield from (node for node in ast.walk(part) if isinstance(node, ast.Call))


def _certain_calls(tree: ast.Module, source: Source) -> Iterator[ast.Call]:
    """Yield the calls that are statements of what is executed, up to the first statement that may
    return, raise or exit."""
    for body in executed_bodies(tree, source):
        for statement in body:
            value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
            if isinstance(value, ast.Call):
                yield value
            if may_leave(statement):
                break


def executed_bodies(tree: ast.Module, source: Source) -> Iterator[Sequence[ast.stmt]]:
    """Yield the statements of the file, with those that only a script executes where it is one, and
    those of the function that the run calls. A decorator may do anything with a function."""
    statements: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.If) and is_main_guard(statement.test):
            statements += statement.body if source.is_main else []
        else:
            statements.append(statement)
    yield statements
    if source.function is not None:
        function = binding_of(tree, source.function, lambda *_: None).function
        if function is not None and not function.decorator_list:
            yield function.body


def may_leave(statement: ast.stmt) -> bool:
    """Whether what stands after a statement may not be executed."""
    return not isinstance(statement, _SCOPES) and any(
        isinstance(node, _LEAVING)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in _EXITS)
        for node in (statement, *_inside(statement))
    )


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is below a node, without the bodies of functions that are defined there."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        child = waiting.pop()
        if not isinstance(child, _SCOPES):
            yield child
            waiting += ast.iter_child_nodes(child)


def _other_address(call: ast.Call) -> str | None:
    """The address that a call names, if it is not that of the run's own cluster."""
    named = [item.value for item in call.keywords if item.arg == "address"]
    for value in (*call.args[:1], *named):
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return None if value.value == "auto" else value.value
    return None


def _may_be_ignored(call: ast.Call) -> bool:
    """Whether Ray takes no notice of the call where a driver is connected already."""
    return any(
        item.arg in ("ignore_reinit_error", None) and not _is_constant(item.value, wanted=False)
        for item in call.keywords
    )


def _is_none(value: ast.expr) -> bool:
    return _is_constant(value, wanted=None)


def _is_constant(value: ast.expr, *, wanted: object) -> bool:
    return isinstance(value, ast.Constant) and value.value is wanted
