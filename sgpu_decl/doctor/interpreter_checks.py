"""The Python that runs sgpu, what is installed in it as sgpu, and those that ranks of the project's
runs use."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.distribution import FORMER_NAME, NAME, SOURCE, pip_command
from sgpu_decl.environments.interpreters import interpreter_of
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.doctor_finding import Finding, fail, few, ok, warn
from sgpu_decl.planning.location import absolute
from sgpu_decl.planning.project import Project

_CHECK = "interpreter"


def check_interpreters(runs: tuple[LoadedRun, ...], project: Project) -> Iterator[Finding]:
    yield from _former_names()
    own = f"Python {platform.python_version()}, `{sys.executable}`"
    if not runs:
        yield ok(_CHECK, f"{own}; ranks use it unless a run says otherwise")
        return
    yield ok(_CHECK, f"{own}, runs sgpu")
    for python, users in _by_python(runs).items():
        addresses = few([str(user.address) for user in users])
        interpreter = interpreter_of(python, yaml_folder(project), project.pythons)
        if isinstance(interpreter, Interpreter):
            version = f"Python {interpreter.version}, " if interpreter.version else ""
            yield ok(
                _CHECK, f"{version}`{interpreter.executable}`, is for the ranks of {addresses}"
            )
        else:
            diagnostic = interpreter.diagnostic(users[0].places.get("env.python"))
            yield fail(_CHECK, f"{addresses}: {diagnostic.summary}", diagnostic.hint)
    if declared := [str(run.address) for run in runs if run.config.env.origins]:
        yield ok(_CHECK, f"a declared environment is for the ranks of {few(declared)}")


def _former_names() -> Iterator[Finding]:
    """Warnings for distributions with the former name: sgpu itself, or the other project, which
    brings a command of the same name."""
    for found in distributions(name=FORMER_NAME):
        if any(script.value.startswith("sgpu_decl.") for script in found.entry_points):
            text = (
                f"sgpu is installed under its former name `{FORMER_NAME}`, which belongs to "
                "another project"
            )
        else:
            text = f"`{FORMER_NAME}` {found.version} is another project, with a command `sgpu`"
        yield warn(
            "distribution",
            f"{text}: this one is `{NAME}`",
            f"`{pip_command('uninstall', FORMER_NAME)}`, and then, since they share files, "
            f"`{pip_command('install', SOURCE)}` in the checkout of sgpu",
        )


def rank_interpreters(runs: tuple[LoadedRun, ...], project: Project) -> tuple[str, ...]:
    """The executables that ranks use without a declared environment; that of sgpu if there are no
    runs."""
    interpreters = (
        interpreter_of(item, yaml_folder(project), project.pythons) for item in _by_python(runs)
    )
    executables = [item.executable for item in interpreters if isinstance(item, Interpreter)]
    return tuple(dict.fromkeys(executables)) if runs else (sys.executable,)


def yaml_folder(project: Project) -> Path:
    """The folder that relative paths in the project's file start from."""
    file = project.file
    return project.root if file is None else absolute(file).parent


def _by_python(runs: tuple[LoadedRun, ...]) -> dict[str | None, list[LoadedRun]]:
    """The runs without a declared environment, by their `env.python`."""
    users: dict[str | None, list[LoadedRun]] = {}
    for run in runs:
        if not run.config.env.origins:
            users.setdefault(run.config.env.python, []).append(run)
    return users
