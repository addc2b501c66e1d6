"""`${run.train.output}` in the spec of a run: the folder of another run's output.

The file names the run. A plan pins the attempt, `${run.train#8.output}`, so that fields,
fingerprints and the state say whose output a launch reads. The backend puts the folder in its place
at launch.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from sgpu_decl.model.address import NAME, Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json, Spec

_REFERENCE = re.compile(r"\$\{run\.([^{}#\"\\]{1,200})\.output\}")
_PINNED = re.compile(rf"\$\{{run\.({NAME})#(\d{{1,9}})\.output\}}", re.ASCII)
_SPECIAL = re.compile(r'[\\$`"]')  # between double quotes
_MARK = "${run."  # most specs have none, and are not searched


def references(text: str) -> frozenset[str]:
    """The names of the runs whose output a text refers to, without an attempt."""
    return frozenset(_REFERENCE.findall(text)) if _MARK in text else frozenset()


def pinned(spec: Spec, attempts: Mapping[str, int]) -> Spec:
    """The spec with the attempts of the runs that are known; other references stay."""
    if _MARK not in spec.text:
        return spec

    def pin(match: re.Match[str]) -> str:
        number = attempts.get(match[1])
        return match[0] if number is None else f"${{run.{match[1]}#{number}.output}}"

    return Spec(_REFERENCE.sub(pin, spec.text))


def unpinned(spec: Spec) -> Spec:
    """The spec without the attempts that a plan gave to references."""
    if _MARK not in spec.text:
        return spec
    return Spec(_PINNED.sub(lambda match: f"${{run.{match[1]}.output}}", spec.text))


def pins(text: str) -> dict[str, int]:
    """The attempts whose output a text refers to, by the name of the run."""
    if _MARK not in text:
        return {}
    return {name: int(number) for name, number in _PINNED.findall(text)}


def with_new_names(spec: Spec, new_names: Mapping[AttemptRef, str]) -> Spec:
    """The spec with the names that runs have now: `new_names` has them by the attempts as they were
    called once."""
    if _MARK not in spec.text:
        return spec

    def now(match: re.Match[str]) -> str:
        ref = AttemptRef(Address.run(match[1]), int(match[2]))
        return f"${{run.{new_names.get(ref, match[1])}#{match[2]}.output}}"

    return Spec(_PINNED.sub(now, spec.text))


def outputs_read(spec: Spec) -> tuple[AttemptRef, ...]:
    """The attempts whose output a spec refers to."""
    return tuple(AttemptRef(Address.run(name), number) for name, number in pins(spec.text).items())


def texts_in(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """All texts in a value, keys too, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{path}.{key}" if path else key
            yield inner, key
            yield from texts_in(item, inner)
    elif isinstance(value, Sequence):
        for at, item in enumerate(value):
            yield from texts_in(item, f"{path}.{at}")


def with_folders(spec: Spec, folder_of: Callable[[AttemptRef], str]) -> Spec:
    """The spec with the folder of each pinned output in its place. In a `command`
    that is text for a shell, the folder is quoted."""
    if _MARK not in spec.text:
        return spec

    def folder(match: re.Match[str]) -> str:
        return folder_of(AttemptRef(Address.run(match[1]), int(match[2])))

    if isinstance(command := spec.fields.get("command"), str):
        quoted = _PINNED.sub(
            lambda match: _as_quoted(folder(match), command[: match.start()]), command
        )
        spec = Spec.of({**spec.fields, "command": quoted})
    return Spec(_PINNED.sub(lambda match: json.dumps(folder(match))[1:-1], spec.text))


def _as_quoted(text: str, before: str) -> str:
    """A text as a shell takes it, after what stands before it: inside quotes, or outside."""
    quote = ""
    letters = iter(before)
    for letter in letters:
        if letter == "\\" and quote != "'":
            next(letters, None)
        elif letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
    if quote == "'":
        return text.replace("'", "'\\''")
    return _SPECIAL.sub(r"\\\g<0>", text) if quote else shlex.quote(text)
