"""Starts the tracker from its archive, `python tracker.zip`, on a node that has no sgpu.

The archive of the node agent lies beside it.
"""

import os
import sys

_FOLDER, _, _ = __file__.rpartition("/")  # the archive
_AGENT = os.path.join(os.path.dirname(_FOLDER), "agent.zip")
_PACKAGES = {
    "sgpu_decl": [_AGENT],
    "sgpu_decl.agent": [_AGENT],
    "sgpu_decl.tracking": [_FOLDER],
}
for _name, _path in _PACKAGES.items():
    # An sgpu that is installed there may be another version.
    sys.modules[_name] = type(sys)(_name)
    sys.modules[_name].__path__ = _path

from sgpu_decl.tracking.tracker import run  # noqa: E402

run()
