"""Whether the boxes of a run reach each other, as its ranks have to."""

import secrets
from collections.abc import Sequence

from sgpu_decl.backends.box.boxes import Box, ask_all
from sgpu_decl.errors import BackendError

APART = "hosts_apart"


def require_reach(boxes: Sequence[Box]) -> None:
    """Have each box connect to each other one. They do it at once.

    Raises:
        BackendError: one does not reach another, by the address that it was given.
    """
    if len(boxes) == 1:
        return
    for box in boxes:
        if not box.address:
            raise _apart(f"where other machines reach `{box.host}` is not known", box)
    words = {box: secrets.token_hex(8) for box in boxes}
    ports = ask_all(boxes, lambda box: box.ask("listen", word=words[box])["port"])
    targets = {
        box: {"address": box.address, "port": port, "word": words[box]}
        for box, port in zip(boxes, ports, strict=True)
    }
    others = {box: [other for other in boxes if other is not box] for box in boxes}
    answers = ask_all(
        boxes,
        lambda box: box.ask("reach", targets=[targets[other] for other in others[box]])["why"],
    )
    for box, why in zip(boxes, answers, strict=True):
        for other, reason in zip(others[box], why, strict=True):
            if reason is not None:
                at = f"`{other.address}`, port {targets[other]['port']}"
                raise _apart(f"`{box.host}` does not reach `{other.host}` at {at}: {reason}", other)


def _apart(why: str, other: Box) -> BackendError:
    return BackendError(
        why,
        hint=f"name the address of `{other.host}` in their network: `hosts: [..., "
        f"{{host: {other.host}, address: 10.0.0.1}}]`; ranks meet at ports from 12000 on, which "
        "firewalls between them have to allow",
        code=APART,
    )
