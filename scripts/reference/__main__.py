"""Write docs/reference/, and docs/failures.md beside it, from the models, the commands and the tables here and in the
agent: `python scripts/reference`."""

import sys
from pathlib import Path

import commands
import failures
import fields
import json_answers
import variables

PAGES = {
    "commands.md": commands.page,
    "fields.md": fields.page,
    "json.md": json_answers.page,
    "variables.md": variables.page,
}


def main() -> int:
    default = Path(__file__).resolve().parents[2] / "docs" / "reference"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    for name, page in {**PAGES, "../failures.md": failures.page}.items():
        note = f"<!-- Written by scripts/reference/{page.__module__}.py. -->\n"
        (folder / name).write_text(note + page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
