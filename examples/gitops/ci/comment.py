"""Shows a plan on GitHub or GitLab.

    comment.py change FILE...   as a comment on the pull request
    comment.py drift FILE       as an issue
    comment.py no-drift FILE    closes that issue

The issue says how to apply what it shows: on GitHub by the label `sgpu-heal`, or by a run of the
workflow; on GitLab by the job `heal` of the pipeline.

FILE has the Markdown of `sgpu plan`. Its first line names the project and the target: a comment or
an issue of the same author that begins with the same line is updated. Several files, one for each
target, become one comment, with a heading for each. Without a pull request, or if the host refuses,
the Markdown goes to the summary of the job. Outside of CI it is printed.

GitHub: https://docs.github.com/en/rest/issues/comments and https://docs.github.com/en/rest/issues/issues,
        https://docs.github.com/en/graphql/reference/queries for `viewer`
GitLab: https://docs.gitlab.com/api/notes/, https://docs.gitlab.com/api/issues/ and
        https://docs.gitlab.com/api/users/
"""

import argparse
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LABEL = "sgpu-drift"
HEAL = "sgpu-heal"
MARKER = re.compile(r"<!-- sgpu:plans? project=(\S+) targets?=(\S+) -->")
Fields = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Comments of a pull request, or issues of a project: how to list, add and change them."""

    url: str
    item: str  # the URL of one, with its number for `{}`
    number: str  # the field that has the number
    body: str  # the field that has the text
    update: str  # the method that changes one
    query: str = ""
    closed: Fields | None = None  # what closes one


def texts(kind: str, environ: Mapping[str, str]) -> Texts | None:
    """Where the host keeps them; None without a pull request, and outside of CI."""
    if not environ.keys() & {"CI_API_V4_URL", "GITHUB_API_URL"}:
        return None
    if "CI_API_V4_URL" in environ:
        project = f"{environ['CI_API_V4_URL']}/projects/{environ['CI_PROJECT_ID']}"
        issues = f"{project}/issues"
        if kind != "change":
            return Texts(
                url=issues,
                query=f"&state=opened&labels={LABEL}",
                item=f"{issues}/{{}}",
                number="iid",
                body="description",
                update="PUT",
                closed={"state_event": "close"},
            )
        request = environ.get("CI_MERGE_REQUEST_IID")
        url = f"{project}/merge_requests/{request}/notes"
        form = Texts(url=url, item=f"{url}/{{}}", number="id", body="body", update="PUT")
    else:
        issues = f"{environ['GITHUB_API_URL']}/repos/{environ['GITHUB_REPOSITORY']}/issues"
        if kind != "change":
            return Texts(
                url=issues,
                query=f"&state=open&labels={LABEL}",
                item=f"{issues}/{{}}",
                number="number",
                body="body",
                update="PATCH",
                closed={"state": "closed"},
            )
        request = environ.get("PULL_REQUEST")
        url = f"{issues}/{request}/comments"
        item = f"{issues}/comments/{{}}"
        form = Texts(url=url, item=item, number="id", body="body", update="PATCH")
    return form if request else None


def call(method: str, url: str, fields: Fields | None = None) -> tuple[Any, str]:
    """The answer, and the header that names its next page."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if "CI_API_V4_URL" in os.environ:
        headers["PRIVATE-TOKEN"] = os.environ.get("GITLAB_TOKEN", "")
    else:
        headers["Authorization"] = f"Bearer {os.environ.get('GITHUB_TOKEN', '')}"
    data = None if fields is None else json.dumps(fields).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer), answer.headers.get("Link", "")


def own_name() -> str | None:
    """Whose token this is, as the host names the authors of texts; None if it does not say. The
    token of a job on GitHub is that of an app, which only GraphQL names."""
    try:
        if "CI_API_V4_URL" in os.environ:
            name = call("GET", f"{os.environ['CI_API_V4_URL']}/user")[0]["username"]
        else:
            url = os.environ.get("GITHUB_GRAPHQL_URL", f"{os.environ['GITHUB_API_URL']}/graphql")
            answer, _ = call("POST", url, {"query": "query { viewer { login } }"})
            name = answer["data"]["viewer"]["login"]
    except (urllib.error.HTTPError, KeyError, TypeError):
        return None
    return str(name)


def is_of(one: Mapping[str, Any], name: str | None) -> bool:
    """Whether a text is by that author; of an app, GraphQL may leave the ending out."""
    author = one.get("user") or one.get("author") or {}
    return name in (None, author.get("login"), author.get("username")) or (
        author.get("login") == f"{name}[bot]"
    )


def numbers(form: Texts, marker: str) -> Iterator[int]:
    """Of all texts of ours that begin with the marker. Anybody can write one that does, and on
    GitHub the token of a job may change it."""
    name = own_name()
    page: str | None = f"{form.url}?per_page=100{form.query}"
    while page:
        found, links = call("GET", page)
        for one in found:
            if (one[form.body] or "").startswith(marker) and is_of(one, name):
                yield one[form.number]
        following = re.search(r'<([^>]+)>;\s*rel="next"', links)
        page = following[1] if following else None


def change(form: Texts, marker: str, fields: Fields) -> bool:
    """Change the first text that begins with the marker and that this token may change."""
    for number in numbers(form, marker):
        try:
            call(form.update, form.item.format(number), fields)
        except urllib.error.HTTPError as error:
            if error.code != 403:  # somebody else wrote it
                raise
        else:
            return True
    return False


def show(kind: str, form: Texts, text: str) -> None:
    marker, project, target = _named(text)
    if kind == "drift":
        text += way_out(os.environ)
    if kind == "no-drift":
        change(form, marker, form.closed or {})
    elif not change(form, marker, {form.body: text}):
        title = f"sgpu: {project} differs from its files, target {target}"
        named = {"title": title, "labels": LABEL if form.update == "PUT" else [LABEL]}
        call("POST", form.url, {form.body: text, **(named if form.closed else {})})


def joined(texts: Sequence[str]) -> str:
    """One text of the plans of several targets. Its first line stays the same whichever these are,
    so that a later text with other targets replaces it."""
    if len(texts) == 1:
        return texts[0]
    parts = []
    for text in texts:
        marker, project, target = _named(text)
        parts.append(f"## Target `{target}`\n\n{text.removeprefix(marker).strip()}\n")
    return "\n".join([f"<!-- sgpu:plans project={project} targets=all -->\n", *parts])


def way_out(environ: Mapping[str, str]) -> str:
    """How to undo what an issue shows, and how to keep it."""
    if "CI_API_V4_URL" in environ:
        url = environ.get("CI_PIPELINE_URL", "")
        click = f"start the job `heal` of [this pipeline]({url})"
    else:
        server = environ.get("GITHUB_SERVER_URL", "https://github.com")
        url = f"{server}/{environ['GITHUB_REPOSITORY']}/actions"
        click = f"give this issue the label `{HEAL}`, or run the workflow `sgpu` at {url}"
    return (
        f"\n**To apply this**, {click}. That applies what is shown here, and nothing else. "
        "**To keep what is there now**, change the files in a pull request.\n"
    )


def _named(text: str) -> tuple[str, str, str]:
    found = MARKER.match(text)
    if found is None:
        sys.exit("error: the file does not begin with the marker of a plan")
    return found[0], found[1], found[2]


def summarize(text: str) -> None:
    """Add the text to the summary of the job, or to its log."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary is None:
        print(text)
        return
    with open(summary, "a", encoding="utf-8") as file:
        file.write(text)


def main() -> int:
    parser = argparse.ArgumentParser(description="shows a plan on GitHub or GitLab")
    parser.add_argument("kind", choices=["change", "drift", "no-drift"])
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    text = joined([file.read_text(encoding="utf-8") for file in options.files])
    form = texts(options.kind, os.environ)
    if form is None:
        summarize(text)
        return 0
    try:
        show(options.kind, form, text)
    except OSError as error:  # a refusal, no connection, or an answer that takes too long
        summarize(text)
        print(f"error: the plan could not be shown at {form.url}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
