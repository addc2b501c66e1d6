"""Reading a text with nothing around it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.project_files import Included, IncludedFile, ReadIncluded
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from tests.reading import clean, read


def outcome(
    text: str | bytes, file: str = "run.yaml", target: str | None = None, **options: object
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    return read(text, file, target=target, **options)  # type: ignore[arg-type]


def including(texts: Mapping[str, str]) -> ReadIncluded:
    """The files of `include`, by their paths, as if its patterns matched all of them."""
    files = (
        IncludedFile(path=path, file=path, content=text.encode()) for path, text in texts.items()
    )
    included = Included(files=tuple(files))
    return lambda _: included


@pytest.fixture(scope="session")
def good() -> Callable[..., Loaded]:
    """Reads what must be right."""

    def read_good(*arguments: str, **options: Any) -> Loaded:
        return clean(outcome(*arguments, **options))

    return read_good


@pytest.fixture(scope="session")
def bad() -> Callable[..., tuple[Diagnostic, ...]]:
    """Reads what must be wrong."""

    def read_bad(*arguments: str, **options: Any) -> tuple[Diagnostic, ...]:
        loaded, found = outcome(*arguments, **options)
        assert loaded is None
        assert found
        # a file of ours with a mistake is never taken for that of another tool
        assert "other_tool_file" not in {one.code for one in found}
        return found

    return read_bad
