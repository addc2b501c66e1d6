"""The folder of a program on its node, which has the archive of the agent and a lock."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from contextlib import suppress

from sgpu_decl.agent.attempt.attempt_files import SUPERVISOR_LOCK
from sgpu_decl.agent.node.input_folder import delete_unused
from sgpu_decl.agent.system.locks import create_held, held
from sgpu_decl.backends.slurm.job.bootstrap import FOLDER


def own_folder(run: str) -> int:
    """Show that a folder is in use, as long as the descriptor is open that this returns. Delete
    those of this user that no process uses: of programs that were killed."""
    lock = create_held(f"{run}/lock")
    delete_unused()
    for path in glob.glob(f"{glob.escape(tempfile.gettempdir())}/{FOLDER}*/lock"):
        folder = os.path.dirname(path)
        with suppress(OSError):  # it is another user's, or was deleted just now
            ranks = glob.glob(f"{folder}/nodes/*/{SUPERVISOR_LOCK}")
            locks = [path, f"{folder}/{SUPERVISOR_LOCK}", *ranks]
            if os.stat(folder).st_uid == os.getuid() and not any(map(held, locks)):
                shutil.rmtree(folder)
    return lock
