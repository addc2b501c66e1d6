"""Say which version of `salutation` the ranks have. The first turn holds the line until `go` is
there, so that there is time to change the environment before the ranks of the second start."""

import os
import time
from pathlib import Path

import salutation


def main(turn: int) -> dict:
    go = Path(os.environ["SGPU_PROJECT_DIR"]) / "go"
    while turn == 1 and not go.exists():
        time.sleep(0.05)
    print(salutation.hello(f"rank {os.environ['RANK']}"))
    return {"version": salutation.VERSION, "from": salutation.__file__}
