import pytest

from sgpu_decl.diagnostics.masks import mask, masked
from sgpu_decl.diagnostics.tokens import find_token, mask_found

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
    assert mask_found(text) == mask(text)
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


LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0bC3dE6"


@pytest.mark.parametrize(
    "head",
    [
        "glpat-", "gldt-", "glrt-", "glcbt-64_", "sk-proj-", "sk-ant-api03-", "sk-or-v1-", "sk-",
        "npm_", "pypi-AgEIcHlwaS5vcmc", "xoxb-12345-", "xoxe.xoxp-1-", "xapp-1-", "AIza", "ya29.",
        "GOCSPX-", "sk_live_", "rk_test_", "api_org_", "nvapi-", "r8_", "gsk_", "hvs.", "glsa_",
        "dckr_pat_", "wandb_v1_", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.", "12345678:AA",
        "git+https://", "https://hooks.slack.com/services/T0/B0/", "ws://",
        "https://discord.com/api/webhooks/1/", "https://h/x?a=b&sig=", "s3://b/x?X-Amz-Signature=",
        "Authorization: Basic ", "Bearer ", "HF_TOKEN=", "export WANDB_API_KEY='", "--password ",
        "--api-key=", "logger.api_key=", "glptt-", "glft-", "gloas-", "glsoat-", "glagent-",
        "glffct-", "glimt-", "glwt-", "glrtr-", "glc_", "xai-", "pplx-", "hvb.", "hvr.", "doo_v1_",
        "KGAT_", "IQoJb3JpZ2lu", "FwoGZXIvYXdz", "ABSK", "ATATT3xFfGF0", "AGE-SECRET-KEY-1",
    ],
)  # fmt: skip
def test_more_kinds_are_hidden_where_text_is_shown_and_are_no_errors(head: str) -> None:
    end = "@host/x" if head in ("git+https://", "ws://") else "'" if head.endswith("'") else ""
    letters = "0" * 32 if head == "doo_v1_" else LETTERS.upper() * 2
    letters = letters if head.startswith(("doo", "AGE", "ABSK", "IQ", "Fw", "AT")) else LETTERS
    text = f"run it with {head}{letters}{end} then"
    assert find_token(text) is None
    assert mask_found(text) == text
    shown = mask(f"tokens/s=7\n{text}\nloss=1").split("\n")[1]
    assert shown == mask(text)
    assert letters[4:12] not in shown
    assert "***" in shown
    assert shown.startswith("run it with ")
    assert shown.endswith(" then")


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn sk-image-0.24.0 skew task-0123456789abcdef0123456789abcdef disk-a xoxo-kisses",
        "npm_config_cache=/x npm_config_registry=https://registry.npmjs.org/ pypi-mirror-of-mine",
        "sha256:" + "0123456789abcdef" * 4 + " 0123456789abcdef0123456789abcdef01234567",
        "git@github.com:me/repo.git ssh://git@github.com/me/repo git+https://git@host/me/repo",
        "abfss://container@account.dfs.core.windows.net/x postgresql://me@db/mlflow",
        "https://${TOKEN}@host/x https://oauth2:$TOKEN@host HF_TOKEN=$HF_TOKEN --token ${TOKEN}",
        "HF_TOKEN=<your-token> --pad-token [PAD] pad_token=abcdefghi max_token=123456789",
        "GOOGLE_APPLICATION_CREDENTIALS=keys/service.json SSH_KEY=~/.ssh/id_rsa key=validation",
        "`sgpu doctor --secret ml/hf_token` says it: set HF_TOKEN to the token of the bearer",
        'env: {secrets: {HF_TOKEN: env:HF_TOKEN}} {"token": "sgpu-0123456789abcdef"}',
        "logged eos_token=<|endoftext|> loss=0.12345678 next_token=something_else",
        "s3://bucket/x?versionId=123456789 https://host/x?page=2&sort=token",
    ],
)
def test_ordinary_words_are_not_hidden(text: str) -> None:
    assert mask(text) == text


def test_a_value_is_hidden_for_the_name_of_its_field() -> None:
    fields = {
        "DB_PASSWORD": "correct-horse",
        "HF_TOKEN": "env:HF_TOKEN",
        "max_tokens": 12345678901,
        "words": ["--token", "correct-horse", "--epochs", "a-longer-word"],
    }
    assert masked(fields, "env.variables") == {
        "DB_PASSWORD": "***",
        "HF_TOKEN": "env:HF_TOKEN",
        "max_tokens": 12345678901,
        "words": ["--token", "***", "--epochs", "a-longer-word"],
    }
    assert masked("correct-horse", "args.db_password") == "***"
    assert masked(fields) == fields
