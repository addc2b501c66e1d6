"""One of several hosts that an attempt was launched on, each with a folder of its own.

Agent 0 chooses the port where the others reach it, and the key by which they know each other. Both
stay in its folder, in `meeting.json`: whoever launches reads them there, as often as needed, and
tells the other hosts.
"""

from __future__ import annotations

import os
from binascii import crc32

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.host.interfaces import name_interface
from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.several_nodes.node_group import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MEETING = "meeting.json"


def host_node(
    message: Mapping[str, Any], folder: str, spec: Mapping[str, Any]
) -> tuple[Node, dict[str, Any]]:
    """Which node this is, and the spec with the key of the run. Programs that this one starts find
    by which interface others are reached.

    Args:
        message: has `number`, `count`, the `address` of the first, and `turns` (see `Node`); for
            others than the first also its `port` and the `key`.

    Raises:
        OSError: no port is free.
    """
    if message["number"] == 0:
        # The lock is held by the open descriptor until guardian and supervisor have ended. The
        # seed is not that of the ranks' port.
        port, _ = claim_port(spec["port_lock_dir"], crc32(f"{spec['token']} agent".encode()))
        met = {"port": port, "key": os.urandom(32).hex()}
        attempt_files.write_atomic(folder, MEETING, attempt_files.encode(met))
        message = {**message, **met}
    name_interface(os.environ, message["address"])
    node = Node(
        message["number"], message["count"], message["address"], message["port"],
        spec_hash=spec["token"], turns=message["turns"], own_folder=True,
    )  # fmt: skip
    return node, {**spec, "control_key": message["key"]}
