"""What a command reads of the state does not grow with the number of attempts and runs: a read for
each of them makes a command on thousands of attempts quadratic."""

import copy
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.storing.stores import DATABRICKS, FOLDER, OBJECT, POSTGRES, SharedPlace
from tests.cli.conftest import Shell
from tests.cli.test_shared_state import object_login, where
from tests.faulty_proxy import faulty_proxy
from tests.shared_places import new_place
from tests.workspace_login import login

LOCAL = "local"
RUNS = """\
runs:
  hello: {gpus: 1, type: CPU, command: [echo, hello], mlflow: {enabled: false}}
  sweep:
    gpus: 1
    type: CPU
    command: "true ${matrix.n}"
    matrix: {n: [CELLS]}
    mlflow: {enabled: false}
"""
COMMANDS = (
    ("show", "hello"),
    ("wait", "sweep"),
    ("show", "hello#1"),
    ("show", "sweep"),
    ("diff", "hello#1", "hello#3"),
    ("results", "sweep"),
    ("results", "sweep#1"),
    ("logs", "sweep"),
    ("fetch", "sweep"),
    ("status",),
    ("status", "sweep#1"),
    ("cancel", "sweep#1"),
    ("state", "list"),
    ("state", "show", "hello"),
    ("plan",),
    ("gc", "--dry-run"),
    ("gc", "-y"),
)
FEW, MANY = 4, 12


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that is asked of SQLite: a state of this machine, or the copy of one that is shared."""
    asked: list[str] = []
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return asked


def test_no_look_reads_the_state_once_for_each_attempt(
    sgpu: Shell, tmp_path: Path, statements: list[str]
) -> None:
    few, many = (read(sgpu, tmp_path, number, statements, COMMANDS[:3]) for number in (FEW, MANY))
    assert many == few


@pytest.fixture
def requests(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[SharedPlace], tuple[SharedPlace, list[Any]]]]:
    """Gives a place as it is to be reached, and all that is asked of its server from then on."""
    with ExitStack() as running:

        def watched(place: SharedPlace) -> tuple[SharedPlace, list[Any]]:
            if place.kind == OBJECT:
                proxy = running.enter_context(faulty_proxy(place.endpoint or ""))
                return replace(place, endpoint=proxy.url), proxy.requests
            asked: list[Any] = []
            if place.kind == POSTGRES:
                import psycopg

                execute = psycopg.Cursor.execute

                def counted(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
                    asked.append(query)
                    return execute(cursor, query, *arguments, **options)

                monkeypatch.setattr(psycopg.Cursor, "execute", counted)
            return place, asked

        yield watched


@pytest.mark.expensive
@pytest.mark.parametrize("kind", [LOCAL, FOLDER, POSTGRES, DATABRICKS, OBJECT])
def test_no_command_reads_the_state_once_for_each_attempt_or_run(
    kind: str,
    request: pytest.FixtureRequest,
    sgpu: Shell,
    tmp_path: Path,
    statements: list[str],
    requests: Callable[[SharedPlace], tuple[SharedPlace, list[Any]]],
) -> None:
    state, asked = "", list[Any]()
    if kind != LOCAL:
        place, asked = requests(new_place(request, kind, tmp_path))
        state = f"state: {{kind: {place.kind}, {where(place)}}}\n"
    few, many = (
        read(sgpu, tmp_path, number, statements, COMMANDS, state, asked) for number in (FEW, MANY)
    )
    # A command that takes long asks its server a few times more, as it keeps its lock.
    asked_more = {words: one[1] - few[words][1] for words, one in many.items()}
    assert {words: more for words, more in asked_more.items() if more >= MANY - FEW} == {}
    # A copy of a state that is shared has a few entries more to look at.
    grown = {words: (few[words][0], one[0]) for words, one in many.items()}
    assert {words: one for words, one in grown.items() if one[1] > 1.1 * one[0]} == {}


def read(
    sgpu: Shell,
    above: Path,
    number: int,
    statements: list[str],
    commands: Sequence[tuple[str, ...]],
    state: str = "",
    requests: list[Any] | None = None,
) -> dict[str, tuple[int, int]]:
    """How often each command asks the state on this machine, and its server, in a project with so
    many attempts and cells."""
    requests = [] if requests is None else requests
    folder = above / str(number)
    folder.mkdir()
    own = {"XDG_DATA_HOME": str(folder / "data")}  # gc asks the states of other projects, too
    shell = replace(sgpu, folder=folder, environ=sgpu.environ | login() | object_login() | own)
    project = f"project: {{name: p{number}}}\n{state}{RUNS}"
    shell.write("sgpu.yml", project.replace("CELLS", "0"))
    shell.done("apply", "-y")
    grown(shell, number)
    shell.write("sgpu.yml", project.replace("CELLS", ", ".join(map(str, range(number)))))
    shell.here("status")  # what only the first look does
    counts = {}
    for words in commands:
        statements.clear()
        requests.clear()
        assert shell.here(*words).code in (0, 1, 5)
        counts[" ".join(words)] = len(statements), len(requests)
    return counts


def grown(sgpu: Shell, number: int) -> None:
    """Give `hello` that many attempts, and `sweep` that many cells of two attempts."""
    state = json.loads(sgpu.here("state", "pull").out)
    resources = []
    for resource in state["resources"]:
        if resource["address"] == "run.hello":
            resources.append(with_attempts(resource, number))
            continue
        for cell in range(number):
            one = copy.deepcopy(resource)
            one["address"] = f'run.sweep["n={cell}"]'
            resources.append(with_attempts(one, 2))
    state["resources"] = resources
    sgpu.write("s.json", json.dumps(state))
    sgpu.done("state", "push", "s.json")


def with_attempts(resource: dict[str, Any], number: int) -> dict[str, Any]:
    (first,) = resource["attempts"]
    attempts = []
    for at in range(1, number + 1):
        one = copy.deepcopy(first)
        one["attempt"] = at
        one["token"] = f"{resource['address'][-12:]}-{at}".replace('"', "")
        attempts.append(one)
    return resource | {"attempts": attempts}
