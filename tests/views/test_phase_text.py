"""How far a long step has come, in words."""

import pytest

from sgpu_decl.views.progress_text import phase_line


@pytest.mark.parametrize(
    ("phase", "done", "total", "seconds", "line"),
    [
        ("reading", 412_000_000, 1_200_000_000, 2.0,
         "reading the environment: 412.0 MB of 1.2 GB, 206.0 MB/s"),
        ("copying", 0, 1_000, 5.0, "copying the environment: 0 B of 1.0 kB"),
        ("copying", 500, 0, 0.5, "copying the environment: 500 B"),
        ("uploading", 5_000_000, 9_000_000, 2.0,
         "uploading the code: 5.0 MB of 9.0 MB, 2.5 MB/s"),
        ("connecting", 4, 60, 4.0,
         "waiting for the workspace to log in and answer: 4 s of 60 s"),
        ("collecting", 4, 0, 4.0,
         "waiting for an `sgpu gc` that deletes from the store of this machine: 4 s"),
        ("building", 3, 0, 3.0, "building the environment: 3 packages"),
    ],
)  # fmt: skip
def test_amounts_are_in_what_the_phase_counts(
    phase: str, done: int, total: int, seconds: float, line: str
) -> None:
    assert phase_line(phase, done, total, seconds=seconds) == line
