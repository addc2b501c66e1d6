"""Parameters and tags of MLflow whose value is another one in each rank, read from the source.

All ranks share one MLflow run, which takes one value of a parameter. A call counts where it happens
in all ranks for certain: it is a statement of what the run executes, and no condition stands before
it or around it. What rank it is comes from the launch or from a library, since a variable that is
called `rank` may be that of a matrix.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence

from sgpu_decl.code.ray_calls import executed_bodies, may_leave
from sgpu_decl.code.sources import Source
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place

_PARAMS = frozenset({"log_param", "log_params"})
_LOGGED = _PARAMS | {"set_tag", "set_tags"}
_VARIABLES = frozenset({"RANK", "LOCAL_RANK"})
_QUESTIONS = frozenset({"get_rank", "get_local_rank", "get_global_rank"})


def values_of_ranks(executed: Iterable[Source]) -> Iterator[Diagnostic]:
    """Find the first such call of each file.

    Args:
        executed: what a run executes. Places are as it shows them.
    """
    for source in executed:
        if not any(item.module.partition(".")[0] == "mlflow" for item in source.imports):
            continue
        tree = source.tree()
        ranks = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and _of_rank(node.value, frozenset())
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        names = _names_of_mlflow(tree)
        found = (
            call
            for call in _calls(tree, source)
            if ast.unparse(call.func) in names and _differs(call, frozenset(ranks))
        )
        if (call := next(found, None)) is not None:
            yield _finding(call, source.shown, refused=names[ast.unparse(call.func)] in _PARAMS)


def _names_of_mlflow(tree: ast.Module) -> dict[str, str]:
    """How the module calls the functions that log, by the names that its imports give."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [item.asname or item.name for item in node.names if item.name == "mlflow"]
            names |= {f"{module}.{name}": name for module in modules for name in _LOGGED}
        elif isinstance(node, ast.ImportFrom) and node.module == "mlflow":
            names |= {one.asname or one.name: one.name for one in node.names if one.name in _LOGGED}
    return names


def _finding(call: ast.Call, shown: str, *, refused: bool) -> Diagnostic:
    what = "takes one value of a parameter" if refused else "keeps the last value of a tag"
    return Diagnostic(
        code="rank_value_logged",
        severity=Severity.WARNING if refused else Severity.INFO,
        summary=f"all ranks share one MLflow run, which {what}, and `{ast.unparse(call.func)}` "
        "gives it another one in each rank",
        place=Place(shown, call.lineno, call.col_offset + 1),
        hint="log it in rank 0 alone, or with the rank in its name",
    )


def _calls(tree: ast.Module, source: Source) -> Iterator[ast.Call]:
    """The calls that all ranks execute, also in functions of the file that are called there."""
    functions = {
        one.name: one
        for one in tree.body
        if isinstance(one, ast.FunctionDef) and not one.decorator_list
    }
    for body in executed_bodies(tree, source):
        bodies, seen = [body], set[str]()
        while bodies:
            for call in _statements(bodies.pop()):
                yield call
                name = _called(call)
                if name in functions and name not in seen:
                    seen.add(name)
                    bodies.append(functions[name].body)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """The calls that are statements, up to the first condition that may keep ranks from the
    rest."""
    for statement in body:
        if isinstance(statement, ast.For) or (
            isinstance(statement, ast.With) and not any(map(_own_run, statement.items))
        ):
            yield from _statements(statement.body)
        elif isinstance(statement, ast.Expr | ast.Assign | ast.Return) and isinstance(
            statement.value, ast.Call
        ):
            yield statement.value
        if may_leave(statement):
            return


def _own_run(item: ast.withitem) -> bool:
    """Whether each rank may have a run of its own below: `start_run(nested=True)`."""
    call = item.context_expr
    return isinstance(call, ast.Call) and _called(call) == "start_run" and bool(call.keywords)


def _differs(call: ast.Call, ranks: frozenset[str]) -> bool:
    """Whether the value has the rank in it, and the name does not."""
    match call.args:
        case [ast.Dict(keys=keys, values=values), *_]:
            pairs = list(zip(keys, values, strict=True))
        case [key, value, *_]:
            pairs = [(key, value)]
        case _:
            return False
    return any(
        key is not None and not _of_rank(key, ranks) and _of_rank(value, ranks)
        for key, value in pairs
    )


def _of_rank(value: ast.expr, ranks: frozenset[str]) -> bool:
    """Whether an expression is made of the rank."""
    return any(
        (isinstance(node, ast.Name) and node.id in ranks)
        or (isinstance(node, ast.Constant) and node.value in _VARIABLES)
        or (isinstance(node, ast.Call) and _called(node) in _QUESTIONS)
        for node in ast.walk(value)
    )


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
