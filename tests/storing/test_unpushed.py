"""What is kept of a state that could not be reached."""

from pathlib import Path

import pytest

from sgpu_decl.storing.journal.unpushed import Unpushed


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"v": 1, "lineage": "lin"}'])
def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, content: str) -> None:
    kept = Unpushed(tmp_path)
    file = kept.keep("lin", 7, [{"op": "abandon"}])
    file.with_name("lin-6.json").write_text(content)
    assert list(kept.of("lin")) == [(file, [{"op": "abandon"}])]
    assert list(kept.of("other")) == []
