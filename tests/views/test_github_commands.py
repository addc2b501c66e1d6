"""Findings as workflow commands: at their lines, ten of a kind, and no text of a user is one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.views.github_commands import render

FORMAT = re.compile(
    r"::(error|warning|notice) (?:file=([^:,]*),line=(\d+),col=(\d+),)?title=([^:,]*)::(.*)"
)


def commands(*findings: Diagnostic) -> list[str]:
    return render(findings, path=lambda file: file).splitlines()


def finding(severity: Severity = Severity.ERROR, **other: object) -> Diagnostic:
    settings: dict[str, object] = {"code": "c", "summary": "it is wrong", **other}
    return Diagnostic(severity=severity, **settings)  # type: ignore[arg-type]


def test_a_finding_stands_at_its_line() -> None:
    at = finding(place=Place("runs/train.yml", 3, 7), hint="write it `right`")
    assert commands(at) == [
        "::error file=runs/train.yml,line=3,col=7,title=c::it is wrong%0Ahint: write it `right`"
    ]


def test_what_has_no_line_in_a_file_is_shown_without_one() -> None:
    assert commands(finding(place=Place("--set args.n", 1, 1))) == ["::error title=c::it is wrong"]


def test_errors_come_first_and_ten_of_each_kind_are_shown() -> None:
    findings = [
        finding(severity, summary=f"{severity} {number}")
        for number in range(12)
        for severity in (Severity.INFO, Severity.WARNING, Severity.ERROR)
    ]
    shown = commands(*findings, finding())
    kinds = [line.split()[0] for line in shown[:-1]]
    assert kinds == ["::error"] * 10 + ["::warning"] * 10 + ["::notice"] * 10
    assert shown[-1] == "3 more errors, 2 more warnings, 2 more notices not shown"
    assert shown[0].endswith("::error 0")


texts = st.text(":,%\r\n@a\x1bé ", max_size=12)


@given(texts, texts, texts)
def test_no_text_of_a_user_is_a_command_or_a_property(file: str, summary: str, hint: str) -> None:
    (line,) = commands(finding(place=Place(file, 1, 1), summary=summary, hint=hint))
    assert FORMAT.fullmatch(line)
    assert re.sub("%(3A|2C)", "", re.sub("%(25|0A)", "", line)).count("%") == 0
