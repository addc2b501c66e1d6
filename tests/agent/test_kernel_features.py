"""What the agent finds out about the kernel, on this machine and behind a seccomp filter."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from sgpu_decl.agent.system.kernel_features import kernel_features
from sgpu_decl.testing.refused_calls import REFUSABLE

_ASK = """
import json, os
from sgpu_decl.agent.system.kernel_features import kernel_features, shortcomings
found = kernel_features()
print(json.dumps([found, shortcomings(), sorted(os.listdir(os.environ["TMPDIR"]))]))
"""


@pytest.mark.parametrize("word", ["ENOSYS", "EPERM"])
@pytest.mark.parametrize("refused", [*((name,) for name in REFUSABLE), REFUSABLE], ids="+".join)
def test_each_refused_call_is_named_with_its_errno(
    word: str, refused: Sequence[str], tmp_path: os.PathLike[str]
) -> None:
    argv = [sys.executable, "-m", "sgpu_decl.testing.refused_calls", word, ",".join(refused)]
    done = subprocess.run(
        [*argv, "--", sys.executable, "-c", _ASK],
        env={**os.environ, "TMPDIR": os.fspath(tmp_path)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found, lacking, left = json.loads(done.stdout)
    expected = kernel_features(os.fspath(tmp_path)) | dict.fromkeys(refused, word)
    if "fallocate" in refused:
        expected["punch_hole"] = word
    assert found == expected
    assert {name: code for name, code, _ in lacking}.items() <= found.items()
    assert left == []
