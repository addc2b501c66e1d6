"""Every public call with wrong arguments: an error says what to write, and is never one of ours."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sgpu_decl
from sgpu_decl import compute
from sgpu_decl.api import Location, Patience, PlanOptions, Session
from sgpu_decl.errors import InvalidInput, SgpuError
from sgpu_decl.functions.running_call import DistributedFunctionCall

WRONG: list[Any] = [None, "", "a", b"a", 3, -1, 1.5, True, ["a"], [3], {"a": 1}, {3}, object(), len]
LOCATION: Any = Location  # for calls that a type checker refuses
RUN = "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    (tmp_path / "run.yaml").write_text(RUN)
    monkeypatch.chdir(tmp_path)
    with Session.open(Location(project=tmp_path)) as opened:
        yield opened


def public_calls(session: Session) -> Iterator[tuple[str, Callable[..., object]]]:
    def decorated() -> None: ...

    owners = {
        "Session": session, "runs": session.runs, "jobs": session.jobs, "state": session.state,
        "doctor": session.doctor, "DistributedFunctionCall": DistributedFunctionCall,
        "function": sgpu_decl.distributed(decorated),
    }  # fmt: skip
    for owner, value in owners.items():
        for name in dir(type(value) if owner != "DistributedFunctionCall" else value):
            if not (name.startswith("_") or isinstance(getattr(type(value), name, None), property)):
                call = getattr(value, name)
                if inspect.ismethod(call):
                    yield f"{owner}.{name}", call
    for made in (Location, PlanOptions, Patience, sgpu_decl.distributed, sgpu_decl.ray_launch):
        yield made.__name__, made
    yield "read_gpu_type", compute.read_gpu_type


def attempts_of(call: Callable[..., object]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """What has to be given is each wrong value, alone and with each other parameter."""
    parameters = inspect.signature(call).parameters.values()
    placed = [
        one for one in parameters
        if one.kind is one.VAR_POSITIONAL
        or (one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty)
    ]  # fmt: skip
    named = [one for one in parameters if one not in placed and one.kind is not one.VAR_KEYWORD]
    for wrong in WRONG:
        args = (wrong,) * len(placed)
        needed = {one.name: wrong for one in named if one.default is one.empty}
        yield args, needed
        for one in named:
            yield args, {**needed, one.name: wrong}


def test_no_wrong_argument_ends_in_an_error_of_ours(session: Session) -> None:
    faults = []
    for name, call in public_calls(session):
        if name.endswith(("close", "for_call", "for_text")):
            continue
        for args, options in attempts_of(call):
            try:
                answer = call(*args, **options)
                if inspect.isgenerator(answer) and not name.startswith("doctor"):
                    next(answer, None)
            except SgpuError:
                continue
            except Exception as error:  # noqa: BLE001  all others are what is looked for
                faults.append(f"{name}{args}{options}: {error!r}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda session: session.runs.wait("a"), "write `refs=['a']`"),
        (lambda session: session.runs.describe("a"), "write `refs=['a']`"),
        (lambda session: session.runs.table("a"), "write `refs=['a']`"),
        (lambda session: session.runs.logs("a", ranks=0), "write `ranks=[0]`"),
        (lambda session: session.gc(only="a#1"), "write `only=['a#1']`"),
        (lambda session: session.plan("a"), 'write `PlanOptions(rerun=["train"])`'),
        (lambda session: session.plan(PlanOptions(rerun="a")), "write `rerun=['a']`"),
        (lambda session: session.plan(PlanOptions(select="a*")), "write `select=['a*']`"),
        (lambda session: session.runs.status(None), "pass what `session.runs.find` returned, or a"),
        (lambda session: session.apply(None), "pass what `Session.plan` returned, as it is"),
        (lambda session: type(session).open("run.yaml"), 'write `Location(file="run.yaml")`'),
        (lambda session: LOCATION("run.yaml"), 'write `Location(file="run.yaml")`'),
        (lambda session: LOCATION(variables="lr=1"), 'write `variables={"NAME": "TEXT"}`'),
        (lambda session: Location(variable_files="a.yml"), "write `variable_files=['a.yml']`"),
        (lambda session: type(session).open(patience=60), "write `Patience(seconds=60)`"),
    ],
)
def test_a_wrong_argument_is_told_what_to_write(
    session: Session, call: Callable[[Any], object], hint: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        call(session)
    assert isinstance(refused.value, TypeError)
    assert refused.value.code == "wrong_parameter"
    assert (refused.value.hint or "").startswith(hint)


def test_texts_do_for_paths_and_names_and_lists_for_tuples(session: Session) -> None:
    location = Location(
        file="run.yaml",
        project=".",
        variable_files=["a.yml"],
        variables={"lr": "1"},
        sets=[("a", "b")],
    )
    assert (location.file, location.project) == (Path("run.yaml"), Path())
    assert location.variable_files == (Path("a.yml"),)
    assert (location.variables, location.sets) == ((("lr", "1"),), (("a", "b"),))
    assert PlanOptions(rerun=["a"]) == PlanOptions(rerun=("a",))
    (change,) = session.plan(PlanOptions(rerun=["a"])).plan.changes
    assert str(change.address) == "run.a"
    prepared = session.plan()
    session.save(prepared, "a.plan")
    opened, saved = Session.open_saved("a.plan")
    with opened:
        assert saved.plan.changes == prepared.plan.changes


def test_a_policy_that_does_not_exist_is_refused(session: Session) -> None:
    with pytest.raises(SgpuError, match="`on_active` is one of"):
        session.plan(PlanOptions(on_active="kill"))
