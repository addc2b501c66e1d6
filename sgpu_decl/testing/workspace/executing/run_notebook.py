"""Executes a notebook on a node: `run_notebook.py NOTEBOOK PARAMETERS`, these as JSON.

The cells of a notebook of Jupyter are executed one after the other in one namespace; one in the
source format is a Python file. Of `dbutils` there are the widgets, and the end with a value:
https://docs.databricks.com/aws/en/dev-tools/databricks-utils. Magic commands are skipped.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RESULT = "\x1e"
"""Stands in the output before the value that a notebook ends with."""


class _Exit(Exception):
    """`dbutils.notebook.exit`."""


def _exit(value: str = "") -> None:
    raise _Exit(value)


def _sources(text: str) -> list[str]:
    if not text.lstrip().startswith("{"):
        return [text]
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in cells]


def main(path: str, given: str) -> None:
    parameters: dict[str, str] = json.loads(given)

    def text(name: str, default: str = "", label: str = "") -> None:  # noqa: ARG001  as there
        parameters.setdefault(name, default)

    widgets = SimpleNamespace(
        get=parameters.__getitem__, getAll=lambda: dict(parameters), text=text
    )
    namespace: dict[str, Any] = {
        "__name__": "__main__",
        "dbutils": SimpleNamespace(widgets=widgets, notebook=SimpleNamespace(exit=_exit)),
    }
    try:
        for source in _sources(Path(path).read_text(encoding="utf-8")):
            lines = [line for line in source.splitlines() if not line.startswith(("%", "!"))]
            exec(compile("\n".join(lines), path, "exec"), namespace)  # noqa: S102  what it is for
    except _Exit as ended:
        print(f"{RESULT}{ended}")  # noqa: T201  where the emulator looks for it


if __name__ == "__main__":
    main(*sys.argv[1:])
