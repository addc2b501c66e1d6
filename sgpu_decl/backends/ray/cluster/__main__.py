"""Starts the driver from its folder, the unpacked package of a launch: `python FOLDER`. A folder
with `depot.json` instead of `launch.json` starts the depot.

The folder holds the modules of this package, too, and `agent.zip`. It is emptied once all of that
is read: nothing is imported from it later.
"""

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
_agent = os.path.join(_folder, "agent.zip")
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _folder]
# The modules have no packages above them here: make these, so that imports are the same.
for _name, _path in (
    ("sgpu_decl", [_agent]),
    ("sgpu_decl.agent", [_agent]),
    ("sgpu_decl.backends", []),
    ("sgpu_decl.backends.ray", []),
    ("sgpu_decl.backends.ray.cluster", [_folder]),
):
    _module = sys.modules.setdefault(_name, type(sys)(_name))
    _module.__path__ = _path

# The packages come first.
if os.path.exists(os.path.join(_folder, "depot.json")):
    from sgpu_decl.backends.ray.cluster.depot import main
else:
    from sgpu_decl.backends.ray.cluster.driver import main

sys.exit(main(_folder))
