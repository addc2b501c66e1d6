import pytest

from sgpu_decl.diagnostics.masks import find_token, mask

TOKENS = {
    "a Hugging Face token": "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4",
    "a Databricks token": "dapi" + "0123456789abcdef" * 2,
    "an AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "a GitHub token": "ghp_" + "a1B2c3D4e5F6" * 3,
    "a URL with a password": "https://ann:correct-horse@mlflow.example.com:5000",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nxyz\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize(("kind", "token"), TOKENS.items())
def test_a_token_is_named_by_kind_and_hidden(kind: str, token: str) -> None:
    text = f"before {token} after"
    assert find_token(text) == kind
    shown = mask(text)
    assert token not in shown
    assert "***" in shown
    assert token[len(token) // 2 :][:6] not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_a_password_in_the_query_of_a_url_is_hidden() -> None:
    uri = "postgresql://ann@db/mlflow?password=correct-horse&sslmode=require"
    assert find_token(uri) == "a URL with a password"
    assert mask(uri) == "postgresql://ann@db/mlflow?password=***&sslmode=require"


@pytest.mark.parametrize(
    "text",
    [
        "hf_transfer", "HF_HUB_ENABLE_HF_TRANSFER", "dapi", "AKIA", "a plain sentence of words",
        "see http://db/?password=$PASSWORD, or ?password=<password>",
    ],
)  # fmt: skip
def test_words_that_only_begin_like_a_token_are_left(text: str) -> None:
    assert find_token(text) is None
    assert mask(text) == text


def test_an_unfinished_key_is_hidden_to_the_end() -> None:
    assert "MIIE" not in mask("-----BEGIN PRIVATE KEY-----\nMIIEow\nabc")
