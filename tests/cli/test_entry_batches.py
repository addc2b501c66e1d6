"""How many entries of a shared state the launches of an apply take."""

from datetime import datetime
from pathlib import Path

import pytest

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.local.local_launcher import LocalLauncher
from sgpu_decl.storing.journal.file_journal import FileJournal
from sgpu_decl.storing.stores import FOLDER
from tests.cli.conftest import Shell
from tests.shared_places import new_place
from tests.support import until

WINDOW = 8  # 4 for each launch that overlaps
COUNT = 10


def test_intents_of_a_window_are_one_entry_and_what_has_ended_meanwhile_is_another(
    request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = new_place(request, FOLDER, tmp_path)
    runs = "".join(
        f"  r{number}: {{gpus: 1, type: CPU, command: ['true'], mlflow: {{enabled: false}}}}\n"
        for number in range(COUNT)
    )
    sgpu.write(
        "sgpu.yml",
        f"project: {{name: p}}\nstate: {{kind: folder, path: {place.address}}}\nruns:\n{runs}",
    )
    launched: list[str] = []
    launch, append = LocalLauncher.launch, FileJournal.append

    def counted(self: LocalLauncher, request: LaunchRequest) -> str | None:
        reference = launch(self, request)
        launched.append(str(request.ref))
        return reference

    def slow(
        self: FileJournal, number: int, text: str, *, prev: str | None = None
    ) -> datetime | None:
        """The first append after a launch takes until all of the window are launched."""
        if '"op":"launched"' in text:
            until(lambda: len(launched) >= WINDOW)
        return append(self, number, text, prev=prev)

    with monkeypatch.context() as patched:
        patched.setattr(LocalLauncher, "launch", counted)
        patched.setattr(FileJournal, "append", slow)
        answer = sgpu.here("apply", "-y", "--detach", "--parallelism", "2")
    assert answer.code == 0, answer.err
    entries = sgpu.data("state", "log")["entries"]
    done = [[change["op"] for change in entry["changes"]] for entry in reversed(entries)]
    begun = [ops for ops in done if "begin" in ops]
    closed = [ops for ops in done if "launched" in ops]
    assert [len(ops) for ops in begun] == [WINDOW, COUNT - WINDOW]
    assert sum(map(len, closed)) == COUNT
    assert len(closed) <= 4
    sgpu.here("wait", "*")
