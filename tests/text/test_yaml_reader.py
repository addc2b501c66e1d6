import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.text.file_limits import PROJECT_FILE, RUN_FILE, FileLimits, limits_for
from sgpu_decl.text.yaml_nodes import Document, Mapping, Scalar, Sequence
from sgpu_decl.text.yaml_reader import load


@pytest.fixture(params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(yaml, "__with_libyaml__", False)
    elif not yaml.__with_libyaml__:
        pytest.skip("PyYAML is built without libyaml here")
    return str(request.param)


def one(text: str | bytes, limits: FileLimits = RUN_FILE) -> Diagnostic:
    _, found = load(text, "run.yaml", limits=limits)
    assert len(found) == 1, found
    return found[0]


def good(text: str | bytes) -> Document:
    document, found = load(text, "run.yaml")
    assert found == ()
    assert document is not None
    return document


def test_every_value_and_key_knows_its_place(parser: str) -> None:
    root = good("a: 1\nb:\n  - x\n  - {c: 'd'}\n").root
    assert root.entries["a"] == Scalar("1", True, 1, 4, "run.yaml")
    assert (root.keys["b"].line, root.keys["b"].column) == (2, 1)
    items = root.entries["b"]
    assert isinstance(items, Sequence)
    inner = items.items[1]
    assert isinstance(inner, Mapping)
    assert inner.entries["c"] == Scalar("d", False, 4, 9, "run.yaml")


@pytest.mark.parametrize("text", ["\ufeffa: 1\r\nb: 2\r\n", b"\xef\xbb\xbfa: 1\r\nb: 2\r\n"])
def test_a_byte_order_mark_and_windows_line_breaks_are_fine(parser: str, text: str | bytes) -> None:
    document = good(text)
    assert document.root.keys["a"].column == 1
    assert document.root.keys["b"].line == 2


def test_duplicate_keys_are_told_with_both_places(parser: str) -> None:
    document, found = load("a: 1\nb: {x: 1, x: 2}\na: 2\n", "run.yaml")
    assert [(d.code, str(d.place), str(d.related[0].place)) for d in found] == [
        ("duplicate_key", "run.yaml:2:11", "run.yaml:2:5"),
        ("duplicate_key", "run.yaml:3:1", "run.yaml:1:1"),
    ]
    assert document is not None
    assert document.root.entries["a"][0] == "1"


def test_an_alias_stands_for_its_anchor_at_its_own_place(parser: str) -> None:
    root = good("a: &x 5\nb: *x\nc: &l [1]\nd: *l\n").root
    assert root.entries["b"] == Scalar("5", True, 2, 4, "run.yaml")
    assert root.entries["d"] is root.entries["c"]


def test_an_alias_bomb_is_stopped_at_the_limit(parser: str) -> None:
    lines = ["a0: &a0 [" + ",".join("1" * 10) + "]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    found = one("\n".join(lines))
    assert found.code == "too_many_values"
    assert "100,000" in found.summary


def test_aliases_cannot_nest_deeper_than_the_limit(parser: str) -> None:
    nested = "[" * 60 + "]" * 60
    assert one(f"a: &a {nested}\nb: {'[' * 60}*a{']' * 60}\n").code == "too_deep"


@pytest.mark.parametrize("depth", [5_000, 200_000])
@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_an_error_at_once(parser: str, depth: int, opening: str) -> None:
    text = f"a: {opening * depth}" if opening != "- " else opening * depth
    assert one(text).code == "too_deep"


def test_a_hundred_levels_are_fine_and_one_more_is_not() -> None:
    assert good("a: " + "[" * 99 + "]" * 99) is not None
    assert one("a: " + "[" * 100 + "]" * 100).code == "too_deep"


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a: &a [*a]", "recursive_anchor", "1:8"),
        ("a: *b", "unknown_anchor", "1:4"),
        ("a: !python/object:os.system x", "unknown_tag", "1:4"),
        ("a: !!int x", "unknown_tag", "1:4"),
        ("a: !x [1]", "unknown_tag", "1:4"),
        ("1: a", "key_not_text", "1:1"),
        ("a: {null: b}", "key_not_text", "1:5"),
        ("? [a]\n: b", "key_not_text", "1:3"),
        ("<<: {a: 1}", "merge_key", "1:1"),
        ("a: 1\n---\nb: 2", "several_documents", "2:1"),
        ("", "empty_file", "1:1"),
        ("# only a comment\n", "empty_file", "1:1"),
        ("- a", "not_a_mapping", "1:1"),
        ("hello", "not_a_mapping", "1:1"),
        ("ok: 1\na: \0", "forbidden_character", "2:4"),
        ('a: "\\0"', "forbidden_character", "1:4"),
        (b"a: 1\nb: \xff", "not_utf8", "2:4"),
        ("a: 1".encode("utf-16"), "not_utf8", "1:1"),
        ("a: 1".encode("utf-16-le"), "not_utf8", "1:1"),
        ("a: 1".encode("utf-16-be"), "not_utf8", "1:1"),
        ("a: 1".encode("utf-32"), "not_utf8", "1:1"),
        ("a: [1\nb: 2", "yaml_syntax", "2:2"),
        ("a:\n\tb: 1", "yaml_syntax", "2:1"),
        ("a: b: c", "yaml_syntax", "1:5"),
    ],
)
def test_what_is_not_accepted_is_told_with_its_place(
    text: str | bytes, code: str, place: str
) -> None:
    found = one(text)
    assert (found.code, str(found.place)) == (code, f"run.yaml:{place}")
    assert found.hint
    assert found.summary[0].islower() or found.summary[0] == "`"


def test_half_of_a_surrogate_pair_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert one('a: "\\ud800"').code == "forbidden_character"


def test_core_tags_are_fine_where_they_say_the_truth() -> None:
    root = good("a: !!str 5\nb: !!int 5\nc: ! 5\nd: !!map {}\n").root
    assert [root.entries[key][1] for key in "abc"] == [False, True, False]


def test_fifty_megabytes_are_refused_before_parsing() -> None:
    found = one("a: 1\n" * 10_000_000)
    assert found.code == "file_too_large"
    assert found.hint


@pytest.mark.expensive
def test_ten_thousand_runs_fit_a_project_and_not_a_run_file() -> None:
    text = "runs:\n" + "".join(
        f"  r{n}: {{gpus: 1, type: CPU, command: [x], tags: {{a: b}}}}\n" for n in range(10_000)
    )
    assert limits_for(text, "x.yml") is PROJECT_FILE
    assert load(text, "x.yml", limits=PROJECT_FILE)[1] == ()
    assert load(text, "x.yml", limits=RUN_FILE)[1][0].code == "too_many_values"


def test_ten_megabytes_of_line_breaks_are_looked_at_once() -> None:
    assert limits_for("\n" * (10 << 20), "x.yml") is RUN_FILE
    assert limits_for("{\n  'runs' : {}}", "x.yml") is PROJECT_FILE


def test_the_limits_follow_the_name_or_the_keys() -> None:
    assert limits_for("", "dir/sgpu.yml") is PROJECT_FILE
    assert limits_for(b'{"project": {}}', "x.json") is PROJECT_FILE
    assert limits_for("name: a", "run.yaml") is RUN_FILE


@given(st.text(max_size=80) | st.binary(max_size=80))
def test_no_input_raises(text: str | bytes) -> None:
    document, found = load(text, "run.yaml")
    assert document is not None or found


@given(
    st.recursive(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc~1", max_size=3), inner)
        ),
        max_leaves=12,
    )
)
def test_what_yaml_writes_is_read_back(value: object) -> None:
    text = yaml.safe_dump({"value": value}, allow_unicode=True)
    document, found = load(text, "run.yaml")
    assert found == ()
    assert document is not None

    def plain(node: object) -> object:
        if isinstance(node, Scalar):
            return node.text
        if isinstance(node, Sequence):
            return [plain(item) for item in node.items]
        assert isinstance(node, Mapping)
        return {key: plain(item) for key, item in node.entries.items()}

    assert plain(document.root) == {"value": value}
