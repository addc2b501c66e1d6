"""Files are put into trees while other processes put the same files into the store."""

import os
import threading
from pathlib import Path

from sgpu_decl.content.tree_links import place


def test_a_file_that_another_process_replaces_is_placed(tmp_path: Path) -> None:
    """The kernel refuses a link to a file that is replaced at that moment, with ENOENT."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "object").write_bytes(b"content")
    folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
    placed = threading.Event()

    def replace() -> None:
        while not placed.is_set():
            (store / "new").write_bytes(b"content")
            os.rename(store / "new", store / "object")

    other = threading.Thread(target=replace)
    other.start()
    try:
        for number in range(5_000):
            source = os.open("object", os.O_RDONLY, dir_fd=folder)
            path = tmp_path / f"placed-{number}"
            place("object", folder, source, os.fsencode(path))
            assert os.pread(source, 100, 0) == path.read_bytes() == b"content"
            os.close(source)
            path.unlink()
    finally:
        placed.set()
        other.join()
        os.close(folder)
