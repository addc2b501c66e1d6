"""`ci/comment.py` of the example, on a server that speaks as GitHub and GitLab do."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.examples.comment_host import CommentHost, comment_host
from tests.examples.conftest import EXAMPLES

SCRIPT = EXAMPLES / "gitops/ci/comment.py"
MARKER = "<!-- sgpu:plan project=vision target=prod -->"
OTHER = "<!-- sgpu:plan project=vision target=staging -->"


@pytest.fixture
def host() -> Iterator[CommentHost]:
    with comment_host() as running:
        yield running


@pytest.fixture(params=["github", "gitlab"])
def environ(
    request: pytest.FixtureRequest, host: CommentHost
) -> Callable[[int | None], dict[str, str]]:
    """The environment of a job on that platform."""
    made: Callable[[int | None], dict[str, str]] = getattr(host, request.param)
    return made


def comment(
    kind: str, text: str, folder: Path, environ: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    file = folder / "plan.md"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, SCRIPT, kind, file],
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plan_is_one_comment_that_later_plans_update(
    host: CommentHost, environ: Callable[[int | None], dict[str, str]], tmp_path: Path
) -> None:
    for text in (f"{MARKER}\none", f"{OTHER}\nelsewhere", f"{MARKER}\ntwo"):
        done = comment("change", text, tmp_path, environ(5))
        assert done.returncode == 0, done.stderr
    bodies = [one["body"] for one in host.comments(5)]
    assert bodies == [f"{MARKER}\ntwo", f"{OTHER}\nelsewhere"]
    assert host.comments(6) == []


def test_the_plans_of_several_targets_are_one_comment(
    host: CommentHost, environ: Callable[[int | None], dict[str, str]], tmp_path: Path
) -> None:
    def show(*texts: str) -> None:
        files = [tmp_path / f"{number}.md" for number, _ in enumerate(texts)]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        subprocess.run(
            [sys.executable, SCRIPT, "change", *files],
            env={"PATH": os.environ["PATH"], **environ(5)},
            check=True,
        )

    show(f"{MARKER}\n\none\n", f"{OTHER}\n\nelsewhere\n")
    show(f"{MARKER}\n\ntwo\n", f"{OTHER}\n\nelsewhere\n")
    (body,) = (one["body"] for one in host.comments(5))
    assert body == (
        "<!-- sgpu:plans project=vision targets=all -->\n\n"
        "## Target `prod`\n\ntwo\n\n## Target `staging`\n\nelsewhere\n"
    )


def test_a_comment_beyond_the_first_page_is_found(
    host: CommentHost, environ: Callable[[int | None], dict[str, str]], tmp_path: Path
) -> None:
    assert comment("change", f"{MARKER}\none", tmp_path, environ(5)).returncode == 0
    (path,) = host.kept
    ours = host.kept[path].pop()
    for number in range(4):
        host.add(path, {"body": None if number == 1 else f"see {MARKER}"})
    host.kept[path].append(ours)
    host.page = 2
    assert comment("change", f"{MARKER}\ntwo", tmp_path, environ(5)).returncode == 0
    assert [one["body"] for one in host.comments(5)][4:] == [f"{MARKER}\ntwo"]


def test_a_comment_of_somebody_else_with_our_first_line_is_left(
    host: CommentHost, environ: Callable[[int | None], dict[str, str]], tmp_path: Path
) -> None:
    for text in ("zero", "one", "two"):
        done = comment("change", f"{MARKER}\n{text}", tmp_path, environ(5))
        assert done.returncode == 0, done.stderr
        if text == "zero":
            (path,) = host.kept
            host.kept[path].clear()
            host.add(path, {"body": f"{MARKER}\nnothing to see"}, author="somebody")
    bodies = [one["body"] for one in host.comments(5)]
    assert bodies == [f"{MARKER}\nnothing to see", f"{MARKER}\ntwo"]


def test_an_issue_of_somebody_else_with_our_first_line_is_left(
    host: CommentHost, environ: Callable[[int | None], dict[str, str]], tmp_path: Path
) -> None:
    for kind in ("drift", "no-drift"):
        assert comment(kind, f"{MARKER}\none", tmp_path, environ(None)).returncode == 0
    (path,) = host.kept
    (ours,) = host.kept[path]
    theirs = host.add(path, {**ours, "state": "open", "number": 7, "iid": 7}, author="somebody")
    theirs.update(user={"login": "somebody"}, author={"username": "somebody"})
    theirs["state"] = "opened" if "/api/v4/" in path else "open"
    assert comment("no-drift", f"{MARKER}\none", tmp_path, environ(None)).returncode == 0
    assert theirs["state"].startswith("open")


def test_a_host_that_does_not_say_whose_the_token_is(
    host: CommentHost, environ: Callable[[int | None], dict[str, str]], tmp_path: Path
) -> None:
    host.nameless = True
    for text in ("one", "two"):
        assert comment("change", f"{MARKER}\n{text}", tmp_path, environ(5)).returncode == 0
    assert [one["body"] for one in host.comments(5)] == [f"{MARKER}\ntwo"]


def test_drift_is_one_issue_that_is_closed_in_the_end(
    host: CommentHost, environ: Callable[[int | None], dict[str, str]], tmp_path: Path
) -> None:
    def night(kind: str, text: str) -> list[tuple[str, str]]:
        done = comment(kind, f"{MARKER}\n{text}", tmp_path, environ(None))
        assert done.returncode == 0, done.stderr
        bodies = [one.get("description") or one["body"] for one in host.issues()]
        assert all("**To apply this**" in body for body in bodies)
        return [
            (body.partition("\n**To apply")[0], one["state"])
            for body, one in zip(bodies, host.issues(), strict=True)
        ]

    assert night("no-drift", "nothing") == []
    first, then = night("drift", "one"), night("drift", "two")
    assert [text for text, _ in first] == [f"{MARKER}\none"]
    assert [text for text, _ in then] == [f"{MARKER}\ntwo"]
    assert host.issues()[0]["title"] == "sgpu: vision differs from its files, target prod"
    assert [state for _, state in night("no-drift", "nothing")] == ["closed"]
    assert len(night("drift", "again")) == 2


def test_without_a_pull_request_the_plan_is_in_the_summary(
    host: CommentHost, tmp_path: Path
) -> None:
    summary = tmp_path / "summary.md"
    written = {**host.github(), "GITHUB_STEP_SUMMARY": str(summary)}
    assert comment("change", f"{MARKER}\none", tmp_path, written).returncode == 0
    assert summary.read_text() == f"{MARKER}\none"
    shown = comment("change", f"{MARKER}\none", tmp_path, host.gitlab())
    assert shown.stdout == f"{MARKER}\none\n"
    assert host.asked == []


@pytest.mark.parametrize("token", ["hunter2", None])
def test_a_token_that_may_not_comment_fails_the_job_and_shows_the_plan(
    host: CommentHost,
    environ: Callable[[int | None], dict[str, str]],
    tmp_path: Path,
    token: str | None,
) -> None:
    wrong = environ(5)
    for name in ("GITHUB_TOKEN", "GITLAB_TOKEN"):
        wrong.pop(name, None)
        if token is not None:
            wrong[name] = token
    refused = comment("change", f"{MARKER}\none", tmp_path, wrong)
    assert refused.returncode == 1
    assert refused.stdout == f"{MARKER}\none\n"
    assert "401" in refused.stderr
    assert "hunter2" not in refused.stderr


def test_a_file_that_is_no_plan_is_refused(host: CommentHost, tmp_path: Path) -> None:
    refused = comment("change", "hello", tmp_path, host.github(5))
    assert refused.returncode == 1
    assert refused.stderr == "error: the file does not begin with the marker of a plan\n"


@pytest.mark.parametrize("kind", ["change", "drift", "no-drift"])
def test_outside_of_ci_the_plan_is_printed(kind: str, tmp_path: Path) -> None:
    shown = comment(kind, f"{MARKER}\none", tmp_path, {})
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"{MARKER}\none\n", "")
