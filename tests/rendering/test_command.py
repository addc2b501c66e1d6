"""`command.sh`: deterministic, sound bash, free of the user's text."""

import os
import subprocess
from pathlib import Path

import pytest

from sgpu_decl.rendering.command import FILES, render_command

GOLDEN = Path(__file__).parent / "golden"
FEW = {"spec.json": "1" * 64, "_air.py": "2" * 64}
TEXTS = {
    "command.sh": lambda: render_command("0" * 64, FEW, code=True),
    "command_whole.sh": lambda: render_command(
        "0" * 64, dict.fromkeys(FILES, "1" * 64), code=False, environment="3" * 64
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_rendered_command_is_the_golden_one(name: str) -> None:
    text, golden = TEXTS[name](), GOLDEN / f"{name}.txt"
    if os.environ.get("SGPU_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()
    assert text == TEXTS[name]()


@pytest.mark.parametrize("name", TEXTS)
def test_bash_can_read_it(name: str) -> None:
    done = subprocess.run(["bash", "-n"], input=TEXTS[name](), text=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("text", ["", "a" * 63, "A" * 64, "a" * 64 + "\n", "$(reboot)".ljust(64)])
def test_what_is_no_checksum_never_reaches_it(text: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        render_command(text, FEW, code=True)
    with pytest.raises(ValueError, match="SHA-256"):
        render_command("0" * 64, {"spec.json": text}, code=True)
    with pytest.raises(ValueError, match="SHA-256"):
        render_command("0" * 64, FEW, code=True, environment=text)


def test_an_unknown_file_is_refused() -> None:
    with pytest.raises(ValueError, match="launch folder"):
        render_command("0" * 64, {"x; reboot": "1" * 64}, code=True)
