"""`command.sh`: deterministic, sound bash, free of the user's text."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.databricks.launching.command import render_command
from sgpu_decl.backends.databricks.launching.node_program import platform_table
from sgpu_decl.backends.remote.launch_folder import FILES, NodeStart
from tests.support import check_golden

GOLDEN = Path(__file__).parent / "golden"
LAUNCH = "/Workspace/Users/o'neil@b.c/.sgpu/runs/l/train/1-a"
FEW = {"spec.json": "1" * 64, "_air.py": "2" * 64}
OBJECTS = "/Workspace/Users/o'neil@b.c/.sgpu/objects"


def rendered(*, managed: bool = False, ends: bool = False, **start: Any) -> str:
    given = NodeStart(
        **{
            "agent": "0" * 64, "files": FEW, "launch": LAUNCH, "objects": OBJECTS,
            "back": f"{LAUNCH}/back", "code": "4" * 64, **start,
        }
    )  # fmt: skip
    return render_command(given, platform_table(ends=ends), managed=managed)


TEXTS = {
    "command.sh": rendered,
    "command_whole.sh": lambda: rendered(
        files=dict.fromkeys(FILES, "1" * 64),
        code=None,
        environment="3" * 64,
        part=8 << 20,
        ends=True,
    ),
    "command_ai_base.sh": lambda: rendered(managed=True),
    "command_volume.sh": lambda: rendered(objects="/Volumes/a/b/it's $x", back="/Volumes/a/b/y z"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_rendered_command_is_the_golden_one(name: str) -> None:
    text, golden = TEXTS[name](), GOLDEN / f"{name}.txt"
    check_golden(golden, text)
    assert text == TEXTS[name]()


@pytest.mark.parametrize("name", TEXTS)
def test_bash_can_read_it(name: str) -> None:
    done = subprocess.run(["bash", "-n"], input=TEXTS[name](), text=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("text", ["", "a" * 63, "A" * 64, "a" * 64 + "\n", "$(reboot)".ljust(64)])
def test_what_is_no_checksum_never_reaches_it(text: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        rendered(agent=text)
    with pytest.raises(ValueError, match="SHA-256"):
        rendered(files={"spec.json": text})
    with pytest.raises(ValueError, match="SHA-256"):
        rendered(environment=text)


def test_an_unknown_file_is_refused() -> None:
    with pytest.raises(ValueError, match="launch folder"):
        rendered(files={"x; reboot": "1" * 64})
