"""Makes the samples of a day: points near a line."""

import argparse
import json
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--day", required=True)
given = parser.parse_args()

dice = random.Random(given.day)
samples = [(x, 3 * x + 1 + dice.uniform(-0.1, 0.1)) for x in range(1000)]
folder = Path(given.data)
folder.mkdir(parents=True, exist_ok=True)
(folder / "samples.json").write_text(json.dumps({"day": given.day, "samples": samples}))
print(f"{len(samples)} samples of {given.day}")
