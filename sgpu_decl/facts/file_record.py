"""A cache of what was read from run and project files. Whoever finds it there needs neither YAML
nor pydantic.

There is one record for each file, target and part of the content. A record is used only if all of
this is unchanged: the bytes of the file and of those that it includes, its name on the command
line, the target and the options, the modules that were loaded to read it, the environment variables
and git facts that its references use, and the types of arguments in the source of its entrypoints.
"""

import contextlib
import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from sgpu_decl import __version__
from sgpu_decl.agent.private_folder import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.config.include import IncludePattern
from sgpu_decl.diagnostics.place import VARIABLE_PREFIX, Place
from sgpu_decl.facts.checkout import Checkout
from sgpu_decl.facts.included_files import FileReader
from sgpu_decl.facts.location import Location
from sgpu_decl.facts.text_arguments import EntrypointTexts
from sgpu_decl.model.jsonable import Json

__all__ = ["FileRecord", "Reading"]

Git = Callable[[], Mapping[str, str]]

_PACKAGE = Path(__file__).parents[1]
_LIBRARIES = ("pydantic", "pydantic_core", "yaml")  # what reads beside our own modules
_MOST = 512  # records


class _Variables(Mapping[str, str]):
    """The environment variables; `digests` has those that were read."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.digests: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        value = self._environ[name]
        self.digests[name] = _digest(value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


class _Git:
    """The facts of a checkout; `facts` is `None` until they are read."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self.facts: Mapping[str, str] | None = None

    def __call__(self) -> Mapping[str, str]:
        self.facts = self._checkout.facts
        return self.facts


class Reading:
    """One reading of the file `file`, named `shown` in places, which notes for its record what it
    asks for besides: `environ`, the environment variables; `git`, the facts of a checkout;
    `included`, the files that the file includes; and `texts`, the arguments that are text."""

    def __init__(self, file: Path, shown: str, checkout: Checkout) -> None:
        self.environ = _Variables(os.environ)
        self.git = _Git(checkout)
        self.included = FileReader(file, shown)
        self.texts = EntrypointTexts(file.parent)


class FileRecord:
    """The record of what was read from one file for one target.

    Args:
        part: what was read.
        file: the path of the file.
        shown: its name in places.
        raw: its bytes.
        values: the contents and names of the files that give values to its variables.
    """

    def __init__(
        self,
        part: Literal["content", "state"],
        file: Path,
        shown: str,
        *,
        raw: bytes,
        target: str | None,
        location: Location,
        values: Sequence[tuple[bytes, str]],
    ) -> None:
        import platformdirs

        self._file, self._shown = file, shown
        identity = [part, str(file), target]
        folder = Path(platformdirs.user_cache_path("sgpu")) / "files"
        self._path = folder / f"{_digest(json.dumps(identity))[:32]}.json"
        self._key = _digest(
            json.dumps(
                [
                    identity,
                    hashlib.sha256(raw).hexdigest(),
                    shown,
                    location.variables,
                    location.sets,
                    [[hashlib.sha256(content).hexdigest(), name] for content, name in values],
                    sorted(name for name in os.environ if name.startswith(VARIABLE_PREFIX)),
                    __version__,
                    sys.version,
                    str(_PACKAGE),
                ]
            )
        )

    def reading(self, checkout: Checkout) -> Reading:
        """A reading of the file, for `remember`."""
        return Reading(self._file, self._shown, checkout)

    def recall(self, environ: Mapping[str, str], git: Git) -> Any:
        """What `remember` was given; `None` without a record that still holds."""
        record = _read(self._path)
        if record is None or record.get("key") != self._key:
            return None
        if any(_stamp(file) != stamp for file, *stamp in record["modules"]):
            return None
        read = record["environ"]
        if any(name not in environ or _digest(environ[name]) != read[name] for name in read):
            return None
        if record["git"] is not None and dict(git()) != record["git"]:
            return None
        if record["included"] is not None and not self._same(record["included"]):
            return None
        if record["texts"] and not EntrypointTexts(self._file.parent).still(record["texts"]):
            return None
        return record["content"]

    def _same(self, included: Mapping[str, Any]) -> bool:
        """Whether the patterns match the same files as before, with the same content."""
        reader = FileReader(self._file, self._shown)
        reader([IncludePattern(text, Place(self._shown, 1, 1)) for text in included["patterns"]])
        return bool(_digests(reader) == included["files"])

    def remember(self, content: Json, reading: Reading) -> None:
        """Write the record. If the folder cannot be written, the next command is only slower."""
        git, included = reading.git.facts, reading.included
        data = json.dumps(
            {
                "key": self._key,
                "modules": _loaded_modules(),
                "environ": reading.environ.digests,
                "git": None if git is None else dict(git),
                "included": {
                    "patterns": [pattern.text for pattern in included.patterns],
                    "files": _digests(included),
                }
                if included.patterns
                else None,
                "texts": reading.texts.notes(),
                "content": content,
            },
            separators=(",", ":"),
        ).encode()
        folder = self._path.parent
        with contextlib.suppress(OSError):
            private_folder(folder)
            write_atomic(self._path, _checksum(data) + b"\n" + data, durable=False)
            _forget_oldest(folder)


def _read(path: Path) -> dict[str, Any] | None:
    """The record, if it is undamaged and no other user can have written it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
                return None
            if facts.st_mode & 0o022:
                return None
            checksum, _, data = file.read().partition(b"\n")
    except OSError:
        return None
    if checksum != _checksum(data):
        return None
    try:
        record = json.loads(data)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _digests(reader: FileReader) -> list[list[str]]:
    return [[item.path, hashlib.sha256(item.content).hexdigest()] for item in reader.files]


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _loaded_modules() -> list[list[str | int]]:
    """The files of the modules that may have read the file, each with its stamp. In a checkout of
    sgpu they change while its version stays."""
    files = (
        module.__file__
        for name, module in sys.modules.items()
        if name.partition(".")[0] == __package__.partition(".")[0] or name in _LIBRARIES
    )
    return [[file, *_stamp(file)] for file in files if file is not None]


def _stamp(file: str) -> list[int]:
    """The size and time of a file, which differ between its versions; empty if it is gone."""
    try:
        facts = os.stat(file)
    except OSError:
        return []
    return [facts.st_size, facts.st_mtime_ns]


def _forget_oldest(folder: Path) -> None:
    records = [(entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(folder)]
    for _, path in sorted(records)[:-_MOST]:
        os.unlink(path)
