"""Checks of the tasks of jobs: the runs that they name, their order, and their parameters."""

import re
from collections.abc import Iterator

from sgpu_decl.config.run_order import LeftOutRuns, cycles
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, children, place_of

_REFERENCE = re.compile(
    r"\$\{(?P<space>job|task)\.(?P<name>[^{}]*)\}"
    r"|\{\{\s*job\.parameters\.(?P<parameter>[\w.-]+)\s*\}\}"
)
_PARAMETERS = "parameters."
_CONDITION = "condition_task"
_WIDGETS = ("notebook", "task")
"""The kinds of tasks that the platform may give all parameters, so that none of them is unused.
Source: https://docs.databricks.com/aws/en/jobs/job-parameters (parameter pushdown)"""


def job_findings(
    jobs: Node | None, runs: Node | None, left_out: LeftOutRuns
) -> Iterator[Diagnostic]:
    """Find what is wrong between the jobs of a project, their tasks, and the runs, some of which
    the target leaves out."""
    for name, job in jobs.entries.items() if isinstance(jobs, Mapping) else ():
        if not isinstance(job, Mapping):
            continue
        yield from _unknown_run(f"jobs.{name}.run", job.entries.get("run"), runs, left_out)
        tasks = job.entries.get("tasks")
        if isinstance(tasks, Mapping):
            for key, task in tasks.entries.items():
                if isinstance(task, Mapping):
                    path = f"jobs.{name}.tasks.{key}.run"
                    yield from _unknown_run(path, task.entries.get("run"), runs, left_out)
            yield from _order_findings(f"jobs.{name}.tasks", tasks)
            yield from _parameter_findings(name, job, tasks)


def _unknown_run(
    path: str, node: Node | None, runs: Node | None, left_out: LeftOutRuns
) -> Iterator[Diagnostic]:
    """A `run` that names no run of the project, or one with a matrix."""
    if not isinstance(node, Scalar) or "${" in node.text:
        return
    run_blocks = runs.entries if isinstance(runs, Mapping) else {}
    run = run_blocks.get(node.text)
    if node.text in left_out.places:
        yield left_out.refused(path, node.text, place_of(node))
    elif run is None:
        near = nearest(node.text, run_blocks)
        yield Diagnostic(
            code="unknown_run",
            summary=f"`{path}` names no run: `{node.text[:80]}`",
            place=place_of(node),
            hint=f"did you mean `{near}`?" if near else "it is a key under `runs`",
        )
    elif isinstance(run, Mapping) and "matrix" in run.entries:
        yield Diagnostic(
            code="run_of_matrix",
            summary=f"`{path}` names `{node.text[:80]}`, which has a matrix: a job "
            "launches one run",
            place=place_of(node),
            hint="declare the combination that the job is for as a run of its own",
        )


def _order_findings(path: str, tasks: Mapping) -> Iterator[Diagnostic]:
    upstreams: dict[str, dict[str, Place | None]] = {}
    for key, task in tasks.entries.items():
        after = task.entries.get("after") if isinstance(task, Mapping) else None
        for node in after.items if isinstance(after, Sequence) else ():
            if not isinstance(node, Scalar):
                continue
            name, _, outcome = node.text.partition(".")
            upstreams.setdefault(key, {}).setdefault(name, place_of(node))
            if name not in tasks.entries:
                near = nearest(name, [other for other in tasks.entries if other != key])
                yield Diagnostic(
                    code="unknown_task",
                    summary=f"`{path}.{key}.after` names no task of the job: `{name[:80]}`",
                    place=place_of(node),
                    hint=f"did you mean `{near}`?" if near else "it is a key under `tasks`",
                )
            elif outcome and not _has_condition(tasks.entries[name]):
                yield Diagnostic(
                    code="unknown_task",
                    summary=f"`{path}.{key}.after` names an outcome of `{name}`, which has no "
                    "condition",
                    place=place_of(node),
                    hint=f"write `{name}`, and `if` for how it must have ended; only a task with "
                    "`condition_task` has outcomes",
                )
    yield from cycles(upstreams, tasks.keys, noun="tasks")


def _has_condition(task: Node) -> bool:
    block = task.entries.get("task") if isinstance(task, Mapping) else None
    return isinstance(block, Mapping) and _CONDITION in block.entries


def _parameter_findings(job: str, block: Mapping, tasks: Mapping) -> Iterator[Diagnostic]:
    """References to parameters that the job does not declare, and parameters that no task can
    see."""
    declared = block.entries.get("parameters")
    known = declared.entries if isinstance(declared, Mapping) else {}
    used = set()
    for scalar in _scalars(tasks):
        for match in _REFERENCE.finditer(scalar.text):
            if match["space"] == "task":
                yield _no_output(scalar, match[0])
                continue
            name = match["parameter"]
            if match["space"] == "job":
                if not match["name"].startswith(_PARAMETERS):
                    yield _no_reference(scalar, match[0])
                    continue
                name = match["name"].removeprefix(_PARAMETERS)
            used.add(name)
            if name not in known:
                near = nearest(name, known)
                yield Diagnostic(
                    code="undeclared_parameter",
                    summary=f"`job.{job}` declares no parameter `{name[:80]}`",
                    place=place_of(scalar),
                    hint=f"did you mean `{near}`?"
                    if near
                    else f"declare it: `parameters: {{{name[:80]}: VALUE}}`",
                )
    if any(kind in task.entries for task in tasks.entries.values() if isinstance(task, Mapping)
           for kind in _WIDGETS):  # fmt: skip
        return
    for name in known:
        if name not in used and isinstance(declared, Mapping):
            yield Diagnostic(
                code="unused_parameter",
                severity=Severity.WARNING,
                summary=f"no task of `job.{job}` uses the parameter `{name}`",
                place=declared.keys[name],
                hint=f"write `${{job.parameters.{name}}}` in `args` of a task, or remove it. "
                "GPU tasks have no parameters",
            )


def _no_output(node: Scalar, written: str) -> Diagnostic:
    return Diagnostic(
        code="bad_output",
        summary=f"`{written[:80]}` is not filled in: the platform does not tell a task where "
        "another one of its launch left its output",
        place=place_of(node),
        hint="let both tasks use a volume, such as `/Volumes/main/ml/shop/`; a parameter of the "
        "job can name a folder in it",
    )


def _no_reference(node: Scalar, written: str) -> Diagnostic:
    return Diagnostic(
        code="unknown_reference",
        summary=f"there is no `{written[:80]}`",
        place=place_of(node),
        hint="`${job.parameters.NAME}` is a parameter of the job; other values of the platform "
        "are written as it does, such as `{{job.run_id}}`",
    )


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
    else:
        for below in children(node):
            yield from _scalars(below)
