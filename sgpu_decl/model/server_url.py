"""What the URL of a PostgreSQL server says, by libpq's rules for connection URIs.

Source: PostgreSQL 18, section 34.1.1.2 (https://www.postgresql.org/docs/18/libpq-connect.html).
"""

from ipaddress import ip_address
from urllib.parse import parse_qs, unquote, urlsplit

SCHEMES = ("postgresql", "postgres")
ENCRYPTED = ("require", "verify-ca", "verify-full")
"""The values of `sslmode` that never send anything without TLS."""
_SECRETS = ("password", "sslpassword")


def hosts(url: str) -> tuple[str, ...]:
    """The hosts, and the addresses of `hostaddr`, which libpq connects to instead; a path is the
    folder of a socket. Empty where libpq's own default is meant."""
    split = urlsplit(url)
    query = parse_qs(split.query)
    named, addresses = query.get("host"), query.get("hostaddr", [])
    texts = named[-1] if named else split.netloc.rpartition("@")[2]
    return (
        *(_host(item) for item in texts.split(",") if item),
        *(item for item in ",".join(addresses).split(",") if item),
    )


def is_near(host: str) -> bool:
    """Whether what is sent to a host stays on this machine."""
    if host.startswith("/") or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def sslmode(url: str) -> str | None:
    return parse_qs(urlsplit(url).query).get("sslmode", [None])[-1]


def names_password(url: str) -> bool:
    split = urlsplit(url)
    user = split.netloc.rpartition("@")[0]
    return ":" in user or any(name in parse_qs(split.query) for name in _SECRETS)


def _host(text: str) -> str:
    text = unquote(text)
    if text.startswith("/"):
        return text
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
