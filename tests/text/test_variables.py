from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.interpolation import Scope
from sgpu_decl.text.variables import GivenValues, read_values, read_variables, reference_findings
from sgpu_decl.text.yaml_nodes import Node, Scalar
from sgpu_decl.text.yaml_reader import load


def values_of(text: str, given: GivenValues) -> tuple[dict[str, Node], tuple[Diagnostic, ...]]:
    document, _ = load(f"variables: {text}", "run.yaml")
    assert document is not None
    variables, found = read_variables(document.root.entries["variables"], given)
    scope = Scope(
        variables=variables.values,
        types=variables.types,
        target="dev",
        project="shop",
        environ={"N": "4", "WORD": "four"},
        git=dict,
    )
    more = tuple(reference_findings(variables, scope))
    return {
        name: scope.value("var", name, Place("run.yaml", 1, 1)) or node
        for name, node in variables.values.items()
    }, (*found, *more)


def read(text: str, *options: tuple[str, str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    values, found = values_of(text, GivenValues(options=options))
    return {
        name: node.text if isinstance(node, Scalar) else node for name, node in values.items()
    }, [(one.code, one.hint or "") for one in found]


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
    assert read("{a: {defualt: 1}}")[1][0] == ("unknown_key", "did you mean `default`?")


FITTING = [
    ("string", "x"), ("string", "5"), ("string", "true"), ("number", "5"), ("number", "1e-3"),
    ("boolean", "true"), ("list", "[1, [2]]"), ("list", "[]"), ("mapping", "{a: {b: 1}}"),
]  # fmt: skip
UNFITTING = [
    ("string", "[1]"), ("number", "x"), ("number", "true"), ("number", "'5'"), ("boolean", "1"),
    ("boolean", "yes"), ("list", "1"), ("list", "{a: 1}"), ("mapping", "[1]"), ("mapping", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), FITTING)
def test_a_value_of_the_type_fits(kind: str, value: str) -> None:
    assert read(f"{{v: {{type: {kind}, default: {value}}}}}")[1] == []
    assert read(f"{{v: {{type: {kind}}}}}", ("v", value))[1] == []


@pytest.mark.parametrize(("kind", "value"), UNFITTING)
def test_a_value_of_another_type_is_refused(kind: str, value: str) -> None:
    assert [code for code, _ in read(f"{{v: {{type: {kind}, default: {value}}}}}")[1]] == [
        "wrong_type"
    ]
    # An option is text; in brackets it may be more.
    codes = [code for code, _ in read(f"{{v: {{type: {kind}}}}}", ("v", value))[1]]
    assert codes == ([] if kind == "string" else ["wrong_type"])


def test_a_variable_without_a_type_has_that_of_its_default() -> None:
    for default, wrong in (("5", "x"), ("true", "5"), ("[1]", "x"), ("{default: {a: 1}}", "x")):
        _, found = read(f"{{v: {default}}}", ("v", wrong))
        assert [code for code, _ in found] == ["wrong_type"]
    assert read("{v: x}", ("v", "5")) == ({"v": "5"}, [])
    assert read("{v: '${env.X}'}", ("v", "5"))[1] == []
    assert read("{v: {description: d}}", ("v", "5"))[1] == []


@pytest.mark.parametrize(
    ("other", "declaration", "code"),
    [
        ("x", "{type: number, default: '${var.other}'}", "wrong_type"),
        ("5", "{type: number, default: '${var.other}'}", None),
        ("'5'", "{type: number, default: '${var.other}'}", "wrong_type"),
        ("[1]", "{type: number, default: '${var.other}'}", "wrong_type"),
        ("[1]", "{type: list, default: '${var.other}'}", None),
        ("{default: {a: 1}}", "{type: list, default: '${var.other}'}", "wrong_type"),
        ("5", "{type: string, default: '${var.other}'}", None),
        ("5", "{type: number, default: '1${var.other}'}", "wrong_type"),
        ("x", "{values: [a, b], default: '${var.other}'}", "unknown_value"),
        ("a", "{values: [a, b], default: '${var.other}'}", None),
        ("x", "{type: number, default: '${env.N}'}", None),
        ("x", "{type: number, default: '${env.WORD}'}", "wrong_type"),
        ("{type: number, default: '${env.N}'}", "{type: number, default: '${var.other}'}", None),
        ("x", "{type: number, default: '${matrix.a}'}", None),
    ],
)
def test_a_reference_has_the_type_and_the_values_of_what_it_stands_for(
    other: str, declaration: str, code: str | None
) -> None:
    values, found = values_of(f"{{other: {other}, v: {declaration}}}", GivenValues())
    assert [one.code for one in found] == [code] * (code is not None)
    for one in found:
        assert one.place is not None and one.place.line == 1  # noqa: PT018
        assert (one.related != ()) == ("env" not in declaration)
    value = values["v"]
    if declaration == "{type: number, default: '${env.N}'}":
        assert isinstance(value, Scalar)
        assert value.plain  # a number, as from an option


def test_the_text_of_a_string_stays_as_it_is_written() -> None:
    values, _ = values_of("{v: {type: string, default: 3.10}, n: 3.10}", GivenValues())
    plain = [node.plain for node in values.values() if isinstance(node, Scalar)]
    assert plain == [False, True]


def test_a_value_is_one_of_those_that_are_allowed() -> None:
    text = "{v: {values: [small, large], default: small}, n: {values: [1, 2], default: 1}}"
    assert read(text, ("v", "large"), ("n", "2"))[1] == []
    assert read(text, ("v", "lage"))[1] == [("unknown_value", "did you mean `large`?")]
    assert [code for code, _ in read(text, ("n", "3"))[1]] == ["unknown_value"]
    assert [code for code, _ in read("{v: {values: [a], default: b}}")[1]] == ["unknown_value"]


@pytest.mark.parametrize(
    ("declaration", "code"),
    [
        ("{type: int, default: 1}", "unknown_value"),
        ("{type: [string], default: a}", "unknown_value"),
        ("{values: small, default: a}", "wrong_type"),
        ("{values: [[a]], default: a}", "wrong_type"),
        ("{values: [], default: a}", "wrong_type"),
        ("{a: 1}", "unknown_key"),
    ],
)
def test_a_wrong_declaration_is_refused_once(declaration: str, code: str) -> None:
    (found,) = read(f"{{v: {declaration}}}")[1]
    assert found[0] == code
    assert found[1]


def test_the_strongest_value_wins_and_knows_the_default() -> None:
    files, findings = read_values(
        [(b"v: 4\nw: 4\nx: 4\n", "a.yml"), (b'{"w": 5, "v": 5}', "b.json")]
    )
    assert findings == ()
    given = GivenValues(options=(("v", "1"),), environment={"v": "2", "u": "2"}, files=files)
    values, found = values_of("{v: 9, u: 9, w: 9, x: 9, y: 9}", given)
    assert found == ()
    texts = {name: node.text for name, node in values.items() if isinstance(node, Scalar)}
    assert texts == {"v": "1", "u": "2", "w": "5", "x": "4", "y": "9"}
    assert values["u"].file == "SGPU_VAR_u"
    assert values["w"].file == "b.json"
    assert all(values[name].before is not None for name in "vuwx")


def test_a_value_of_the_environment_that_nobody_declares_is_a_warning() -> None:
    _, (found,) = values_of("{epochs: 1}", GivenValues(environment={"epoch": "2"}))
    assert (str(found.severity), found.hint) == ("warning", "did you mean `epochs`?")
    _, (found,) = values_of("{}", GivenValues(files=read_values([(b"a: 1", "a.yml")])[0]))
    assert (str(found.severity), str(found.place)) == ("error", "a.yml:1:1")


def test_a_file_of_values_that_holds_none_is_refused() -> None:
    values, (found,) = read_values([(b"- 1\n", "a.yml")])
    assert (values, found.code, found.hint) == (
        (), "not_a_mapping", "write a line `NAME: VALUE` for each variable"
    )  # fmt: skip
