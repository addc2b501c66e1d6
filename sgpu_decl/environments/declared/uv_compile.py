"""Has uv write a `pylock.toml`: of requirements, or of the `uv.lock` of a project."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from sgpu_decl.environments.declared.interpreter_lock import lock_of
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.declared.requirement_inputs import RequirementInputs
from sgpu_decl.environments.declared.resolution_cache import Resolution, UvWarning
from sgpu_decl.environments.declared.uv import run_uv
from sgpu_decl.environments.declared.uv_errors import (
    UvReport,
    needs_build,
    read_report,
    read_warnings,
    untrusted_build,
)
from sgpu_decl.environments.interpreters import LocalPython
from sgpu_decl.environments.package_lists.packages import normalise
from sgpu_decl.scratch_folders import scratch_folder

_WORD = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")
_YANKED = re.compile(r"is yanked\b")


class UvFailure(Exception):
    """uv failed; `names` are words of its report that may be packages."""

    def __init__(self, report: UvReport) -> None:
        super().__init__(report.summary)
        self.report = report
        self.names = names_in(report.detail)


def names_in(text: str) -> frozenset[str]:
    return frozenset(normalise(word) for word in _WORD.findall(text))


def compile_requirements(
    inputs: RequirementInputs,
    *,
    uv: str,
    python: LocalPython,
    folder: Path,
    environ: Mapping[str, str],
    constraints: Sequence[str],
    previous: Lock | None,
    upgrade: bool,
    builds: bool,
) -> Resolution:
    """Resolve requirements.

    Args:
        folder: the base of relative paths.
        constraints: requirement lines that limit versions and install nothing.
        previous: the lock whose versions are preferred.
        upgrade: ask the index again, without uv's cache.
        builds: whether uv may run the code of packages that have no wheel and no static metadata.
            `--no-build` is without effect for packages that `--no-binary` names, so the caller
            looks for such settings.

    Raises:
        UvFailure: uv found no solution.
        UnusableLock: its answer cannot be installed exactly.
        SgpuError: uv cannot be started.
    """
    if not inputs.requirements:
        return Resolution(Lock(python=python.python, entries=(), indexes=tuple(inputs.indexes)))
    with scratch_folder("requirements") as scratch:
        output = scratch / "pylock.toml"
        arguments = ["pip", "compile", "--generate-hashes", "--no-header", "--no-annotate"]
        arguments += ["--format", "pylock.toml", "--output-file", os.fspath(output)]
        arguments += ["--python", python.executable]
        arguments += ["-"] if builds else ["--no-build", "-"]
        if bounds := [*inputs.bounds, *constraints]:
            (scratch / "constraints.txt").write_text("\n".join(bounds))
            arguments += ["--constraints", os.fspath(scratch / "constraints.txt")]
        if inputs.hashed:
            arguments.append("--no-deps")
        if upgrade:
            arguments.append("--upgrade")
        elif previous is not None:
            output.write_text(previous.to_toml(folder))
        lines = "\n".join(inputs.given)
        answer = run_uv(uv, arguments, folder=folder, environ=environ, stdin_text=lines)
        if answer.code != 0 and not builds and (unbuilt := needs_build(answer.words)):
            raise UvFailure(untrusted_build(unbuilt, read_report(answer.words, python="").detail))
        if answer.code != 0:
            raise UvFailure(read_report(answer.words, python=python.python.minor))
        trusted: dict[str, set[str]] | None = {} if inputs.hashed else None
        if trusted is not None:
            for item in inputs.requirements:
                trusted.setdefault(item.name or "", set()).update(item.hashes)
        lock = lock_of(
            tomllib.loads(output.read_text()),
            python.python,
            source=scratch,
            folder=folder,
            trusted=trusted,
        )
    complete = Lock(python=lock.python, entries=lock.entries, indexes=tuple(inputs.indexes))
    return Resolution(complete, _warned(answer.words))


def export_project(
    *, uv: str, python: LocalPython, project: Path, folder: Path, environ: Mapping[str, str]
) -> Resolution:
    """Have uv export the `uv.lock` of a project, without its groups and without the project itself,
    whose code travels with each run.

    Raises:
        UvFailure, UnusableLock, SgpuError: as `compile_requirements`.
    """
    arguments = ["export", "--frozen", "--no-default-groups", "--no-emit-project", "--no-header"]
    arguments += ["--format", "pylock.toml", "--python", python.executable]
    answer = run_uv(uv, arguments, folder=project, environ=environ)
    if answer.code != 0:
        raise UvFailure(read_report(answer.words, python=python.python.minor))
    data = tomllib.loads(answer.output)
    lock = lock_of(data, python.python, source=project, folder=folder)
    return Resolution(lock, _warned(answer.words))


def _warned(words: str) -> tuple[UvWarning, ...]:
    return tuple(
        UvWarning(
            "yanked_version" if _YANKED.search(text) else "uv_warning",
            text[:1].lower() + text[1:],
            tuple(sorted(names_in(text))),
        )
        for text in read_warnings(words)
    )
