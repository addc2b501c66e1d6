"""Files in pieces, fetched from a shared folder."""

import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sgpu_decl.backends.remote.watching.output_download import alone, fetch_output
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.file_place import ignore_bytes
from sgpu_decl.places.folder import FolderPlace

PARTS = (b"one" * 9, b"two" * 9, b"3")


class Noting(FolderPlace):
    """Notes which files are fetched."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fetched: list[str] = []

    def fetch(self, path: str, file: Path, received: Any = ignore_bytes) -> None:
        self.fetched.append(Path(path).name)
        super().fetch(path, file, received)


def _upload(folder: Path) -> dict[str, Any]:
    """What a node uploaded, a file and one in parts, and its report."""
    for name, content in {"output/a/small": b"s", **_parts()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    digests = [hashlib.sha256(part).hexdigest() for part in PARTS]
    large = {"bytes": 55, "part": 27, "folder": "parts/0", "sha256": digests}
    small = {"bytes": 1, "sha256": hashlib.sha256(b"s").hexdigest()}
    return {"files": {"output/a/small": small, "output/large": large}}


def _parts() -> dict[str, bytes]:
    return {f"parts/0/{number}": part for number, part in enumerate(PARTS)}


def test_a_fetch_goes_on_with_the_part_that_failed_and_leaves_nothing_else(tmp_path: Path) -> None:
    node, here = tmp_path / "node_0", tmp_path / "here" / "output"
    reports, place = {str(node): _upload(node)}, Noting(tmp_path)
    (node / "parts/0/1").write_bytes(b"owt" * 9)

    first = fetch_output(place, reports, here, Quiet())

    assert (first.files, first.bytes, first.lacking) == (1, 1, ("large",))
    assert "it is not what the node wrote there" in first.why
    assert [path.name for path in here.rglob("*") if path.is_file()] == ["small"]
    assert sorted(place.fetched) == ["0", "1", "2", "small"]

    (node / "parts/0/1").write_bytes(PARTS[1])
    place.fetched.clear()
    second = fetch_output(place, reports, here, Quiet())

    assert (second.files, second.bytes, second.lacking) == (2, 56, ())
    assert (here / "large").read_bytes() == b"".join(PARTS)
    assert place.fetched == ["1"]
    assert fetch_output(place, reports, here, Quiet()) == second
    assert place.fetched == ["1"]
    assert list((here.parent / ".fetching").iterdir()) == []
    assert {path.stat().st_mode & 0o777 for path in here.rglob("*") if path.is_file()} == {0o600}


def test_a_fetch_that_waits_for_another_one_says_so(tmp_path: Path) -> None:
    node, here = tmp_path / "node_0", tmp_path / "here" / "output"
    reports = {str(node): _upload(node)}
    (here.parent / ".fetching").mkdir(parents=True)
    first, said = ExitStack(), list[str]()

    class Watched:
        """Hears that the second one waits, and ends the first."""

        def advance(self, phase: str, done: int, total: int) -> None:
            said.append(phase)
            first.close()

    first.enter_context(alone(here.parent / ".fetching", Quiet()))
    output = fetch_output(FolderPlace(tmp_path), reports, here, Watched())

    assert (output.files, output.lacking) == (2, ())
    assert set(said) == {"sharing", "fetching"}
