"""The fields of a new run, which are made when they are looked at."""

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.plan import FieldChange, FieldEffect
from sgpu_decl.planner.field_changes import NewFields, new_values

SPEC = Spec('{"args":{"n":1},"gpus":2}')
PLACES = {"args": Place("run.yaml", 3, 1), "gpus": Place("run.yaml", 2, 7)}


def field(path: str, value: int, place: Place) -> FieldChange:
    return FieldChange(
        path=path,
        before=None,
        after=value,
        effect=FieldEffect.NEW_ATTEMPT,
        origin=place,
        added=True,
    )


def test_they_are_the_fields_of_the_run_with_the_nearest_places() -> None:
    fields = NewFields(SPEC, PLACES)
    made = (field("args.n", 1, PLACES["args"]), field("gpus", 2, PLACES["gpus"]))
    assert (tuple(fields), len(fields), fields[-1]) == (made, 2, made[-1])
    assert list(new_values(fields)) == list(new_values(made)) == [("args.n", 1), ("gpus", 2)]


def test_they_equal_what_a_saved_plan_holds() -> None:
    fields = NewFields(SPEC, PLACES)
    assert fields == tuple(fields)
    assert tuple(fields) == fields
    assert hash(fields) == hash(tuple(fields))
    assert fields != NewFields(SPEC, {})
    assert fields != NewFields(Spec('{"gpus":2}'), PLACES)
