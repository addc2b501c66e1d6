"""`state`: where a project keeps the state that machines share."""

import re
import warnings
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from sgpu_decl.config.block import Block, Flag, WorkspaceUrl
from sgpu_decl.config.text_types import problem
from sgpu_decl.model import server_url
from sgpu_decl.model.bucket_url import AZURE, S3, bucket_url, names_login

_FIELDS = {
    "folder": ("path",),
    "postgres": ("url", "schema", "password"),
    "databricks": ("path", "profile", "host"),
    "object": ("url", "endpoint", "allow_http", "region", "account"),
}
_NEEDED = {
    "folder": ("path", "/mnt/team/sgpu-state"),
    "postgres": ("url", "postgresql://USER@HOST/DATABASE"),
    "databricks": ("path", "/Workspace/Shared/sgpu-state"),
    "object": ("url", "s3://BUCKET/sgpu"),
}
_WORKSPACE_FOLDER = re.compile(r"/Workspace(/[^/]+){2,}|/Volumes(/[^/]+){3,}")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PASSWORD = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|databricks")
_ENDPOINT = re.compile(
    r"(https?)://(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?:/[^?#\s]*)?"
)
_REGION = re.compile(r"[a-z0-9-]{2,32}")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")


def _url(text: str, info: ValidationInfo) -> str:
    return _bucket(text) if info.data.get("kind") == "object" else _server(text)


def _bucket(text: str) -> str:
    if _holds_login(text):
        raise problem(
            "password_in_url",
            "{path} holds a login",
            "remove it; credentials come from the environment, such as AWS_ACCESS_KEY_ID",
        )
    if bucket_url(text) is None:
        raise problem(
            "bad_state_url",
            "{path} is no folder of a bucket",
            "write `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER` or `az://CONTAINER/FOLDER`, the "
            "folder of letters, digits and `._=-`",
        )
    return text


def _holds_login(text: str) -> bool:
    try:
        return names_login(text)
    except ValueError:
        return False


def _endpoint(text: str, info: ValidationInfo) -> str:
    if _holds_login(text):
        raise problem("password_in_url", "{path} holds a login", "remove it")
    found = _ENDPOINT.fullmatch(text)
    if found is None:
        raise problem(
            "bad_state_url", "{path} is no URL of a server", "such as `https://HOST:9000`"
        )
    (host,) = server_url.hosts(text)
    if found[1] == "http" and not server_url.is_near(host) and not info.data.get("allow_http"):
        raise problem(
            "state_unencrypted",
            "{path} allows a connection without TLS to another machine",
            "write `https://`; in a network that nobody else reads, add `allow_http: true`",
        )
    return text.rstrip("/")


def _named(pattern: "re.Pattern[str]", what: str, example: str) -> AfterValidator:
    def check(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise problem("bad_name", f"{{path}} is no name of {what}", f"such as `{example}`")
        return text

    return AfterValidator(check)


def _server(text: str) -> str:
    if text.partition("://")[0] not in server_url.SCHEMES:
        raise problem(
            "bad_state_url",
            "{path} is no URL of a PostgreSQL server",
            "write `postgresql://USER@HOST/DATABASE`",
        )
    try:
        secret, mode = server_url.names_password(text), server_url.sslmode(text)
        near = all(map(server_url.is_near, server_url.hosts(text)))
    except ValueError:
        raise problem(
            "bad_state_url", "{path} is no URL", "an IPv6 address stands in brackets: `[::1]`"
        ) from None
    if secret:
        raise problem(
            "password_in_url",
            "{path} holds a password",
            "remove it; set PGPASSWORD, write it into `~/.pgpass`, or name a variable with "
            "`password: env:NAME`",
        )
    if not near and mode not in (None, *server_url.ENCRYPTED):
        raise problem(
            "state_unencrypted",
            "{path} allows a connection without TLS to another machine",
            "write `sslmode=verify-full` or `sslmode=require`, or leave it out",
        )
    return text


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise problem(
            "bad_path", "{path} must be an absolute path", "such as `/mnt/team/sgpu-state`"
        )
    return text


def _is_in_workspace(path: str) -> bool:
    """Whether it is a folder below a folder of `/Workspace`, or a volume or a folder in it."""
    plain = not {".", ".."}.intersection(path.split("/"))
    return plain and _WORKSPACE_FOLDER.fullmatch(path) is not None


def _schema(text: str) -> str:
    if _SCHEMA.fullmatch(text) is None:
        raise problem(
            "bad_name",
            "{path} is no name of a schema",
            "take small letters, digits and `_`, no digit first, at most 63",
        )
    return text


def _password(text: str) -> str:
    if _PASSWORD.fullmatch(text) is None:
        raise problem(
            "bad_secret",
            "{path} must name an environment variable",
            "write `password: env:NAME`, and set NAME where sgpu runs; for Lakebase "
            "`password: databricks`",
        )
    return text


with warnings.catch_warnings():
    # pydantic has a deprecated method `schema`; the field is what users call it.
    warnings.filterwarnings("ignore", message='Field name "schema"')

    class SharedState(Block):
        """One store for all machines. Without it, each machine keeps a state of its own."""

        kind: Literal["folder", "postgres", "databricks", "object"] = Field(
            description="`folder`: files on a file system that the machines share, such as NFS. "
            "`postgres`: tables of a PostgreSQL server. `databricks`: files of a Databricks "
            "workspace. `object`: objects of a bucket."
        )
        path: Annotated[str, AfterValidator(_path)] | None = Field(
            None,
            description="The folder, as an absolute path that is the same on all machines. With "
            "`databricks`, a path below `/Workspace` or `/Volumes`.",
        )
        url: Annotated[str, AfterValidator(_url)] | None = Field(
            None,
            description="The server and the database, `postgresql://USER@HOST/DATABASE`, without "
            "a password. With `object`, the bucket and a folder in it, `s3://BUCKET/FOLDER`, "
            "`gs://` or `az://`.",
        )
        schema: Annotated[str, AfterValidator(_schema)] | None = Field(  # type: ignore[assignment]
            None, description="The schema of the tables; default: `sgpu`."
        )
        password: Annotated[str, AfterValidator(_password)] | None = Field(
            None,
            description="The variable that holds the password, as `env:NAME`. For Lakebase, "
            "`databricks`: an OAuth token of the login that the Databricks SDK finds. Default: "
            "the password that libpq finds in PGPASSWORD, `~/.pgpass` or a service file.",
        )
        profile: str | None = Field(
            None,
            description="The profile of `~/.databrickscfg`; default: the login that the "
            "Databricks SDK finds in variables and in that file.",
        )
        host: WorkspaceUrl | None = Field(
            None, description="The workspace's URL; default: that of the profile."
        )
        allow_http: Flag | None = Field(
            None,
            description="Whether the `endpoint` may be on another machine without TLS; default: "
            "false.",
        )
        endpoint: Annotated[str, AfterValidator(_endpoint)] | None = Field(
            None,
            description="The URL of the bucket's server; default: the URL of AWS, Google or Azure.",
        )
        region: Annotated[str, _named(_REGION, "a region", "eu-central-1")] | None = Field(
            None, description="The region of a bucket in S3; default: AWS_REGION, else `us-east-1`."
        )
        account: Annotated[str, _named(_ACCOUNT, "a storage account", "team")] | None = Field(
            None, description="The storage account of a container in Azure."
        )

        @model_validator(mode="after")
        def _fits(self) -> Self:
            known = {name for names in _FIELDS.values() for name in names}
            unknown = sorted(
                name
                for name in known.difference(_FIELDS[self.kind])
                if getattr(self, name) is not None
            )
            if unknown:
                raise problem(
                    "contradiction",
                    f"a state of kind `{self.kind}` has no `{unknown[0]}`",
                    f"remove it; its fields are {', '.join(f'`{n}`' for n in _FIELDS[self.kind])}",
                )
            needed, example = _NEEDED[self.kind]
            if getattr(self, needed) is None:
                raise problem(
                    "missing_key",
                    f"a state of kind `{self.kind}` needs `{needed}`",
                    f"such as `{needed}: {example}`",
                )
            if self.kind == "databricks" and not _is_in_workspace(self.address):
                raise problem(
                    "bad_path",
                    f"the `path` of a state of kind `{self.kind}` must be a folder of the "
                    f"workspace or of a volume, and is `{self.address}`",
                    f"such as `{example}` or `/Volumes/main/ml/sgpu-state`",
                )
            if self.kind == "object":
                self._fits_cloud()
            return self

        def _fits_cloud(self) -> None:
            scheme = self.address.partition("://")[0]
            for field, only in (("account", AZURE), ("region", S3)):
                if getattr(self, field) is not None and scheme != only:
                    raise problem(
                        "contradiction",
                        f"a bucket of `{scheme}://` has no `{field}`",
                        f"remove it; it is for `{only}://`",
                    )
            if scheme == AZURE and self.account is None:
                raise problem(
                    "missing_key",
                    f"a container of `{AZURE}://` needs `account`",
                    "name the storage account, such as `account: team`",
                )

        @property
        def address(self) -> str:
            """The path, or the URL."""
            written = str(getattr(self, _NEEDED[self.kind][0]))
            return written if self.kind in ("folder", "postgres") else written.rstrip("/")
