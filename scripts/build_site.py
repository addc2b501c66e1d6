"""Build the site of the documentation: `build_site.py [FOLDER]`, by default build/site.

mkdocs reads one folder, and the pages link to files beside docs/. So that folder holds links to all
of them, laid out as here: what resolves on GitHub resolves on the site.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN = (
    "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
    "docs", "examples", "schemas", "sgpu_decl/model/assumptions.yaml",
)  # fmt: skip


def main() -> int:
    pages = ROOT / "build" / "pages"
    for name in SHOWN:
        link = pages / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(ROOT / name)
    folder = str(ROOT / "build" / "site" if len(sys.argv) == 1 else Path(sys.argv[1]).resolve())
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # a note on its successor
    done = subprocess.run(mkdocs, cwd=ROOT, env=quiet, check=False)
    if done.returncode:
        return done.returncode
    print(f"the site: {folder}/index.html")  # noqa: T201
    print(f"with search: python3 -m http.server --directory {folder}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
