"""The folder of another run's output, where a program reads it."""

import subprocess
from pathlib import Path

import pytest

from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.run_outputs import with_folders

OUTPUT = "${run.train#8.output}"


@pytest.mark.parametrize(
    "command",
    [
        "cat X/w",
        'cat "X/w"',
        "cat 'X/w'",
        """echo it\\'s "o'clock" 'a "b' >/dev/null; cat X/w""",
        """echo 'a\\' "b\\"" >/dev/null; cat "X"/w""",
    ],
)
@pytest.mark.parametrize("name", ["plain", "a b", "it's", '$HOME `id` \\ "x"'])
def test_a_shell_finds_the_folder_whatever_its_name(
    tmp_path: Path, command: str, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "w").write_text("weights")
    spec = Spec.of({"command": command.replace("X", OUTPUT)})
    filled = with_folders(spec, lambda _ref: str(folder)).fields["command"]
    assert isinstance(filled, str)
    read = subprocess.run(["sh", "-c", filled], capture_output=True, text=True, check=True)
    assert read.stdout == "weights"


def test_words_and_values_get_the_folder_as_it_is() -> None:
    spec = Spec.of({"command": ["cat", f"{OUTPUT}/w"], "args": {"a": OUTPUT}})
    filled = with_folders(spec, lambda ref: f"/a b/{ref}").fields
    assert filled == {"command": ["cat", "/a b/train#8/w"], "args": {"a": "/a b/train#8"}}
