"""The progress of a long step, in one line."""

from sgpu_decl.views.terminal import size

__all__ = ["CONNECTING", "phase_line"]

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
"""A phase that counts seconds of waiting for a workspace."""

_LISTING = "listing"  # counts seconds of waiting for git; see `staging.repository`
_STOPPING = "stopping"  # counts seconds of waiting for attempts that are replaced
_FREEING = "freeing"  # counts seconds of waiting for a gc; see `backends.remote.lease`


def phase_line(phase: str, done: int, total: int, *, seconds: float) -> str:
    """Return `copying the environment: 412 MB of 1.2 GB, 180 MB/s`.

    Args:
        done, total: bytes, or what the phase counts; a total of 0 is not known yet.
        seconds: since the phase began.
    """
    if phase == CONNECTING:
        return f"waiting for the workspace to log in and answer: {done} s of {total} s"
    if phase == _LISTING:
        return f"waiting for git to say which files it tracks: {done} s of {total} s"
    if phase == _STOPPING:
        return f"waiting for attempts that are replaced to stop: {done} s, at most {total} s"
    if phase == _FREEING:
        return (
            f"waiting for an `sgpu gc` that deletes from the staging folder, last seen {done} s "
            f"ago: if it was killed, this goes on {total} s after it was seen"
        )
    what = "files" if phase == _FETCHING else "the code" if phase in _CODE else "the environment"
    unit = _COUNTED.get(phase)
    if unit is not None:
        of = f" of {total:,}" if total else ""
        return f"{phase} {what}: {done:,}{of} {unit}"
    of = f" of {size(total)}" if total else ""
    rate = f", {size(int(done / seconds))}/s" if seconds >= 1 and done else ""
    return f"{phase} {what}: {size(done)}{of}{rate}"
