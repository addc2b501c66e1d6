"""Checks of the source files that a run executes: calls that serverless GPU compute does not allow,
or that are slow there."""

import ast
from collections.abc import Iterable, Iterator

from sgpu_decl.code.sources import Source
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place

_RDD = frozenset({"sparkContext", "rdd", "parallelize"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp)
_ONE_BY_ONE = frozenset({"__getitem__", "__next__", "__iter__"})


def code_findings(executed: Iterable[Source]) -> tuple[Diagnostic, ...]:
    """Return findings about what a run executes, each kind once, at its first place."""
    findings: dict[str, Diagnostic] = {}
    for source in executed:
        for finding in _findings(source):
            findings.setdefault(finding.code, finding)
    return tuple(findings.values())


def _findings(source: Source) -> Iterator[Diagnostic]:
    for item in source.imports:
        place = Place(source.shown, item.line, item.column)
        if item.module == "ray.serve" or (item.module == "ray" and "serve" in item.names):
            yield Diagnostic(
                code="ray_serve",
                summary="Ray Serve does not work on serverless GPU compute",
                place=place,
                hint="serve a model with Model Serving, and train it here",
            )
        if item.module == "pyspark" and "SparkContext" in item.names:
            yield _rdd(place)
    spark = any(item.module.partition(".")[0] == "pyspark" for item in source.imports)
    for node in ast.walk(source.tree()):
        if spark and isinstance(node, ast.Attribute) and node.attr in _RDD:
            yield _rdd(_place(source, node))
        if isinstance(node, ast.Constant) and _below(node, "/dbfs/"):
            yield Diagnostic(
                code="dbfs_path",
                severity=Severity.WARNING,
                summary=f"`{str(node.value)[:80]}` is below `/dbfs`, which GPU nodes do not have",
                place=_place(source, node),
                hint="move the data to a volume, and read it at `/Volumes/…`",
            )
        if isinstance(node, _LOOPS) or (
            isinstance(node, ast.FunctionDef) and node.name in _ONE_BY_ONE
        ):
            yield from _hot(source, node)


def _hot(source: Source, loop: ast.AST) -> Iterator[Diagnostic]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and any(
            _below(part, "/Volumes/") for argument in node.args for part in ast.walk(argument)
        ):
            yield Diagnostic(
                code="volume_in_a_loop",
                severity=Severity.INFO,
                summary="a volume is read in a loop: each read goes over the network",
                place=_place(source, node),
                hint="copy the data to the node's own disk first (below `/tmp`), or read large "
                "pieces at once",
            )


def _rdd(place: Place) -> Diagnostic:
    return Diagnostic(
        code="spark_rdd",
        summary="serverless compute has only Spark Connect: there are no RDDs and no SparkContext",
        place=place,
        hint="use DataFrames",
    )


def _below(node: ast.AST, folder: str) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.removeprefix("dbfs:").startswith(folder)
    )


def _place(source: Source, node: ast.expr) -> Place:
    return Place(source.shown, node.lineno, node.col_offset + 1)
