"""A `sbatch` whose answers, and callers, can be lost."""

import shutil
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
case $1 in --test-only) exec {sbatch} "$@";; esac
how=$(cat {folder}/how 2>/dev/null)
rm -f {folder}/how
case $how in
  lose) {sbatch} "$@" >/dev/null; exit 1;;
  die-before) kill -9 $PPID;;
  die-after) {sbatch} "$@"; kill -9 $PPID; exit 1;;
  late) kill -9 $PPID; touch {folder}/waits; until [ -e {folder}/go ]; do sleep 0.05; done
        {sbatch} "$@" > {folder}/job; touch {folder}/done; exit 0;;
esac
exec {sbatch} "$@"
"""


class LossySbatch:
    """Tests put its `folder` first on the PATH.

    Args:
        folder: a new one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        script = folder / "sbatch"
        script.write_text(_SCRIPT.format(folder=folder, sbatch=shutil.which("sbatch")))
        script.chmod(0o755)

    def next(self, how: str) -> None:
        """Have the next submission take place, and its answer get lost (`lose`); or its caller be
        killed `die-before`, or `die-after` it, or before it, while it takes place once the file
        `go` is there (`late`)."""
        (self.folder / "how").write_text(how)

    def lose(self) -> None:
        """Have the next submission take place, and its answer get lost."""
        self.next("lose")
