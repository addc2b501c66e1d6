"""The files by which a monitor tells what it sees now, in the folder of a node's records.

series.db            what ranks and GPUs used, second by second: see `series_file`
monitor.json         replaced each second: `at`, when that was; `ranks` by their numbers and
                     `devices`, as in the series; `progress`, see `ProgressEstimate.to_json`, null
                     where nothing is known
RANK/progress.json   in the folder of a rank: what `runtime.report_progress` was told last
"""

from __future__ import annotations

from sgpu_decl.agent.attempt.attempt_files import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SERIES = "series.db"
MONITOR = "monitor.json"
REPORTED = "progress.json"


def progress_in(folder: str) -> dict[str, Any]:
    """How far the ranks of node 0 were when its monitor looked last, as `progress`; empty where
    nobody knows."""
    seen = (read_json(folder, MONITOR) or {}).get("progress")
    return {"progress": seen} if isinstance(seen, dict) else {}
