"""The file of a project: its bytes, and what they say."""

import os
from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.applying.opening import Location, Opened
from sgpu_decl.applying.saving import holds_plan
from sgpu_decl.config.reading import Loaded, read
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors, in_order
from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.text.limits import PROJECT_FILE

__all__ = ["git_facts", "read_bytes", "read_file"]


def read_file(opened: Opened, location: Location) -> tuple[Loaded, tuple[Diagnostic, ...], str]:
    """Read and validate the file of a project.

    Returns:
        What it says, the warnings, and its text (for excerpts).

    Raises:
        NotFound: there is no file.
        InvalidInput: it is a saved plan, or holds errors; all of them are in `diagnostics`.
    """
    if opened.file is None:
        raise NotFound(
            f"there is no `sgpu.yml` and no `run.yaml` {_where(opened.root)}",
            hint="name a file, or write a first one with `sgpu init`",
        )
    if holds_plan(opened.file):
        raise InvalidInput(
            f"`{opened.shown}` is a saved plan, not a run or project file",
            hint=f"carry it out with `sgpu apply {opened.shown}`, or look at it with "
            f"`sgpu show {opened.shown}`",
        )
    raw = read_bytes(opened.file)
    loaded, findings = read(
        raw,
        opened.shown,
        target=location.target,
        variables=location.variables,
        sets=location.sets,
        environ=os.environ,
        git=lambda: git_facts(opened.root),
    )
    if loaded is None or has_errors(findings):
        raise InvalidInput(f"`{opened.shown}` is not valid", diagnostics=in_order(findings))
    return loaded, in_order(findings), raw.decode("utf-8-sig", "replace")


def _where(root: Path) -> str:
    return "here" if root == Path.cwd() else f"in `{root}`"


def read_bytes(file: Path) -> bytes:
    """A run or project file, or as much of one that is too large as shows that it is.

    Raises:
        NotFound: it is not there.
        SgpuError: it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            return opened.read(PROJECT_FILE.size + 1)
    except FileNotFoundError:
        raise NotFound(f"`{file}` does not exist", hint="check the path") from None
    except IsADirectoryError:
        raise SgpuError(
            f"`{file}` is a folder",
            hint=f"name a run file in it, such as `{file / 'run.yaml'}`",
            code="unreadable",
        ) from None
    except OSError as error:
        raise SgpuError(
            f"`{file}` cannot be read: {(error.strerror or str(error)).lower()}",
            hint="give a file that you may read",
            code="unreadable",
        ) from None


def git_facts(root: Path) -> Mapping[str, str]:
    """`commit`, `branch` and `dirty` of the checkout, for `${git.…}`; empty outside of one."""

    import subprocess

    def ask(*words: str) -> str | None:
        try:
            asked = subprocess.run(
                ["git", "-C", os.fspath(root), *words],
                capture_output=True,
                text=True,
                timeout=5,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return asked.stdout.strip() if asked.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return {}
    dirty = ask("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "branch": ask("rev-parse", "--abbrev-ref", "HEAD") or "",
        "dirty": "true" if dirty else "false",
    }
