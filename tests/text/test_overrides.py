from sgpu_decl.config.plain_values import run_shape
from sgpu_decl.text.overrides import from_option, merge, set_value, sources
from sgpu_decl.text.shape import ANY, TEXT, Shape
from sgpu_decl.text.yaml_nodes import Mapping, Scalar, Sequence
from sgpu_decl.text.yaml_reader import load

SHAPE = Shape(
    keys={
        "gpus": Shape(),
        "args": ANY,
        "env": Shape(keys={"python": TEXT, "variables": Shape(values=TEXT)}),
        "retry": Shape(keys={"on": Shape(items=TEXT)}),
    }
)


def root(text: str) -> Mapping:
    document, found = load(text, "run.yaml")
    assert document is not None
    assert found == ()
    return document.root


def test_mappings_merge_deep_and_other_values_are_replaced() -> None:
    merged = merge(root("a: {x: 1, y: [1, 2]}\nb: 1"), root("a: {y: [3], z: 4}\nc: 5"), ANY)
    assert isinstance(merged, Mapping)
    inner = merged.entries["a"]
    assert isinstance(inner, Mapping)
    assert list(inner.entries) == ["x", "y", "z"]
    y = inner.entries["y"]
    assert isinstance(y, Sequence)
    assert len(y.items) == 1
    assert list(merged.entries) == ["a", "b", "c"]


def test_an_overridden_value_remembers_every_place() -> None:
    base = root("gpus: 1\n")
    over = root("targets:\n  x:\n    gpus: 2\n").entries["targets"]
    assert isinstance(over, Mapping)
    merged = merge(base, over.entries["x"], SHAPE)
    assert isinstance(merged, Mapping)
    final, found = set_value(merged, "gpus", "4", SHAPE)
    assert found == ()
    value = final.entries["gpus"]
    assert isinstance(value, Scalar)
    assert (value.text, value.file) == ("4", "--set gpus")
    assert [str(one.place) for one in sources(value)] == ["run.yaml:3:11", "run.yaml:1:7"]


def test_a_path_is_made_where_it_is_not_written() -> None:
    final, found = set_value(root("gpus: 1"), "env.variables.LR", "0.1", SHAPE)
    assert found == ()
    env = final.entries["env"]
    assert isinstance(env, Mapping)
    variables = env.entries["variables"]
    assert isinstance(variables, Mapping)
    assert variables.entries["LR"][0] == "0.1"


def test_an_unknown_path_names_the_nearest() -> None:
    _, found = set_value(root("gpus: 1"), "env.pyton", "3", SHAPE)
    assert (found[0].code, found[0].hint) == ("unknown_path", "did you mean `env.python`?")
    _, found = set_value(root("gpus: 1"), "zzz", "3", SHAPE)
    assert "`gpus`" in (found[0].hint or "")
    assert set_value(root("gpus: 1"), "", "3", SHAPE)[1][0].code == "unknown_path"
    assert set_value(root("gpus: 1"), "gpus.x", "3", SHAPE)[1][0].code == "unknown_path"


def test_letters_that_changed_places_in_a_path_are_the_field_of_these_letters() -> None:
    _, found = set_value(root("gpus: 1"), "agrs.n", "3", run_shape())
    assert found[0].hint == "did you mean `args.n`?"


def test_members_of_a_list_cannot_be_set() -> None:
    _, found = set_value(root("args: [1]"), "args.0", "3", SHAPE)
    assert found[0].code == "path_in_list"
    assert "--set args=" in (found[0].hint or "")


def test_brackets_in_an_option_are_a_collection_and_other_text_is_not() -> None:
    assert isinstance(from_option("[infra, error]", "--set retry.on"), Sequence)
    assert isinstance(from_option("{a: 1}", "--set args"), Mapping)
    assert from_option("[ -f x ] && y", "--set command")[0] == "[ -f x ] && y"
