"""Starts the agent for an attempt folder.

`python -I -S __main__.py FOLDER` is the quickest; `python agent.zip FOLDER`, the folder itself and
`-m sgpu_decl.agent` work as well. With options instead of a folder it is the agent of one node of
several: see `supervision/foreground`. Other words start other programs:

    serve     launches many attempts: see `launching/launch_servers`
    node      all that a platform starts on a node: see `node`
    hydrate   makes the tree of an environment: see `hydrate_program`
    box       answers another machine: see `box`
    probe     measures a node: see `probe`
    tell      tells of the end of an attempt: see `notices`
"""

import os
import sys

if not __package__:
    # In a file, a folder or a zip, the modules have no package above them. Make the packages, so
    # that imports are the same wherever the agent lies. `content` lies beside it, in a zip within.
    _kind = type(sys)
    _top, _own = _kind("sgpu_decl"), _kind("sgpu_decl.agent")
    _folder = __file__.rpartition("/")[0] or "."
    _top.__path__, _own.__path__ = [_folder, os.path.dirname(_folder)], [_folder]
    sys.modules.setdefault("sgpu_decl", _top)
    sys.modules.setdefault("sgpu_decl.agent", _own)

if sys.argv[1:2] == ["hydrate"]:
    from sgpu_decl.content.hydrate_program import main
elif sys.argv[1:2] == ["hydrate-worker"]:
    from sgpu_decl.content.workers import main
elif sys.argv[1:2] == ["serve"]:
    from sgpu_decl.agent.launching.launch_servers import main
elif sys.argv[1:2] == ["node"]:
    from sgpu_decl.agent.node.program import main
elif sys.argv[1:2] == ["box"]:
    from sgpu_decl.agent.box.program import main
elif sys.argv[1:2] == ["probe"]:
    from sgpu_decl.agent.probe.probe_program import main
elif sys.argv[1:2] == ["tell"]:
    from sgpu_decl.agent.notices.program import main
elif sys.argv[1:2] and sys.argv[1].startswith("--"):
    from sgpu_decl.agent.supervision.foreground import main
else:
    from sgpu_decl.agent.supervision.guardian import main

_code = main(sys.argv[1:])
if main.__module__ in (
    "sgpu_decl.agent.supervision.guardian",
    "sgpu_decl.agent.launching.launch_servers",
):
    # Guardian and supervisor share their memory; tearing it down would copy all of it.
    sys.stderr.flush()
    os._exit(_code)
sys.exit(_code)
