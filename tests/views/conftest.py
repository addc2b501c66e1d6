"""Golden files: `SGPU_REGEN=1 pytest tests/views` writes them anew; read them in the diff."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import check_golden

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    return lambda name, text: check_golden(GOLDEN / name, text)
