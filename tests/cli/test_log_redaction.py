"""What ranks print of secrets: masked where sgpu shows it, and with `logs.redact` on disk too."""

from pathlib import Path

import pytest

from tests.cli.conftest import Shell

RUN = """\
name: train
gpus: 2
type: CPU
entrypoint: train.py
env: {secrets: {TOKEN: file:token.txt, KEY: file:key.pem}}
mlflow: {enabled: false}
"""
TOKEN = "s3cr3t-Token/with+signs!"
KEY = "-----BEGIN KEY-----\nabcdefgh0123\nijklmnop4567\n-----END KEY-----"
PRINTS = """\
import base64, os, sys
from urllib.parse import quote
token, key = os.environ["TOKEN"], os.environ["KEY"]
print("plain", token, file=sys.stderr)
print("base64", base64.b64encode(token.encode()).decode())
print("quoted", quote(token, safe=""))
print("split ", end="")
for letter in token:
    print(letter, end="")
print(" joined")
sys.stdout.buffer.write(b"bytes " + token.encode() + b"\\n")
print(key)
print("told of it", "SGPU_REDACT" in os.environ)
sys.stdout.write("at the end " + token[:5])
"""
ON_ONES_OWN = """\
import os, subprocess
os.write(1, os.environ["TOKEN"].encode() + b"\\n")
subprocess.run(["sh", "-c", 'echo "$TOKEN"'])
"""


def logs(sgpu: Shell, script: str, more: str = "") -> list[str]:
    sgpu.write("run.yaml", RUN + more)
    sgpu.write("train.py", script)
    sgpu.write("token.txt", TOKEN + "\n")
    sgpu.write("key.pem", KEY + "\n")
    applied = sgpu.done("apply", "-y")
    (run,) = sgpu.data("status")["runs"]
    ranks = Path(run["links"]["folder"]) / "ranks"
    for shown in (applied.out, applied.err, sgpu.here("logs", "train", "--rank", "all").out):
        assert TOKEN not in shown
        assert "ijklmnop4567" not in shown
    return [
        (ranks / f"{rank}/0/{name}.log").read_text()
        for rank in (0, 1)
        for name in ("stdout", "stderr")
    ]


@pytest.mark.parametrize("warm", ["off", "[decimal]"])
def test_with_redact_a_value_is_masked_on_disk(sgpu: Shell, warm: str) -> None:
    more = f"logs: {{redact: true}}\nlaunch: {{warm: {warm}}}\n"
    first, errors, *others = logs(sgpu, PRINTS, more)
    assert first.splitlines() == [
        "base64 ***",
        "quoted ***",
        "split *** joined",
        "bytes ***",
        "***", "***", "***", "***",
        "told of it False",
        "at the end s3cr3",
    ]  # fmt: skip
    assert errors == "plain ***\n"
    assert others == [first, errors]


def test_without_redact_a_value_is_in_clear_on_disk(sgpu: Shell) -> None:
    first, errors, *_ = logs(sgpu, PRINTS)
    assert errors == f"plain {TOKEN}\n"
    assert KEY in first


def test_what_goes_past_python_is_masked_in_what_is_shown_alone(sgpu: Shell) -> None:
    first, *_ = logs(sgpu, ON_ONES_OWN, "logs: {redact: true}\n")
    assert first == f"{TOKEN}\n{TOKEN}\n"
