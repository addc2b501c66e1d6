"""Finds, checks and runs uv, the program that resolves and installs packages.

A user's variables and files for uv hold here too, except those that would make it use another
folder (`UV_PROJECT`) or download an interpreter.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.distribution import extra_command
from sgpu_decl.errors import SgpuError
from sgpu_decl.regular_files import trusted_path

OLDEST = (0, 8)  # the first whose `pylock.toml` holds hashes and is installed from
_VERSION = re.compile(r"^uv (\d+)\.(\d+)\.", re.MULTILINE)
_USER = re.compile(r"(?<=://)[^/\s@`'\"]+@")
_WAIT = 10.0  # seconds for `uv --version`
_UNSET = frozenset({
    "UV_PROJECT", "UV_WORKING_DIR", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_TARGET", "UV_PREFIX",
    "UV_REQUIRE_HASHES", "UV_NO_VERIFY_HASHES", "UV_VENV_SEED", "UV_LINK_MODE", "VIRTUAL_ENV",
})  # fmt: skip
_SET = {"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "GIT_TERMINAL_PROMPT": "0"}
# An index that does not answer is given up after one minute instead of two.
_UNLESS_SET = {
    "UV_HTTP_TIMEOUT": "20",
    "UV_HTTP_RETRIES": "2",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20",
}


class UvResult(NamedTuple):
    """`words` is uv's stderr without credentials; `output` its stdout."""

    code: int
    words: str
    output: str


def find_uv(environ: Mapping[str, str], guarded: Path | None = None) -> str:
    """Return the path of a uv that is new enough: the one on the PATH, else that of the wheel.

    Args:
        guarded: the folder of a project; a uv in it is not run, unless sgpu itself lies there.

    Raises:
        SgpuError: there is none, or all are too old.
    """
    old: list[str] = []
    for path in _candidates(environ, guarded):
        version = _version(path)
        if version is not None and version >= OLDEST:
            return path
        if version is not None:
            old.append(f"`{path}` is {version[0]}.{version[1]}")
    if old:
        raise SgpuError(
            f"declared environments need uv 0.8 or newer, and {', '.join(old)}",
            hint=_remedy(),
            code="uv_too_old",
        )
    raise SgpuError(
        "declared environments are resolved and built with uv, and there is none",
        hint=_remedy(),
        code="uv_missing",
    )


def run_uv(
    uv: str,
    arguments: Sequence[str],
    *,
    folder: Path,
    environ: Mapping[str, str],
    stdin_text: str = "",
    on_line: Callable[[str], None] = lambda _: None,
    pass_fds: Sequence[int] = (),
) -> UvResult:
    """Run uv and wait for it.

    Args:
        folder: the working folder, for relative paths and uv's own settings.
        environ: its variables, before ours are added.
        stdin_text: its standard input.
        on_line: called with each line of stderr.
        pass_fds: descriptors that uv inherits.

    Raises:
        SgpuError: it cannot be started.
    """
    variables = {name: value for name, value in environ.items() if name not in _UNSET}
    words: list[str] = []
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
        stdin.write(stdin_text.encode())
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                [uv, *arguments, "--color=never"],
                cwd=folder,
                env={**_UNLESS_SET, **variables, **_SET},
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        except OSError as error:
            raise SgpuError(
                f"`{uv}` cannot be started: {error.strerror}", hint=_remedy(), code="uv_missing"
            ) from error
        with process, _ended(process):
            for line in process.stderr or ():
                shown = without_credentials(line.rstrip())
                words.append(shown)
                on_line(shown)
        stdout.seek(0)
        output = stdout.read().decode(errors="replace")
    return UvResult(process.returncode, "\n".join(words), output)


def without_credentials(text: str) -> str:
    """Hide users and passwords of URLs, and tokens."""
    return mask(_USER.sub("***@", text))


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill uv and its children when we are interrupted: they have a session of their own."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()  # it writes no more
        raise


def _candidates(environ: Mapping[str, str], guarded: Path | None) -> Iterator[str]:
    on_path = shutil.which("uv", path=trusted_path(environ, guarded))
    if on_path is not None:
        yield on_path
    if importlib.util.find_spec("uv") is not None:
        import uv

        with contextlib.suppress(FileNotFoundError):
            yield os.fspath(uv.find_uv_bin())


def _remedy() -> str:
    return f"`{extra_command('env')}`, or install uv 0.8 or newer on the PATH"


def _version(path: str) -> tuple[int, int] | None:
    """`None` where the answer is not that of uv: a broken shim, or another program."""
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_WAIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stdout) if answer.returncode == 0 else None
    return (int(match[1]), int(match[2])) if match else None
