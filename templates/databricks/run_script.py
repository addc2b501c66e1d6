"""Runs one Python file of a job, of sgpu: not yours to edit.

The platform starts it with the archive of the code that was staged with the job, the path of the
file in it, and the arguments of the file. It unpacks the code, and executes the file there.
"""

import os
import runpy
import sys
import tarfile
import tempfile

archive, script, *arguments = sys.argv[1:]
folder = tempfile.mkdtemp(prefix="sgpu-code-")
with tarfile.open(archive) as packed:
    packed.extractall(folder, filter="data")
(code,) = (os.path.join(folder, name) for name in os.listdir(folder))
path = os.path.join(code, script)
os.chdir(code)
sys.path[0:0] = [os.path.dirname(path), code]
sys.argv = [path, *arguments]
runpy.run_path(path, run_name="__main__")
