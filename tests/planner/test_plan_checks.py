from typing import Any

import pytest

from sgpu_decl.diagnostics.place import Place

SPEC = {"gpus": 2, "type": "A10", "entrypoint": "train.py"}


@pytest.mark.parametrize(
    ("added", "path"),
    [
        ({"ray": {}}, "ray"),
        ({"ray": True}, "ray"),
    ],
)
def test_what_is_not_there_yet_is_refused_with_a_way_out(
    world: Any, added: dict[str, Any], path: str
) -> None:
    made = world.want(spec={**SPEC, **added}, places={path: Place("run.yaml", 4, 1)}).plan()
    (check,) = made.checks
    assert check.code == "not_yet"
    assert f"`{path}`" in check.summary
    assert check.hint
    assert check.place == Place("run.yaml", 4, 1)
    assert not made.applyable


@pytest.mark.parametrize(
    "added", [{"ray": False}, {"env": {"snapshot": False}}, {"args": {"ray": 1}}]
)
def test_what_is_switched_off_is_fine(world: Any, added: dict[str, Any]) -> None:
    assert world.want(spec={**SPEC, **added}).plan().checks == ()


@pytest.mark.parametrize("backend", ["ray"])
def test_a_backend_that_is_not_there_yet_is_refused(world: Any, backend: str) -> None:
    (check,) = world.want(backend=backend).plan().checks
    assert check.code == "backend_not_yet"
    assert "`local`" in check.hint


@pytest.mark.parametrize("field", ["pool", "priority", "budget", "image", "permissions"])
def test_a_field_that_the_backend_lacks_is_refused(world: Any, field: str) -> None:
    made = world.want(spec={**SPEC, field: "x"}, places={field: Place("f", 2, 1)}).plan()
    assert [(check.code, check.place) for check in made.checks] == [
        ("unsupported_field", Place("f", 2, 1))
    ]
