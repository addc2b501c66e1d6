"""A run whose ranks hang on nodes elsewhere, as somebody sees it who has its project alone."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgpu_decl.testing.contracts.backend_bench import until

PROGRAMS = Path(__file__).parents[1] / "hanging_programs.py"
_HOMES = ("DATA", "CACHE", "STATE")
_AFTER = 3  # seconds


class HangingRun:
    """The run `hello`, of which rank 2 does not enter a collective; `fields` say where it runs."""

    def __init__(self, folder: Path, fields: Mapping[str, Any]) -> None:
        self._folder = folder
        shutil.copy(PROGRAMS, folder / "main.py")
        run = {
            "name": "hello", "entrypoint": "main.py", "args": ["never_enters"], "grace": "1s",
            "hang_after": f"{_AFTER}s", **fields,
        }  # fmt: skip
        (folder / "run.yaml").write_text(json.dumps(run))

    def sgpu(self, *words: str, code: int = 0) -> str:
        """What a command says."""
        homes = {f"XDG_{name}_HOME": str(self._folder.parent / name.lower()) for name in _HOMES}
        done = subprocess.run(
            [sys.executable, "-m", "sgpu_decl", *words],
            cwd=self._folder, env={**os.environ, **homes, "NO_COLOR": "1", "COLUMNS": "200"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    @property
    def status(self) -> dict[str, Any]:
        (run,) = json.loads(self.sgpu("status", "-o", "json"))["data"]["runs"]
        return dict(run)

    def is_seen(self, ranks: int) -> None:
        """While it goes on, `status` and `top` name the rank, and show what all of them use."""
        self.sgpu("apply", "-y", "--detach")
        until(lambda: bool((self.status.get("rank_wait") or {}).get("alarm")))
        seen = self.status
        assert [rank["state"] for rank in seen["ranks"]] == ["running"] * ranks
        assert seen["rank_wait"]["ranks"] == [2]
        words = "has not entered all_reduce #4"
        assert words in self.sgpu("status")
        top = self.sgpu("top", "hello", "--once")
        assert words in top
        for rank in range(ranks):
            assert f"\n     {rank}  running " in top
        assert "MEM" in top
        self.sgpu("cancel", "hello")
        self.sgpu("wait", "hello", code=5)

    def is_ended(self, ranks: int) -> str:
        """`hang: stop` ends it; return the page of its report."""
        self.sgpu("apply", "-y", "--detach", "--set", "hang=stop", "--rerun", "hello")
        self.sgpu("wait", "hello", code=5)
        cause = self.status["first_cause"]
        assert (cause["class"], cause["rank"]) == ("hung", 2)
        shown = self.sgpu("show", "hello")
        assert cause["summary"] in shown
        assert "main.py:41" in cause["summary"]
        for words in ("in accept", "fault.log", "into its working folder"):
            assert words not in shown  # a thread of ours, files that nobody has, and none of theirs
        page = self._folder / "page.html"
        self.sgpu("report", "hello", "-o", str(page))
        text = page.read_text()
        assert cause["summary"] in text
        assert f"{ranks} ranks" in text
        for words in ("Timeline", "Memory of each rank"):
            assert words in text
        return text
