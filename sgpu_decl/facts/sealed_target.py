"""Whether a target takes sealed plans alone. The project's file says so at apply; a plan is not
asked, because anybody may have written it."""

import os
from pathlib import Path

from sgpu_decl.config.sealed_reader import read_sealed
from sgpu_decl.facts.checkout import Checkout
from sgpu_decl.facts.file_kind import YAML_SUFFIXES, holds_plan
from sgpu_decl.facts.included_files import FileReader
from sgpu_decl.facts.location import ROOT_FILE, Opened, absolute
from sgpu_decl.facts.project_file import invalid_file, read_bytes

__all__ = ["is_sealed"]


def is_sealed(opened: Opened) -> bool:
    """Whether a file of the project says `sealed: true` for the target.

    Raises:
        InvalidInput: a file that may say so cannot be parsed.
    """
    files = {absolute(file) for file in (opened.root / ROOT_FILE, opened.file) if file is not None}
    return any(_says_sealed(file, opened) for file in sorted(files))


def _says_sealed(file: Path, opened: Opened) -> bool:
    if file.suffix not in YAML_SUFFIXES or not file.is_file() or holds_plan(file):
        return False

    checkout, shown = Checkout(opened.root), os.path.relpath(file)
    sealed, findings = read_sealed(
        read_bytes(file),
        shown,
        target=opened.target,
        environ=os.environ,
        git=lambda: checkout.facts,
        read_included=FileReader(file, shown),
    )
    if sealed is None:
        raise invalid_file(shown, findings)
    return sealed
