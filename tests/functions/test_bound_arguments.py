from collections.abc import Callable

import pytest

from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_arguments import ArgumentMismatch, bind


def plain(a: int, b: int = 2, *rest: int, key: int = 3, **more: int) -> None: ...


def seeded(rank: int, world_size: int, lr: float = 0.1) -> None: ...


def positional(rank: int, /) -> None: ...


def test_every_argument_has_its_name() -> None:
    bound = bind(plain, (1, 5, 6, 7), {"key": 8, "other": 9})
    assert bound.by_name == {"a": 1, "b": 5, "rest": (6, 7), "key": 8, "other": 9}
    assert bound.fill == ()


def test_rank_and_world_size_are_filled_in_where_they_are_required_and_missing() -> None:
    assert bind(seeded, (), {}).fill == ("rank", "world_size")
    assert bind(seeded, (0,), {}).fill == ("world_size",)
    assert bind(seeded, (0, 1), {}).fill == ()


def test_a_default_is_not_filled_in() -> None:
    def function(rank: int = 5) -> None: ...

    assert bind(function, (), {}).fill == ()


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "words"),
    [
        (plain, (), {}, "missing `a`"),
        (plain, (1,), {"a": 2}, "multiple values for argument 'a'"),
        (seeded, (1, 2, 3, 4), {}, "too many positional"),
        (seeded, (), {"epochs": 3}, "epochs"),
        (positional, (), {}, "missing `rank`"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_signature(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], words: str
) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        bind(function, args, kwargs)
    assert isinstance(caught.value, InvalidInput)
    assert function.__name__ + "(" in str(caught.value.hint)


def test_the_driver_of_a_cluster_has_no_rank_to_fill_in() -> None:
    def sweep(rank: int) -> int:
        return rank

    with pytest.raises(ArgumentMismatch, match="missing `rank`"):
        bind(sweep, (), {}, fillable=())
