"""What the programs of this folder have in common: they take `--max_steps` steps, each with a pause
of about `--pause` seconds, and leave the moment of the last one in the file `--ended`."""

import argparse
import random
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--max_steps", type=int)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--ended", type=Path)
given = parser.parse_args()
uneven = random.Random(7)


def step() -> None:
    time.sleep(given.pause * uneven.uniform(0.5, 1.5))


def end() -> None:
    if given.ended is not None:
        given.ended.write_text(repr(time.monotonic()))
