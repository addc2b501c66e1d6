"""The format of `sgpu fmt`. What a text says is read with PyYAML's own loader, not with ours."""

import re
from random import Random
from textwrap import dedent

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.text.yaml_format import formatted
from tests.text.generated_yaml import Written


@pytest.fixture(params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(yaml, "__with_libyaml__", False)
    elif not yaml.__with_libyaml__:
        pytest.skip("PyYAML is built without libyaml here")
    return str(request.param)


def fmt(text: str) -> str:
    result, findings = formatted(text, "run.yaml")
    assert findings == ()
    assert result is not None
    return result


CASES = {
    "two spaces, and lists are indented": (
        "args:\n    lr: 1\nruns:\n- a:   1\n  b:\n  - c\n-   d: 2\n",
        "args:\n  lr: 1\nruns:\n  - a: 1\n    b:\n      - c\n  - d: 2\n",
    ),
    "one space after a colon, none before it": (
        'a :   1\n"b" : {c:   1, "d":2, e : [f: 3]}\n',
        'a: 1\n"b": {c: 1, "d": 2, e: [f: 3]}\n',
    ),
    "one space before a comment": (
        "a: 1    # one\nb:     # two\n  - c  # three\n",
        "a: 1 # one\nb: # two\n  - c # three\n",
    ),
    "at most one empty line, none at the ends": ("\n\na: 1\n\n\n\nb: 2\n\n\n", "a: 1\n\nb: 2\n"),
    "one line break at the end": ("a: 1", "a: 1\n"),
    "spaces at the end of lines go": ("a: 1  \nb:  \n  c: 2 \n", "a: 1\nb:\n  c: 2\n"),
    "windows line breaks and the byte order mark go": ("\ufeffa: 1\r\nb: 2\r\n", "a: 1\nb: 2\n"),
    "a comment goes with what follows": (
        "a:\n    # of b\n    b: 1\n# of c\nc: 2\n",
        "a:\n  # of b\n  b: 1\n# of c\nc: 2\n",
    ),
    "a comment as deep as what ends above stays there": (
        (
            "runs:\n    a:\n        gpus: 1\n        # type: A10\n    # of b\n    b:\n"
            "        gpus: 2\n        # the end\n"
        ),
        "runs:\n  a:\n    gpus: 1\n    # type: A10\n  # of b\n  b:\n    gpus: 2\n    # the end\n",
    ),
    "a comment alone below a key stays below it": (
        "env:\n    # base: gpu-4\nargs: {}\n",
        "env:\n  # base: gpu-4\nargs: {}\n",
    ),
    "order, quotes and brackets stay": (
        "b: 'x'\na: [ 1,2 ]\nc: \"y\"\n",
        "b: 'x'\na: [ 1,2 ]\nc: \"y\"\n",
    ),
    "block text moves as a whole": (
        (
            "a:\n    b: |   # text\n          one\n            two  \n\n\n          # three\n"
            "    c: >-\n        x\n\n\n    d: 1\n"
        ),
        "a:\n  b: | # text\n    one\n      two  \n\n\n    # three\n  c: >-\n    x\n\n  d: 1\n",
    ),
    "empty lines that a block text keeps stay": (
        "a: |+\n    x\n\n\nb: 1\n",
        "a: |+\n  x\n\n\nb: 1\n",
    ),
    "block text that names its indentation": (
        "a:\n    b: |2\n         x\n      y\n",
        "a:\n  b: |2\n       x\n    y\n",
    ),
    "block text without a line break at the end": ("a: |\n    x", "a: |\n  x"),
    "text of several lines": (
        'a: "one\n        two\n\n    three"\nb: four\n      five  # six\n',
        'a: "one\n  two\n\n  three"\nb: four\n  five # six\n',
    ),
    "brackets over several lines keep their look": (
        (
            "a:\n    lr: [\n      1,   # one\n\n\n      2\n    ]\n"
            "    seed:   {x: 1,\n             y: 2}\n"
        ),
        "a:\n  lr: [\n    1, # one\n\n    2\n  ]\n  seed: {x: 1,\n         y: 2}\n",
    ),
    "lists in lists": (
        "a:\n-   - 1\n    -  - 2\n-\n   b: 3\n",
        "a:\n  - - 1\n    - - 2\n  -\n    b: 3\n",
    ),
    "anchors, aliases and tags": (
        "a:   &x\n    b:   !!str 1\nc:   *x\nd: &l   [1]\n*l : 2\n",
        "a: &x\n  b: !!str 1\nc: *x\nd: &l   [1]\n*l : 2\n",
    ),
    "keys with a question mark": ("?   a\n:   b\n?   c\n", "? a\n: b\n? c\n"),
    "a document with its marks": (
        "%YAML 1.1\n---   # begin\na:   1\n...\n# end\n",
        "%YAML 1.1\n--- # begin\na: 1\n...\n# end\n",
    ),
    "blanks at the ends of lines": (
        "a: 1  \n\n\n\nb: 'x  '  \n# c  \nd:   # e  \n  - [f: 1]  \n",
        "a: 1\n\nb: 'x  '\n# c\nd: # e\n  - [f: 1]\n",
    ),
    "keys without a value in braces": (
        'a: {b: , c:   }\nd: [e: ]\nf: {"g":}\nh:   \n',
        'a: {b: , c: }\nd: [e: ]\nf: {"g":}\nh:\n',
    ),
    "comments alone": ("\n   # a\n\n\n# b\n", "# a\n\n# b\n"),
    "nothing": ("", ""),
    "empty lines alone": ("\n\n  \n", ""),
    "what looks like a comment and is none": (
        "a: 'x  # y'\nb: x#y\nc: \"#\"\nd: http://x/#y\n",
        "a: 'x  # y'\nb: x#y\nc: \"#\"\nd: http://x/#y\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_the_format(parser: str, before: str, after: str) -> None:
    assert fmt(before) == after
    assert fmt(after) == after


@given(seed=st.integers(0, 2**32))
def test_formatting_changes_no_value_and_no_comment(seed: int) -> None:
    written = Written(Random(seed))
    after = fmt(written.text)
    assert yaml.load(after, yaml.BaseLoader) == yaml.load(written.text, yaml.BaseLoader)
    assert re.findall(r"# *c[0-9]+$", after, flags=re.MULTILINE) == written.comments
    assert fmt(after) == after
    assert after.endswith("\n")


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a: [1\nb: 2\n", "yaml_syntax", "run.yaml:2:2"),
        ("a: 1\n---\nb: 2\n", "several_documents", "run.yaml:2:1"),
        (b"a: \xff\n", "not_utf8", "run.yaml:1:4"),
        ("a: \x00\n", "forbidden_character", "run.yaml:1:4"),
        ("a: " + "[" * 200 + "]" * 200, "too_deep", "run.yaml:1:103"),
        ("a: " + "x" * (11 << 20), "file_too_large", "run.yaml:1:1"),
    ],
)
def test_what_is_not_yaml_is_refused_by_its_place(
    parser: str, text: str | bytes, code: str, place: str
) -> None:
    result, findings = formatted(text, "run.yaml")
    assert result is None
    assert [(one.code, str(one.place)) for one in findings] == [(code, place)]


def test_duplicate_keys_are_no_matter_of_the_format() -> None:
    assert fmt("a:   1\na: 2\n") == "a: 1\na: 2\n"


@pytest.mark.parametrize(
    "text",
    [
        "a:\n    b: !!str\n      |\n        x\n         y\n    c:   z\n",
        "a: !!str\n  |\n  x  \n  y\n",
    ],
)
def test_a_text_that_would_change_its_meaning_is_left_alone(text: str) -> None:
    """A tag may stand on the line before the `|` that it is for, where it is not looked for."""
    result, findings = formatted(text, "run.yaml")
    assert result is None
    assert [one.code for one in findings] == ["format_unsafe"]


def test_the_text_of_a_page_is_left_as_it_is() -> None:
    text = dedent(
        """\
        # yaml-language-server: $schema=schemas/run.v1.schema.json
        name: fsdp
        gpus: 8
        command: |
          torchrun --nproc-per-node 8 \\
              train.py   # no comment of YAML
        env: {base: gpu-4, variables: {A: "1"}} # both

        matrix:
          lr: [1e-3, 3e-4]
        """
    )
    assert fmt(text) == text
