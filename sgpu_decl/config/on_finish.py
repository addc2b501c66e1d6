"""`on_finish`: who is told of the end of a run, and how."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from sgpu_decl.agent.system.secrets import WEBHOOK_KEY, WEBHOOK_URL
from sgpu_decl.config.block import SECRET, Block
from sgpu_decl.config.entry import Command
from sgpu_decl.config.env import SecretRef
from sgpu_decl.config.other_tool_keys import MAIL_KEYS
from sgpu_decl.config.text_types import Textual, problem
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.shape import OtherToolKey

if TYPE_CHECKING:
    from sgpu_decl.config.run_reader import DeclaredRun


def _mail(address: str) -> str:
    name, _, host = address.rpartition("@")
    if not name or not host or " " in address:
        raise problem("bad_mail", "{path} is not a mail address", "such as `me@example.com`")
    return address


Mail = Annotated[str, AfterValidator(_mail)]
_OF_RUNS = "a job sends mail alone. Write this into `on_finish` of its run: its launches tell, too"
_SCHEMES = ("https://", "http://")


class Mails(Block):
    """What the platform of a job sends."""

    elsewhere: ClassVar[Mapping[str, str]] = {"command": _OF_RUNS, "webhook": _OF_RUNS}
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = MAIL_KEYS

    success: tuple[Mail, ...] = Field(
        (), description="Who gets a mail when a run has succeeded (Databricks)."
    )
    failure: tuple[Mail, ...] = Field(
        (), description="Who gets a mail when a run has failed (Databricks)."
    )


class WebhookUrl(Textual, str):
    """An address, or a reference to the secret that holds it."""

    __slots__ = ()
    published: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": r"^https?://.+$|^env:[A-Za-z_][A-Za-z0-9_]*$|^file:.+$|^databricks:.+/.+$|\$\{",
        "examples": ["env:SLACK_WEBHOOK_URL", "https://example.com/hook"],
    }

    @property
    def is_secret(self) -> bool:
        return not self.startswith(_SCHEMES)

    @classmethod
    def read(cls, value: object) -> "WebhookUrl":
        """Validate an address, or a reference.

        Raises:
            PydanticCustomError: it is neither, or the address itself is a secret.
        """
        if isinstance(value, WebhookUrl):
            return value
        text = value if isinstance(value, str) else ""
        if text.startswith(("env:", "file:", "databricks:")):
            return cls(SecretRef.read(text))
        if not _is_address(text):
            raise problem(
                "bad_webhook",
                "{path} is neither an address nor a reference to a secret",
                "write `https://example.com/hook`, or `env:NAME` for an address that is a secret",
            )
        if mask(text) != text:
            raise problem(
                "literal_secret",
                "{path} lets anybody in who reads it, and it would be stored",
                "`export WEBHOOK_URL=…`, and write `env:WEBHOOK_URL`",
            )
        return cls(text)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return text.startswith(_SCHEMES) and bool(parts.hostname) and text.isprintable()


class Webhook(Block):
    short: ClassVar[str | None] = "url"

    url: Annotated[WebhookUrl, SECRET] = Field(
        description="Where the JSON is sent: an address, or a reference to a secret that holds it "
        "(`env:NAME`, `file:PATH`, `databricks:scope/key`); short form: `webhook: URL`."
    )
    secret: Annotated[SecretRef, SECRET] | None = Field(
        None,
        description="A reference to the key of the signature (HMAC-SHA256 of the body) in the "
        "header `X-Sgpu-Signature-256`; default: no signature.",
    )
    on: Annotated[tuple[Literal["success", "failure", "cancelled"], ...], Field(min_length=1)] = (
        Field(
            ("success", "failure", "cancelled"),
            description="Which ends are sent. `failure` also means attempts that were lost.",
        )
    )


def _block(value: object) -> object:
    """An address is short for the block."""
    return {"url": value} if isinstance(value, str) else value


class OnFinish(Mails):
    elsewhere: ClassVar[Mapping[str, str]] = {}

    command: Command | None = Field(
        None,
        description="A program and its arguments as a list, or text for `bash -euo pipefail`. It "
        "runs where node 0 ran, for at most a minute, and finds the JSON of the webhook on stdin.",
    )
    webhook: Annotated[Webhook | None, BeforeValidator(_block)] = Field(
        None,
        description="A server that gets JSON, which Slack, Mattermost and Discord show.",
    )

    @property
    def secrets(self) -> dict[str, str]:
        """The references of the webhook, by the variable that takes the value to a node."""
        hook = self.webhook
        if hook is None:
            return {}
        key = {WEBHOOK_KEY: str(hook.secret)} if hook.secret is not None else {}
        return {**({WEBHOOK_URL: str(hook.url)} if hook.url.is_secret else {}), **key}

    @property
    def says_something(self) -> bool:
        return any((self.success, self.failure, self.command, self.webhook))


def open_addresses(
    runs: "Iterable[DeclaredRun]", places: Mapping[str, Place]
) -> tuple[Diagnostic, ...]:
    """Warn of webhooks of a run, or of its cells, that others on the way can read."""
    blocks = (run.config.on_finish for run in runs)
    hosts = {_open_host(block.webhook) for block in blocks if block and block.webhook}
    place = places.get("on_finish.webhook.url") or places.get("on_finish.webhook")
    return tuple(
        Diagnostic(
            code="webhook_not_encrypted",
            severity=Severity.WARNING,
            summary=f"others on the way to `{host}` can read what the webhook sends",
            place=place,
            hint="write `https://`, if the server speaks it",
        )
        for host in sorted(hosts - {""})
    )


def _open_host(hook: Webhook) -> str:
    """The host of an address without encryption; empty for others, and for this machine."""
    parts = urlsplit(hook.url)
    host = parts.hostname or ""
    return host if parts.scheme == "http" and not _is_own(host) else ""


def _is_own(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
