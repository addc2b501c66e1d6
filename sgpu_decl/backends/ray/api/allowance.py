"""The seconds that answers to a command may take together, whoever of it asks."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Allowance", "counted", "is_counted"]

_counted: ContextVar[bool] = ContextVar("counted", default=False)


class Allowance:
    """The `seconds` that requests to one dashboard may take together. Only requests count that are
    made where `is_counted`: uploads, and what is brought here, may take longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.left = seconds

    def renew(self) -> None:
        self.left = self.seconds


@contextmanager
def counted(*, on: bool = True) -> Iterator[None]:
    """Have requests that are made in this block count, or not."""
    before = _counted.set(on)
    try:
        yield
    finally:
        _counted.reset(before)


def is_counted() -> bool:
    return _counted.get()
