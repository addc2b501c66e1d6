"""Install a version of `salutation`, a package of this example, into the Python that runs it:

.venv/bin/python install.py 1.0
"""

import shutil
import sys
import sysconfig
from pathlib import Path

MODULE = """\
VERSION = "{version}"


def hello(name: str) -> str:
    return f"{word}, {{name}}!"
"""
WORDS = {"1.0": "hello", "2.0": "good morning"}


def main(version: str) -> None:
    site = Path(sysconfig.get_path("purelib"))
    for old in site.glob("salutation*"):
        shutil.rmtree(old)
    package = site / "salutation"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE.format(version=version, word=WORDS[version]))
    info = site / f"salutation-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: salutation\nVersion: {version}\n")


if __name__ == "__main__":
    main(sys.argv[1])
