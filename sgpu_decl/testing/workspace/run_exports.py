"""`runs/export`: the notebook of a task's run as HTML, as it is now. Other kinds have no export."""

from html import escape
from pathlib import PurePosixPath

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.executing.records import RunRecords
from sgpu_decl.testing.workspace.routes import Request, Response, Route, invalid
from sgpu_decl.testing.workspace.workspace_objects import WorkspaceObjects

__all__ = ["ROUTES"]

_VIEWS = ("CODE", "DASHBOARDS", "ALL")


def export(request: Request) -> Response:
    """The code view of a notebook task, by the run id of its attempt, or of a run with one task."""
    run_id = request.integer("run_id")
    wanted = request.query.get("views_to_export") or "CODE"
    if wanted not in _VIEWS:
        raise invalid(f"Unknown value '{wanted}' of {', '.join(_VIEWS)}.")
    runs = RunRecords(request.tenant)
    run = runs.owner(run_id) or runs.need(run_id)
    attempt = run.attempt(run_id)
    tasks = [task for task in run.tasks if attempt is None or task["task_key"] == attempt.task_key]
    if len(tasks) != 1 or "notebook_task" not in tasks[0]:
        raise invalid(f"Run {run_id} cannot be exported: it is not the run of a notebook.")
    path = WorkspaceObjects.path_of(str(tasks[0]["notebook_task"]["notebook_path"]))
    file = WorkspaceObjects(request.tenant).file(path)
    if not file.is_file():
        raise invalid(f"Run {run_id} cannot be exported: {path} is not there any more.")
    name = PurePosixPath(path).name
    text = escape(file.read_text(errors="replace"))
    content = f"<!DOCTYPE html>\n<html><head><title>{escape(name)}</title></head>\n"
    content += f"<body><pre>{text}</pre></body></html>\n"
    views: list[Json] = [{"content": content, "name": name, "type": "NOTEBOOK"}]
    return Response(json={"views": [] if wanted == "DASHBOARDS" else views})


ROUTES = tuple(
    Route("GET", f"/api/{version}/jobs/runs/export", export) for version in ("2.1", "2.2")
)
