"""The words for what was not proposed."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.plan import Action
from sgpu_decl.model.proposal import Effect
from sgpu_decl.planner.effects import effect_differences

SHOWN = Effect(
    address=Address.run("a"),
    kind=Kind.RUN,
    backend="local",
    action=Action.CREATE,
    spec=Spec('{"args":{"lr":1},"gpus":1}'),
    code="c1",
    environment="e1",
    packages="p1",
)
CONTENTS = {
    "c1": {"a.py": "1", "b.py": "1", "gone.py": "1"},
    "c2": {"a.py": "2", "b.py": "1", "new.py": "1"},
    "p1": {"torch": "2.1", "numpy": "1.0"},
    "p2": {"torch": "2.2", "einops": "0.8"},
}


def differences(planned: Effect, contents: Mapping[str, Mapping[str, str]] = CONTENTS) -> list[str]:
    return effect_differences(SHOWN, planned, before=contents.get, after=contents.get)


@pytest.mark.parametrize(
    ("planned", "words"),
    [
        (SHOWN, []),
        (replace(SHOWN, action=Action.REPLACE), ["`create` was shown"]),
        (
            replace(SHOWN, destructive=True),
            ["it stops active attempts, which was not shown"],
        ),
        (
            replace(SHOWN, moved_from=Address.run("old")),
            ["it moves the history of `run.old`, which was not shown"],
        ),
        (replace(SHOWN, backend="ray"), ["backend `local` -> `ray`"]),
        (
            replace(SHOWN, spec=Spec('{"args":{"lr":2},"tags":{"a":"b"}}')),
            ['fields: `args.lr` 1 -> 2, `gpus` 1 -> (none), `tags.a` (none) -> "b"'],
        ),
        (replace(SHOWN, code="c2"), ["code: `a.py`, `gone.py` (gone), `new.py` (new)"]),
        (replace(SHOWN, code="unknown"), ["code: another one"]),
        (
            replace(SHOWN, environment="e2", packages="p2"),
            [
                "environment: `einops` (none) -> 0.8, `numpy` 1.0 -> (none), `torch` 2.1 -> 2.2",
            ],
        ),
        (
            replace(SHOWN, environment=None, packages=None),
            ["environment: `numpy` 1.0 -> (none), `torch` 2.1 -> (none)"],
        ),
        (replace(SHOWN, environment="e2"), ["environment: another one"]),
        (replace(SHOWN, drifted=('["paused",1,2]',)), ["changed on the platform: `paused`"]),
    ],
)
def test_each_kind_of_difference_has_its_words(planned: Effect, words: list[str]) -> None:
    assert differences(planned) == words


def test_long_values_and_many_files_are_cut() -> None:
    long = replace(SHOWN, spec=Spec(f'{{"args":{{"lr":"{"x" * 99}"}},"gpus":1}}'))
    (fields,) = differences(long)
    assert fields.endswith("…")
    assert len(fields) < 100
    many = {"c1": {}, "c2": {f"{at:02}.py": "1" for at in range(12)}}
    assert differences(replace(SHOWN, code="c2"), many) == [
        "code: `00.py` (new), `01.py` (new), `02.py` (new), `03.py` (new), `04.py` (new) and 7 more"
    ]
