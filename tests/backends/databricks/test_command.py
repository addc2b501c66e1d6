"""`command.sh`: deterministic, sound bash, free of the user's text."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.databricks.launching.workspace_node_program import (
    platform_table,
    render_command,
)
from sgpu_decl.backends.remote.launching.launch_folder import FILES, NodeStart, ReadOutput
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from tests.backends.launches import launching_of, workspace_files_of
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


def test_nodes_are_told_which_outputs_they_bring() -> None:
    output = ReadOutput(
        name="train#8", launch="../../train/8-b", nodes=2, folder="/tmp/sgpu-inputs-a/train-8"
    )
    line = "  --input 'train#8' ../../train/8-b 2 /tmp/sgpu-inputs-a/train-8 \\\n"
    assert line in rendered(outputs=(output,))


def test_ranks_and_nodes_know_the_same_folder_of_an_output(tmp_path: Path) -> None:
    fields = {"name": "test", "gpus": 1, "type": "A10", "entrypoint": "main.py:main"}
    train = AttemptRef(Address.run("train"), 8)
    upstream = launching_of(ref=train, token="b" * 20, spec=json.dumps(fields)).record
    reads = json.dumps({**fields, "args": {"weights": "${run.train#8.output}/w.pt"}})
    request = launching_of(token="a" * 20, spec=reads)

    files = workspace_files_of(
        replace(request, after=(upstream,)),
        root=tmp_path, nodes=1, scratch=tmp_path, folder="/w/runs/lineage/eval/1-aaaaaaaa",
    )  # fmt: skip

    command, spec = files["command.sh"], files["spec.json"]
    assert isinstance(command, bytes)
    assert isinstance(spec, bytes)
    folder = f"/tmp/sgpu-inputs-{'a' * 16}/train-8"
    assert f"--input 'train#8' ../../train/8-bbbbbbbb 1 {folder} " in command.decode()
    assert json.loads(spec)["entry"]["args"] == {"weights": f"{folder}/w.pt"}


def test_an_unknown_file_is_refused() -> None:
    with pytest.raises(ValueError, match="launch folder"):
        rendered(files={"x; reboot": "1" * 64})
