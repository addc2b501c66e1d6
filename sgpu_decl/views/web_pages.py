"""The pages of runs and jobs in a browser, and links to them on a terminal."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.agent.notices.notice_body import mlflow_page
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.terminal import columns

if TYPE_CHECKING:
    from sgpu_decl.model.job import JobView

PAGES = ("run", "job", "mlflow", "ray")
"""The kinds of pages, the one that shows most first."""
_ADDRESS = re.compile(r"https?://[!-~]{1,2000}")

# Terminals that show links (OSC 8): by a variable that they set, and its values. Sources:
# https://github.com/Alhadis/OSC8-Adoption, https://github.com/chalk/supports-hyperlinks
_LINKING = (
    ("TERM_PROGRAM", re.compile(r"iTerm\.app|WezTerm|vscode|ghostty|zed")),
    ("TERM", re.compile(r"xterm-kitty|xterm-ghostty|alacritty.*|foot.*")),
    ("VTE_VERSION", re.compile(r"[5-9]\d{3}")),  # 0.50 and later
    ("WT_SESSION", re.compile(r".+")),
    ("KONSOLE_VERSION", re.compile(r"2[1-9]\d{4}")),
)
_PLAIN = re.compile(r"(screen|tmux).*|dumb")


def run_pages(view: AttemptView, here: str) -> dict[str, str]:
    """The addresses of an attempt's pages, by their kind, in the order of `PAGES`. The cluster that
    Ray makes for one run listens on loopback of its host: its page counts if that is `here`."""
    tracked = view.links.get("mlflow")
    tracked = tracked if isinstance(tracked, Mapping) else {}
    own = view.ray.dashboard if view.ray is not None and view.ray.host in (None, here) else None
    found = {
        "run": view.links.get("run"),
        "mlflow": tracked.get("url") or mlflow_page(tracked),
        "ray": view.links.get("ray") or own,
    }
    return _addresses(found)


def job_pages(job: "JobView") -> dict[str, str]:
    """The same for a job: `run` is its last launch."""
    return _addresses({"run": job.last.url if job.last is not None else None, "job": job.url})


def _addresses(found: Mapping[str, object]) -> dict[str, str]:
    """Those that a browser may be given."""
    return {kind: str(url) for kind, url in found.items() if _ADDRESS.fullmatch(str(url))}


def shows_links(environ: Mapping[str, str]) -> bool:
    """Whether a terminal with these variables shows a text as a link."""
    if _PLAIN.fullmatch(environ.get("TERM", "")) or environ.get("TMUX"):
        return False
    return any(values.fullmatch(environ.get(name, "")) for name, values in _LINKING)


def linked_lines(
    lines: Sequence[str], links: Iterable[tuple[str, str]], *, escapes: bool, width: int
) -> list[str]:
    """The lines of a table with a link for each: its first words are the link if the terminal
    shows such (`escapes`), else the address stands behind the line if it fits into `width`.

    Args:
        lines: as they are printed, masked and neutral.
        links: the first words of each line, and an address or nothing.
    """
    linked = []
    for line, (words, url) in zip(lines, links, strict=True):
        if url and escapes and line.startswith(words):
            # https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda
            line = f"\x1b]8;;{url}\x1b\\{words}\x1b]8;;\x1b\\{line[len(words) :]}"
        elif url and not escapes and _visible(line) + 2 + len(url) <= width:
            line = f"{line}  {url}"
        linked.append(line)
    return linked


def _visible(line: str) -> int:
    return columns(re.sub(r"\x1b\[\d*m", "", line))
