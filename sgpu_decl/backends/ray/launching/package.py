"""The package of a launch: what Ray unpacks into the working folder of its job, named by content.

It holds the programs of `cluster/`, the node agent, and `launch.json`, or `depot.json` for the
depot. The text of the job, which goes through a shell, is the same for all.
"""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from importlib import resources

from sgpu_decl.backends.archives import agent_zip

_OLDEST = (1980, 1, 1, 0, 0, 0)  # what a zip can say
_PRIVATE = 0o600 << 16  # the mode of a file, as a zip says it

ENTRYPOINT = (
    "umask 077; chmod 700 .; "
    "raylet=$(tr '\\0' '\\n' </proc/$PPID/environ | sed -n 's/^RAY_RAYLET_PID=//p') && "
    "python=$(tr '\\0' '\\n' </proc/$raylet/cmdline"
    " | sed -n 's/^--python_worker_command=\\([^ ]*\\).*/\\1/p'); "
    'exec "${python:-python3}" .'
)
"""The job: it closes its working folder to other users of the head node, and starts the driver with
the interpreter that runs Ray there, which the command line of the raylet names. The driver reads
the folder before it joins the cluster: from then on Ray may delete it (nodes that share a disk
unpack the working folder of a driver anew). No copy is made, so a job that is killed leaves nothing
that Ray does not know of."""


def job_package(own: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return the package of a job, and its name.

    Ray makes a working folder that every user of the head node can read. Files in it get the modes
    that the package gives them from Ray 2.60, and not from 2.49.1 (`unzip_package` in
    `ray/_private/runtime_env/packaging.py`).

    Args:
        own: the files of this job alone, by name.
    """
    programs = resources.files("sgpu_decl.backends.ray.cluster")
    files = {
        item.name: item.read_bytes() for item in programs.iterdir() if item.name.endswith(".py")
    }
    files |= {"agent.zip": agent_zip()[1], **own}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            member = zipfile.ZipInfo(name, _OLDEST)
            member.external_attr = _PRIVATE
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    data = packed.getvalue()
    return f"sgpu_{hashlib.sha256(data).hexdigest()[:40]}.zip", data
