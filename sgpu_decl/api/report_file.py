"""The file of a report. An older report is replaced, and nothing else."""

from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.attempt_report import REPORT_MARK
from sgpu_decl.system_errors import error_text

__all__ = ["refuse_other_file", "write_report"]


def refuse_other_file(path: Path) -> None:
    """Return where a report may be written: where nothing is, an empty file, or an older report.

    Raises:
        SgpuError: a file is there that somebody may need.
    """
    try:
        with path.open("rb") as file:
            head = file.read(1000)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(path, error) from None
    if head and REPORT_MARK.encode() not in head:
        raise SgpuError(
            f"`{path}` exists and is no report: it is not overwritten",
            hint="give `--out` another name, such as `report.html`; or move that file away",
            code="exists",
        )


def write_report(path: Path, page: str) -> None:
    """Write a report, whole or not at all.

    Raises:
        SgpuError: the file cannot be written, or is there and is no report.
    """
    refuse_other_file(path)
    try:
        write_atomic(path, page.encode("utf-8", "replace"), durable=False)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> SgpuError:
    return SgpuError(
        f"the report cannot be written to `{path}`: {error_text(error)}",
        hint="give `--out` the path of a file in a folder that you may write to",
        code="unwritable",
    )
