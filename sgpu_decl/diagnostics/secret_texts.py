"""More kinds of secrets than those that no file may hold: what is hidden where text is shown.

These are kinds by which public scanners of secrets know tokens (https://github.com/gitleaks/gitleaks,
https://docs.gitlab.com/security/tokens/#token-prefixes,
https://api.slack.com/authentication/token-types), and values whose name says that they are secret.
"""

import re
from collections.abc import Sequence

from sgpu_decl.diagnostics.tokens import mask_found, names_secret

# How tokens of more services begin, and what follows at least; `\d` in a lookahead tells them from
# words, such as `sk-or-not` and `xoxo-letters`.
_PREFIXES = (
    (r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|oas|soat|agent|ffct|imt|wt)-", r"[\w.-]{16}"),  # GitLab
    (r"sk-(?:proj|svcacct|admin|ant|or|lf)-", r"[\w-]{0,60}?\d[\w-]*"),  # OpenAI, Anthropic
    (r"sk-", r"[A-Za-z0-9]{32}"),
    (r"npm_", r"[A-Za-z0-9]{36}"),
    (r"pypi-Ag", r"[\w-]{16}"),
    (r"xox[a-z](?:\.xox[bp])?-", r"(?=[\w%-]{0,60}?\d)[\w%-]{10}"),  # Slack
    (r"xapp-\d-", r"[\w-]{10}"),
    (r"AIza", r"[\w-]{30}"),  # Google
    (r"ya29\.", r"[\w-]{20}"),
    (r"GOCSPX-", r"[\w-]{20}"),
    (r"[sr]k_(?:live|test)_", r"[A-Za-z0-9]{16}"),  # Stripe
    (r"api_org_", r"[A-Za-z0-9]{30}"),  # Hugging Face
    (r"dose", r"[0-9a-f]{32}"),  # Databricks
    (r"(?:IQoJb3JpZ2lu|F[wQ]oGZXIvYXdz|ABSK)", r"[\w+/=]{50}"),  # AWS
    (r"nvapi-", r"[\w-]{32}"),
    (r"(?:r8_|gsk_|xai-|pplx-)", r"[A-Za-z0-9]{36}"),  # Replicate, Groq, xAI, Perplexity
    (r"hv[bsr]\.", r"[\w-]{24}"),  # Vault
    (r"SG\.", r"[\w-]{16,}\.[\w-]{16}"),  # SendGrid
    (r"gl(?:sa|c)_", r"[\w+/=]{30}"),  # Grafana
    (r"do[opr]_v1_", r"[0-9a-f]{32}"),  # DigitalOcean
    (r"dckr_[po]at_", r"[\w-]{20}"),  # Docker
    (r"(?:wandb_v1_|KGAT_)", r"\w{20}"),  # Weights & Biases, Kaggle
    (r"ATATT3", r"[\w=-]{60}"),  # Atlassian
    (r"eyJ", r"[\w-]{8,}\.eyJ[\w-]{8}"),  # JSON Web Token
    (r"eyJhcGlfYWRkcmVzcyI6", r"[\w+/=]{20}"),  # Neptune
    (r"\d{8,10}:AA", r"[\w-]{33}"),  # Telegram
    (r"AGE-SECRET-KEY-1", r"[A-Z0-9]{20}"),
)
_MORE = re.compile(
    rf"(?<![A-Za-z0-9])(?P<head>{'|'.join(f'{head}(?={tail})' for head, tail in _PREFIXES)})"
    r"[\w%+/=~-]+(?:\.[\w%+/=~-]+)*",
    re.ASCII,
)
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>[^\s'\"`<>\\]+)")
_NO_LOGIN_NAMES = {"http", "https", "ws", "wss", "ray", "s3", "gs", "az", "redis", "rediss"}
_SHOWN_USER = re.compile(r"git|\*+|[$<{%].*", re.DOTALL)
# What follows this in the path of a URL is the right to write there.
_WEBHOOK = re.compile(
    r"(hooks\.slack\.com/[a-z]+|discord(?:app)?\.com/api/webhooks|[a-z0-9.-]+\.webhook\.office\.com"
    r"|outlook\.office(?:365)?\.com/webhook|hooks\.zapier\.com/hooks/catch"
    r"|maker\.ifttt\.com/trigger|api\.telegram\.org)/.+",
    re.IGNORECASE,
)
_IN_QUERY = re.compile(
    r"([?&#;](?:[\w.-]*(?:token|secret|passw(?:or)?d|signature|credential|api[_-]?key)|sig|key)=)"
    r"(?![$<{*])[^&#;]+",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"((?i:authorization: *(?:basic|bearer|token)|\bbearer) +)(?=[^\s'\"`]{0,200}\d)"
    r"[\w.~+/=-]{12,}"
)
_NAMED = re.compile(
    r"(?<![\w$./{-])(?P<name>--[A-Za-z][\w.-]*(?:=| +)|[A-Za-z_][\w.-]*=)"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s'\"`;&|<>(),]+)"
)
_NO_SECRET = re.compile(
    r"[$<{*~./-].*|[\d.]+|(?:env|file|databricks):.*|.*\.(?:json|pem|txt|ya?ml|toml|env)",
    re.DOTALL | re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_LEAST = 8  # characters of a value that is hidden for its name


def hidden(text: str, tokens: Sequence[str], words: Sequence[str]) -> str:
    """Return `text` with all that looks like a token, a password or a secret address hidden.

    Args:
        tokens: how tokens in it may begin, in lower case.
        words: others of which one stands in each line with something to hide.
    """
    if "-----begin" in words:  # of several lines
        text = mask_found(text)
    return "\n".join(_line_hidden(line, tokens, words) for line in text.split("\n"))


def _line_hidden(line: str, tokens: Sequence[str], words: Sequence[str]) -> str:
    lower = line.lower()
    may_be_token = any(map(lower.__contains__, tokens))
    if not may_be_token and not any(map(lower.__contains__, words)):
        return line
    if "://" in line:
        line = _URL.sub(_url_hidden, line)
    if may_be_token or "@" in line or "password=" in lower:
        line = _MORE.sub(lambda match: match["head"] + "***", mask_found(line))
    if "bearer" in lower or "authorization" in lower:
        line = _HEADER.sub(r"\1***", line)
    return _NAMED.sub(_value_hidden, line) if "=" in line or "--" in line else line


def _url_hidden(match: re.Match[str]) -> str:
    """A URL without what lets anybody in. A user without a password is a token for HTTP: pip hides
    it too (`redact_netloc` in pip's `_internal/utils/misc.py`). For ssh it is a name."""
    netloc, slash, path = match["rest"].partition("/")
    user, at, host = netloc.rpartition("@")
    name, _, password = user.partition(":")
    scheme = match["scheme"].lower().rpartition("+")[2]
    alone = password in {"", "x-oauth-basic"}
    if at and alone and scheme in _NO_LOGIN_NAMES and not _SHOWN_USER.fullmatch(name):
        user = "***"
    rest = _WEBHOOK.sub(r"\1/***", f"{host}{slash}{path}")
    return f"{match['scheme']}://{user}{at}" + _IN_QUERY.sub(r"\1***", rest)


def _value_hidden(match: re.Match[str]) -> str:
    """`NAME=value` and `--name value` for a name that says that its value is secret. Lines of logs
    have `some_token=a_word` too, which stays."""
    name, value = match["name"].rstrip("= "), match["value"]
    quote = value[0] if value[0] in "'\"" else ""
    value = value.strip(quote)
    plain = name.startswith("--") or name.isupper() or _DIGIT.search(value) is not None
    secret = plain and is_secret(name, value)
    return f"{match['name']}{quote}***{quote}" if secret else match[0]


def is_secret(name: str, value: str) -> bool:
    """Whether a literal value is hidden for its name. `secret` and `key` alone say too little."""
    if len(value) < _LEAST or not name:
        return False
    last = name.rpartition(".")[2].lstrip("-").replace("-", "_")
    if last.lower() in {"key", "secret"} or not names_secret(last):
        return False
    return _NO_SECRET.fullmatch(value) is None
