from sgpu_decl.text.variables import read_variables
from sgpu_decl.text.yaml_reader import load


def read(text: str, *options: tuple[str, str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    document, _ = load(f"variables: {text}", "run.yaml")
    assert document is not None
    values, found = read_variables(document.root.entries["variables"], options)
    return {name: node.text for name, node in values.items()}, [
        (one.code, one.hint or "") for one in found
    ]


def test_defaults_and_options_give_values() -> None:
    text = "{n: 4, m: {default: 5, description: more}, k: {description: needed}}"
    assert read(text, ("k", "1"), ("n", "2"), ("n", "3")) == ({"n": "3", "m": "5", "k": "1"}, [])


def test_a_variable_without_a_value_names_the_option() -> None:
    _, found = read("{k: {description: needed}}")
    assert found == [("variable_without_value", "give it: `--var k=…`, or a `default`")]


def test_an_option_for_an_unknown_variable_names_the_nearest() -> None:
    assert read("{epochs: 4}", ("epoch", "1"))[1] == [
        ("unknown_variable", "did you mean `epochs`?")
    ]


def test_a_declaration_that_cannot_be_is_told() -> None:
    assert [code for code, _ in read("[1]")[1]] == ["wrong_type"]
    assert [code for code, _ in read("{a: [1]}")[1]] == ["wrong_type"]
    assert [code for code, _ in read("{a: {default: [1]}}")[1]] == ["wrong_type"]
    assert read("{a: {defualt: 1}}")[1][0] == ("unknown_key", "did you mean `default`?")
