"""The content of run and project files, remembered between commands.

A file with errors is not remembered. A file with very many runs is remembered when it is read for
the second time, since writing the record would make its first plan a tenth slower.
"""

from collections.abc import Callable, Mapping, Sequence

from sgpu_decl.config.cached_files import from_json, to_json
from sgpu_decl.config.loaded import Loaded
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.facts.checkout import Checkout
from sgpu_decl.facts.file_record import FileRecord, Reading
from sgpu_decl.facts.location import Location, Opened, absolute

__all__ = ["FileMemory"]

_MANY = 1000  # runs
_READ_ONCE = "read once"


class FileMemory:
    """The record of one file, of which `raw` are the bytes; `values` are the contents and names of
    the files that give values to its variables."""

    def __init__(
        self,
        raw: bytes,
        opened: Opened,
        location: Location,
        values: Sequence[tuple[bytes, str]],
    ) -> None:
        assert opened.file is not None  # noqa: S101  it was read
        self._record = FileRecord(
            "content",
            absolute(opened.file),
            opened.shown,
            raw=raw,
            target=opened.target,
            location=location,
            values=values,
        )
        self._read_before = False

    def recall(
        self, environ: Mapping[str, str], git: Callable[[], Mapping[str, str]]
    ) -> tuple[Loaded, tuple[Diagnostic, ...]] | None:
        """The content of the file and its findings; `None` without a record that still holds."""
        content = self._record.recall(environ, git)
        self._read_before = content == _READ_ONCE
        return None if content is None or self._read_before else from_json(content)

    def reading(self, checkout: Checkout) -> Reading:
        """A reading of the file, for `remember`."""
        return self._record.reading(checkout)

    def remember(self, loaded: Loaded, findings: tuple[Diagnostic, ...], reading: Reading) -> None:
        """Write the record. If the folder cannot be written, the next command is only slower."""
        many = len(loaded.runs) > _MANY and not self._read_before
        content = _READ_ONCE if many else to_json(loaded, findings)
        if content is not None:
            self._record.remember(content, reading)
