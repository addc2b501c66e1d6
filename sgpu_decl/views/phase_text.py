"""The progress of a long step, in one line."""

from sgpu_decl.views.terminal import size

_COUNTED = {
    "resolving": "packages",
    "building": "packages",
    "hashing": "files",
}
"""What the phases count that do not count bytes."""


_CODE = frozenset({"hashing", "storing", "staging", "archiving", "uploading"})
"""The phases that are about the code of a run; the others are about its environment."""

_FETCHING = "fetching"
CONNECTING = "connecting"
_WAITS = {
    CONNECTING: "the workspace to log in and answer: {} s of {} s",
    "listing": "git to say which files it tracks: {} s of {} s",
    "stopping": "attempts that are replaced to stop: {} s, at most {} s",
    "queueing": "another process that builds the same environment: {} s",
    "sharing": "another process that fetches the same files: {} s",
    "collecting": "an `sgpu gc` that deletes from the store of this machine: {} s",
    "freeing": "an `sgpu gc` that deletes from the staging folder, last seen {} s ago: if it was "
    "killed, this goes on {} s after it was seen",
}
"""What the phases wait for that count seconds."""


def phase_line(phase: str, done: int, total: int, *, seconds: float) -> str:
    """Return `copying the environment: 412 MB of 1.2 GB, 180 MB/s`.

    Args:
        done, total: bytes, or what the phase counts; a total of 0 is not known yet.
        seconds: since the phase began.
    """
    if phase in _WAITS:
        return f"waiting for {_WAITS[phase].format(done, total)}"
    what = "files" if phase == _FETCHING else "the code" if phase in _CODE else "the environment"
    unit = _COUNTED.get(phase)
    if unit is not None:
        of = f" of {total:,}" if total else ""
        return f"{phase} {what}: {done:,}{of} {unit}"
    of = f" of {size(total)}" if total else ""
    rate = f", {size(int(done / seconds))}/s" if seconds >= 1 and done else ""
    return f"{phase} {what}: {size(done)}{of}{rate}"
