"""A plan in Markdown fits into any limit, and nothing of a user's text is Markdown."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.plan import (
    Action,
    Cause,
    Change,
    CodeChange,
    EnvironmentChange,
    FieldChange,
    FieldEffect,
    PackageChange,
    Plan,
    PlannedLaunch,
    Reason,
)
from sgpu_decl.views.plan_markdown import LEAST_LIMIT, LIMIT, render
from tests.views.test_plan_views import EVERYTHING, INPUTS, NOW, a_plan, changed, prior, run

READER = MarkdownIt("commonmark", {"html": True}).enable("table")
"""A reader of Markdown that is not ours."""

POISON = "evil"  # each text of a user holds it
TEXTS = st.text("@#1|`\\<>&-_*[]()!~:/ \n\x1b\u202eé", max_size=12)
users_text = st.builds("{}{}{}".format, TEXTS, st.just(POISON), TEXTS)


@st.composite
def field_changes(draw: st.DrawFn) -> FieldChange:
    values = st.one_of(users_text, st.lists(users_text, max_size=3), st.none())
    return FieldChange(
        path=draw(users_text),
        before=draw(values),
        after=draw(values),
        effect=draw(st.sampled_from(FieldEffect)),
        origin=Place(draw(users_text), 1, 1),
    )


@st.composite
def changes(draw: st.DrawFn) -> Change:
    kind = draw(st.sampled_from([Kind.RUN, Kind.RUN, Kind.JOB, Kind.ENVIRONMENT]))
    packages = st.builds(
        PackageChange, name=users_text, before=st.none(), after=st.one_of(st.none(), users_text)
    )
    environment = EnvironmentChange(
        digest=None, packages=tuple(draw(st.lists(packages, max_size=4)))
    )
    code = CodeChange(
        digest="d", files=1, bytes=1, changed=tuple(draw(st.lists(users_text, max_size=3)))
    )
    return Change(
        address=Address(
            kind, f"r{draw(st.integers(0, 99))}", draw(st.one_of(users_text, st.just("")))
        ),
        kind=kind,
        backend="local",
        action=draw(st.sampled_from(Action)),
        reason=draw(st.sampled_from(Reason)),
        destructive=draw(st.booleans()),
        attempt=2,
        prior=draw(st.sampled_from([None, prior(), prior(AttemptState.RUNNING)])),
        fields=tuple(draw(st.lists(field_changes(), max_size=3))),
        code=draw(st.sampled_from([None, code])),
        environment=environment if kind is Kind.ENVIRONMENT else None,
        cause=draw(st.sampled_from([None, *Cause])),
        launch=PlannedLaunch(owner=draw(users_text), inputs=INPUTS, token="t"),
    )


checks = st.builds(
    Diagnostic,
    code=st.sampled_from(["no_gpu", "work_lost"]),
    severity=st.sampled_from(Severity),
    address=users_text,
    summary=users_text,
    hint=st.one_of(st.none(), users_text),
    place=st.builds(Place, users_text, st.just(1), st.just(1)),
)
plans = st.builds(
    lambda changes, checks, project, target: a_plan(
        *changes, checks=tuple(checks), project=f"/p/{project}", target=target, complete=False
    ),
    st.lists(changes(), max_size=12, unique_by=lambda change: change.address),
    st.lists(checks, max_size=12),
    users_text,
    users_text,
)


def markdown(plan: Plan, limit: int = LIMIT) -> str:
    return "".join(render(plan, now=NOW, limit=limit))


def outside_of_code(tokens: list[Token]) -> Iterator[str]:
    """All text that a reader takes for Markdown or HTML, and not for code."""
    for token in tokens:
        if token.type == "inline":
            yield from outside_of_code(token.children or [])
        elif token.type == "html_block":
            yield re.sub(r"<code>[^<]*</code>", "", token.content)
        elif token.type not in ("code_inline", "fence", "code_block"):
            yield token.content


@settings(max_examples=80, deadline=None)
@given(plan=plans, limit=st.one_of(st.just(0), st.integers(LEAST_LIMIT, 12_000)))
def test_the_markdown_is_whole_at_any_limit(plan: Plan, limit: int) -> None:
    text = markdown(plan, limit)
    if limit:
        assert len(text.encode(errors="backslashreplace")) <= limit
    first, rest = text.split("\n", 1)
    assert re.fullmatch(r"<!-- sgpu:plan project=[\w.%-]* target=[\w.%-]* -->", first, re.ASCII)
    assert "--" not in first.removeprefix("<!--").removesuffix("-->")
    outside = "\n".join(outside_of_code(READER.parse(rest)))
    assert POISON not in outside
    assert outside.count("<details>") == outside.count("</details>")
    assert outside.count("<summary>") == outside.count("</summary>")
    assert "<code>" not in outside
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {4, 6}


def many(count: int, **other: object) -> Plan:
    """A plan of as many changed runs, of which the last one is stopped."""
    creations = (
        run(
            f"r{number:05}",
            Action.CREATE,
            Reason.CONFIG_CHANGED,
            attempt=2,
            prior=prior(),
            fields=(changed("args.lr", 1, 2 + number, number, FieldEffect.NEW_ATTEMPT),),
        )
        for number in range(count - 1)
    )
    stopped = run(
        "stopped",
        Action.DESTROY,
        Reason.REMOVED_FROM_CONFIG,
        destructive=True,
        fields=(changed("gpus", 1, 2, 1, FieldEffect.NEW_ATTEMPT),),
    )
    return a_plan(*creations, stopped, **other)  # type: ignore[arg-type]


NO_GPU = Diagnostic(
    code="no_gpu",
    severity=Severity.WARNING,
    address=str(Address.run("train")),
    summary="this machine has no GPU",
)


def left_out(text: str, what: str) -> int:
    """How many the text says that it lacks."""
    found = re.search(rf"^([\d,]+) {what}s?\b.*see `sgpu show PLAN`\.$", text, re.MULTILINE)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.parametrize("limit", [LEAST_LIMIT, 5_000, LIMIT])
def test_every_change_is_shown_or_counted_and_what_destroys_comes_first(limit: int) -> None:
    plan = many(2_000)
    text = markdown(plan, limit)
    rows = re.findall(r"^\| (?:create|\*\*destroy\*\*) \|", text, re.MULTILINE)
    assert rows[0] == "| **destroy** |"
    assert len(rows) + left_out(text, "more change") == 2_000
    whole = text.count("<details>")
    assert left_out(text, "change") == 0 or whole + left_out(text, "change") >= 2_000 - len(rows)


def test_fields_are_left_out_before_checks_and_checks_before_changes() -> None:
    checks = (
        replace(NO_GPU, address=f"run.r{n}", summary=f"this machine has no GPU {n}")
        for n in range(60)
    )
    plan = many(60, checks=tuple(checks))
    whole = markdown(plan, 0)
    assert "see `sgpu show PLAN`" not in whole
    without_fields = markdown(plan, len(whole) - 1)
    assert 0 < without_fields.count("<details>") < 60
    assert "without all fields: see `sgpu show PLAN`." in without_fields
    assert without_fields.count("this machine has no GPU") == 60
    counted = markdown(plan, 7_000)
    assert counted.count("| create |") == 59
    assert counted.count("this machine has no GPU") == 3
    assert "`no_gpu` at 60 places, 57 of them left out: see `sgpu show PLAN`" in counted
    least = markdown(plan, 1_500)
    assert 0 < least.count("| create |") < 59
    assert least.count("this machine has no GPU") <= 3
    assert left_out(least, "more change") == 59 - least.count("| create |")


def test_the_fields_of_one_large_change_are_cut_and_its_tags_closed() -> None:
    fields = tuple(
        changed(f"args.a{number:04}", 1, 2, number, FieldEffect.NEW_ATTEMPT)
        for number in range(2_000)
    )
    text = markdown(a_plan(run("r", Action.CREATE, Reason.FIRST_RUN, fields=fields)), 10_000)
    assert 9_000 < len(text) <= 10_000
    assert text.count("<details>") == text.count("</details>") == 1
    assert text.endswith("1 change without all fields: see `sgpu show PLAN`.\n")


def test_a_plan_that_fits_lacks_nothing_at_its_own_size() -> None:
    whole = markdown(EVERYTHING, 0)
    assert markdown(EVERYTHING) == whole
    assert len(whole.encode()) < LIMIT


def test_the_first_line_names_the_project_and_the_target() -> None:
    plan = a_plan(project="/srv/vision", target="prod")
    assert markdown(plan).startswith("<!-- sgpu:plan project=vision target=prod -->\n")
    odd = a_plan(project="/srv/a -->b--", target=None)
    assert markdown(odd).startswith("<!-- sgpu:plan project=a%20-%2D%3Eb-%2D target=default -->\n")


def test_what_others_cause_is_folded_counted_and_cut() -> None:
    plan = many(2_000)
    pending = replace(
        plan,
        changes=tuple(replace(change, cause=Cause.PENDING) for change in plan.changes),
    )
    text = markdown(pending, 20_000)
    assert text.count("| **destroy** | `run.stopped` |") == 1
    assert "<details><summary>1,999 changes pending: the base does the same" in text
    shown = text.count("| create |")
    assert shown > 100
    assert f"{1_999 - shown:,} more changes of other causes: see `sgpu show PLAN`." in text
    assert text.count("<details>") == text.count("</details>")


def equal(count: int, **other: object) -> Plan:
    """A plan that changes one line for as many runs."""
    field = changed("timeout", "2h", "3h", 9, FieldEffect.NEXT_ATTEMPT)
    return a_plan(
        *(
            run(
                f"classify-region-{number:03}",
                Action.UPDATE,
                Reason.CONFIG_CHANGED,
                prior=prior(number=number + 1),
                fields=(field,),
            )
            for number in range(count)
        ),
        **other,  # type: ignore[arg-type]
    )


def test_equal_changes_of_many_runs_are_shown_once() -> None:
    text = markdown(equal(40))
    assert text.count("| update | 40 runs: `classify-region-000`, `classify-region-001`") == 1
    assert "the config changed (last attempts: 40 succeeded)" in text
    assert text.count('| `timeout` | `"2h"` | `"3h"` | `run.yaml:9:3` |') == 1
    assert all(text.count(f"`classify-region-{number:03}`") == 1 for number in range(40))
    assert len(text) < 2_000


def test_two_equal_changes_are_shown_one_by_one() -> None:
    assert markdown(equal(2)).count("| update | `run.") == 2


def test_a_long_list_of_equal_changes_names_each_in_its_fold() -> None:
    text = markdown(equal(200))
    assert "`classify-region-039` and 160 more" in text
    assert text.count("| `classify-region-199` |") == 1
    short = markdown(equal(200), 6_000)
    assert "and 160 more" in short
    assert left_out(short, "change") == 200  # "200 changes without all fields"


def test_pending_changes_of_many_runs_are_shown_once() -> None:
    plan = equal(40)
    pending = tuple(replace(change, cause=Cause.PENDING) for change in plan.changes)
    text = markdown(replace(plan, changes=pending))
    assert "<summary>40 changes pending" in text
    assert text.count("| update |") == 1


def new_runs(codes: int) -> Plan:
    """A plan of 43 new runs, of one code or of several."""
    return a_plan(
        *(
            run(
                f"fit-{number:02}",
                Action.CREATE,
                Reason.FIRST_RUN,
                attempt=1,
                fields=(
                    changed("args.rate", None, number / 100, 6, FieldEffect.NEW_ATTEMPT),
                    changed("args.region", None, f"region-{number}", 5, FieldEffect.NEW_ATTEMPT),
                    changed("entrypoint", None, "train.py:main", 4, FieldEffect.NEW_ATTEMPT),
                    changed("gpus", None, 8, 1, FieldEffect.NEW_ATTEMPT),
                    changed("timeout", None, "2h", 3, FieldEffect.NEXT_ATTEMPT),
                    changed("type", None, "H100", 2, FieldEffect.NEW_ATTEMPT),
                ),
                code=CodeChange(digest=f"d{number % codes}", files=3, bytes=900),
            )
            for number in range(43)
        )
    )


def test_new_runs_show_what_they_share_and_then_what_each_has() -> None:
    text = markdown(new_runs(1))
    assert "(none)" not in text
    assert text.count('| `type` | `"H100"` |') == text.count("| code | 3 files, 900 B | |") == 1
    assert '| `fit-07` | `args.rate` `0.07`, `args.region` `"region-7"` |' in text
    assert len(text) < 5_000


def test_new_runs_of_one_code_are_a_group_if_there_are_enough() -> None:
    assert markdown(new_runs(2)).count("| create |") == 2
    assert markdown(new_runs(43)).count("| create | 43 runs: ") == 1
    assert len(markdown(new_runs(43))) < 6_000


def test_what_stops_a_run_is_never_shown_with_others() -> None:
    plan = equal(5)
    stopping = tuple(
        replace(change, action=Action.REPLACE, destructive=True) for change in plan.changes
    )
    assert markdown(replace(plan, changes=stopping)).count("| **replace** | `run.") == 5


def test_checks_that_differ_in_names_alone_share_a_line() -> None:
    def access(number: int, severity: Severity) -> Diagnostic:
        return Diagnostic(
            code="experiment_access",
            severity=severity,
            address=f"run.fit-{number:02}",
            summary=f"`permissions` hold for `/Shared/fit-{number:02}` too",
            hint="name another experiment",
        )

    checks = tuple(access(number, Severity.INFO) for number in range(40))
    text = markdown(a_plan(checks=(NO_GPU, *checks)))
    assert "this machine has no GPU" in text
    line = text.splitlines()[-1]
    assert text.count("/Shared/") == 1
    assert line.endswith("The same of `run.fit-01`, `run.fit-02`, `run.fit-03` and 36 more")
    two = markdown(a_plan(checks=checks[:2]))
    assert two.count("/Shared/") == 2
    errors = tuple(access(number, Severity.ERROR) for number in range(40))
    assert markdown(a_plan(checks=errors)).count("/Shared/") == 40
