"""Says which line was found, as the notebook does."""

import argparse
import json
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
folder = Path(parser.parse_args().data)

model = json.loads((folder / "model.json").read_text())
day = json.loads((folder / "samples.json").read_text())["day"]
print(f"{day}: y = {model['slope']} x + {model['start']}")
